"""The lock has what every extra needs, with hashes, and the images install what is in it."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "scripts" / "lock.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
FILES = ("constraints-all.txt", "constraints.txt", "constraints-spark.txt")


def read(name):
    """Return the requirements of a lock by their names, each with its hashes."""
    blocks = re.split(r"^(?=[a-z])", (ROOT / name).read_text("utf-8"), flags=re.MULTILINE)[1:]
    return {block.partition("==")[0]: block for block in blocks}


def printed(extras):
    return subprocess.run(
        [sys.executable, LOCK, "print", extras],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def pinned(text):
    """Return name → version of the lines of a lock that are for this Python and machine."""
    lines = (Requirement(line) for line in re.findall(r"^([a-z].*?) ?\\$", text, re.MULTILINE))
    return {
        canonicalize_name(line.name): next(iter(line.specifier)).version
        for line in lines
        if line.marker is None or line.marker.evaluate()
    }


def needed(name, extras, found):
    """Add to `found` what the installed `name` needs, and what that needs."""
    for text in metadata.requires(name) or []:
        line = Requirement(text)
        if line.marker is None or any(line.marker.evaluate({"extra": e}) for e in extras or {""}):
            known = found.setdefault(canonicalize_name(line.name), set())
            if not known or line.extras - known:
                known |= line.extras | {""}
                needed(line.name, line.extras | {""}, found)
    return found


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_an_extra_has_all_that_its_packages_need_and_nothing_else(extra):
    locked = pinned(printed(extra or "partq").stdout)
    wanted = set(needed("partq", {"", extra}, {})) - {"partq"}
    assert set(locked) == wanted
    installed = {name: metadata.version(name) for name in wanted}
    assert locked == installed, "the tests run on other versions: make test"


def test_the_lock_has_what_pyproject_asks_for():
    asked = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    asked += [line for lines in EXTRAS.values() for line in lines if not line.startswith("partq[")]
    locked = {name: re.match(r"\S+==(\S+)", block)[1] for name, block in read(FILES[0]).items()}
    for line in map(Requirement, asked):
        assert line.specifier.contains(locked[canonicalize_name(line.name)]), f"make lock: {line}"


def test_what_builds_partq_is_locked_too():
    assert {"hatchling", "editables"} <= set(pinned(printed("build").stdout))


@pytest.mark.parametrize("name", FILES)
def test_each_version_has_hashes_and_no_address(name):
    text = (ROOT / name).read_text("utf-8")
    assert "://" not in text
    for block in read(name).values():
        assert re.fullmatch(
            r"[\w.-]+==\S+( ; .+)? \\\n(    --hash=sha256:[0-9a-f]{64} \\\n)*"
            r"    --hash=sha256:[0-9a-f]{64}\n    # for: [a-z ]+\n", block
        ), block[:200]  # fmt: skip


def test_the_images_have_the_versions_that_the_tests_run_on():
    everything, image, spark = map(read, FILES)
    assert image.items() <= everything.items()
    assert spark.items() <= everything.items()
    assert not set(image) & set(spark)
    of_image = set(pinned(printed("broker,operator,cli").stdout))
    assert set(pinned("".join(image.values()))) == of_image
    assert set(pinned("".join(spark.values()))) == set(pinned(printed("spark").stdout)) - of_image


def test_an_extra_that_is_not_there_is_named():
    done = printed("embedded,lob")
    assert done.returncode == 1
    assert "constraints-all.txt has no lob, but" in done.stderr
    assert done.stdout == ""
