"""Lock the version of everything that is installed, with the hashes of all its files.

`lock.py renew` resolves pyproject.toml for Python 3.11 and newer on all platforms and writes
constraints-all.txt, which says for each package which extras need it, and from it what the images
install: constraints.txt and constraints-spark.txt. A version stays as it is while it fits; with
`--upgrade` the newest one is taken. It needs `uv`, as `make lock` has it, which asks the package
index that UV_DEFAULT_INDEX names, or else its own.

`lock.py print EXTRAS` prints the requirements of some extras for pip. It needs Python alone.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
ALL = ROOT / "constraints-all.txt"
BASE = "partq"
"""Stands beside the extras for what partq needs without any of them."""
BUILD = "build"
"""Stands beside the extras for what builds partq and installs it in place."""
BUILD_REQUIREMENTS = ("hatchling>=1.25", "editables")
IMAGE = ("broker", "cli", "operator")
"""The extras that the image has."""

_OPTIONS = (
    "--quiet", "--universal", "--python-version=3.11", "--fork-strategy=fewest",
    "--no-header", "--no-annotate", "--no-emit-index-url",
)  # fmt: skip
"""One version of each package for all Pythons and platforms, and no address of an index."""
_HEAD = """\
# {what} Written by `make lock`, not by hand.
# Every file of a version has its hash here, so pip installs nothing else.
"""
_BLOCK = re.compile(
    r"^(?P<name>[\w.-]+)==.*\n(?P<hashes>(?: +--hash=.*\n)+)(?: +# for: (?P<extras>.*)\n)?",
    re.MULTILINE,
)


def locked(extras: Iterable[str]) -> str:
    """Return the requirements of partq with these extras, with hashes, as pip reads them.

    Raises:
        ValueError: the lock has no such extra.
    """
    blocks = list(_BLOCK.finditer(ALL.read_text(encoding="utf-8")))
    known = {extra for block in blocks for extra in block["extras"].split()}
    wanted = {BASE, *extras}
    if unknown := wanted - known:
        raise ValueError(
            f"{ALL.name} has no {', '.join(sorted(unknown))}, but {', '.join(sorted(known))}: "
            "name one of these; `make lock` reads new ones from pyproject.toml"
        )
    return "".join(block[0] for block in blocks if wanted & set(block["extras"].split()))


def renew(*, is_upgrade: bool) -> None:
    """Write the three files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {extra: f"--extra={extra}" for extra in project["optional-dependencies"]}
    # uv takes the versions of the file that it is to write, where they fit.
    options = ["--generate-hashes", f"--output-file={ALL}", *(["--upgrade"] if is_upgrade else [])]
    _resolve("pyproject.toml", *extras.values(), *options, also=BUILD_REQUIREMENTS)
    text = ALL.read_text(encoding="utf-8")
    needed = {
        BASE: _names("pyproject.toml"),
        BUILD: _names(also=BUILD_REQUIREMENTS),
        **{extra: _names("pyproject.toml", option) for extra, option in extras.items()},
    }
    blocks = {
        block["name"]: block[0]
        + f"    # for: {' '.join(extra for extra in needed if block['name'] in needed[extra])}\n"
        for block in _BLOCK.finditer(text)
    }
    image = set().union(*(needed[extra] for extra in IMAGE))
    spark = needed["spark"] - image
    for path, what, names in (
        (ALL, "What partq needs; `for` names the extras.", blocks.keys()),
        (ROOT / "constraints.txt", "What the image is built with.", image),
        (ROOT / "constraints-spark.txt", "What the image for Spark has besides.", spark),
    ):
        lines = [block for name, block in blocks.items() if name in names]
        path.write_text(_HEAD.format(what=what) + "".join(lines), encoding="utf-8")


def _names(*arguments: str, also: tuple[str, ...] = ()) -> set[str]:
    """Return the names of what is needed, at the locked versions."""
    text = _resolve(*arguments, f"--constraints={ALL}", also=also)
    return set(re.findall(r"^([\w.-]+)==", text, re.MULTILINE))


def _resolve(*arguments: str, also: tuple[str, ...] = ()) -> str:
    """Return what uv prints for these arguments and the requirements `also`."""
    sources = [*(["-"] if also else []), *arguments]
    done = subprocess.run(
        ["uv", "pip", "compile", *_OPTIONS, *sources],  # noqa: S607 - `make lock` has it on the PATH
        input="\n".join(also),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description="Lock the versions of what is installed.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("renew").add_argument("--upgrade", action="store_true")
    commands.add_parser("print").add_argument("extras", help="separated by commas")
    asked = parser.parse_args()
    if asked.command == "renew":
        renew(is_upgrade=asked.upgrade)
        return
    try:
        sys.stdout.write(locked(asked.extras.split(",")))
    except ValueError as error:
        sys.exit(f"lock: {error}")


if __name__ == "__main__":
    main()
