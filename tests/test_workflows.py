"""The workflows and hooks of the repository name what is there, and state nothing a second time."""

import os
import re
import shutil
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from partq.cli.commands import COMMANDS, cli

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EACH = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def jobs(path):
    return yaml.safe_load(path.read_text("utf-8"))["jobs"]


def lines(path):
    """Return what the jobs run, line by line."""
    runs = [step["run"] for job in jobs(path).values() for step in job["steps"] if "run" in step]
    return [line for run in runs for line in run.splitlines()]


def pythons(path):
    """Return the versions of Python that the images of the jobs have."""
    found = set()
    for job in jobs(path).values():
        image = job["container"]["image"]
        if "matrix.python" in image:
            found |= set(job["strategy"]["matrix"]["python"])
        else:
            found.add(re.fullmatch(r"python:(\S+)-bookworm", image)[1])
    return found


def options(command):
    """Return the options of a command of partq."""
    return set(re.findall(r"--[\w-]+", CliRunner().invoke(cli, [command, "--help"]).output))


def test_there_is_one_for_each_change_and_one_for_each_night():
    assert [path.stem for path in WORKFLOWS] == ["ci", "nightly"]
    triggers = [yaml.safe_load(path.read_text("utf-8"))[True] for path in WORKFLOWS]  # `on`
    assert set(triggers[0]) == {"push", "pull_request"}
    assert set(triggers[1]) == {"schedule", "workflow_dispatch"}


@EACH
def test_a_step_runs_a_target_of_the_makefile_or_the_script_of_continuous_integration(path):
    targets = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
    assert lines(path)
    for line in lines(path):
        if line == ".ci/run":
            assert os.access(ROOT / line, os.X_OK)
        else:
            target = re.fullmatch(r'make ([a-z-]+)(?: ARGS="[^"]*")?', line)
            assert target, f"{line!r} is neither .ci/run nor `make TARGET`"
            assert target[1] in targets


@EACH
def test_arguments_are_options_of_the_command(path):
    for target, arguments in re.findall(r'make ([a-z-]+) ARGS="([^"]*)"', "\n".join(lines(path))):
        named = set(re.findall(r"--[\w-]+", arguments))
        assert named <= options(target.removesuffix("-nightly"))


def test_the_night_runs_what_is_made_for_it():
    targets = set(re.findall(r"make ([a-z-]+)", "\n".join(lines(WORKFLOWS[1]))))
    assert targets == {"simulate-nightly", "chaos", "model", "code-mutants"}


def test_the_versions_of_python_are_those_that_the_project_claims():
    claimed = set(re.findall(r":: Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"])))
    assert pythons(WORKFLOWS[0]) == claimed
    assert pythons(WORKFLOWS[1]) <= claimed
    oldest = min(claimed, key=lambda version: int(version.partition(".")[2]))
    assert PROJECT["requires-python"] == f">={oldest}"
    (all_of_it,) = [
        job for job in jobs(WORKFLOWS[0]).values() if job["steps"][-1]["run"] == ".ci/run"
    ]
    assert all_of_it["container"]["image"] == f"python:{oldest}-bookworm"


@EACH
def test_caches_are_for_files_that_are_there(path):
    named = re.findall(
        r"'([^']+)'", " ".join(re.findall(r"hashFiles\(([^)]*)\)", path.read_text("utf-8")))
    )
    assert named
    assert [name for name in named if not list(ROOT.glob(name))] == []


def test_the_light_tests_are_there():
    (words,) = re.findall(r"^LIGHT := \$\(addprefix tests/,(.*)\)$", MAKEFILE, re.MULTILINE)
    assert [word for word in words.split() if not (ROOT / "tests" / word).exists()] == []


@cache
def made_by(part):
    """Return the words of the command for pytest of a part of the tests, without running it."""
    done = subprocess.run(
        ["make", "--dry-run", "test", f"TESTS={part}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    # A line that make had run in spite of that would not be shown by itself alone.
    assert ("check; checked=" in done.stdout) == (part != "timed")
    assert "mkdocs build" not in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if " -m pytest --dist" in line]
    return line.split()


def test_each_test_is_in_one_of_the_parts_that_continuous_integration_runs():
    untimed = [word for word in made_by("untimed") if word.startswith("tests/")]
    ignored = [word.partition("=")[2] for word in made_by("timed") if "--ignore=" in word]
    assert untimed == ignored
    assert [word for word in untimed if not (ROOT / word).exists()] == []
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert re.findall(r"make test TESTS=([a-z]+)", script) == ["untimed", "timed"]


def test_a_part_of_the_tests_that_is_not_there_is_refused():
    done = subprocess.run(
        ["make", "--dry-run", "test", "TESTS=quick"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "TESTS is quick: expected all, timed or untimed" in done.stderr


def test_tests_that_may_be_slow_start_no_servers_and_wait_for_nobody():
    servers = r"import .*\b(LocalBroker|RunningBroker|RedisServer|eventually\w*)\b"
    fixtures = r"def \w+\(.*\b(redis_server|store|spark)\b"
    waiting = rf"{servers}|{fixtures}|await asyncio\.sleep"
    for word in made_by("untimed"):
        if word.startswith("tests/"):
            path = ROOT / word
            for module in path.rglob("*.py") if path.is_dir() else [path]:
                assert not re.search(waiting, module.read_text("utf-8")), module


MAKE = r"""#!/bin/sh
echo "make $*"
case "$*" in
  *=timed) echo "== $TIMED in 1.00s ==" ;;
  *=untimed) echo "== $UNTIMED in 2.00s ==" ;;
  e2e) echo "== $STORIES in 3.00s (0:00:03) ==" ;;
esac
case "$* $TIMED" in *=timed*failed*) exit 2 ;; esac
case "$* $UNTIMED" in *=untimed*failed*) exit 2 ;; esac
case "$* $STORIES" in e2e\ *failed*) exit 2 ;; esac
"""
PASSED = {"TIMED": "5 passed", "UNTIMED": "6 passed", "STORIES": "7 passed", "SEEDS": "0"}


@pytest.mark.parametrize(
    ("otherwise", "last"),
    [
        ({}, "== 7 passed in 3.00s (0:00:03) =="),
        ({"TIMED": "1 failed"}, "== 1 failed in 1.00s =="),
        ({"UNTIMED": "1 failed"}, "== 1 failed in 2.00s =="),
        ({"STORIES": "1 failed"}, "== 1 failed in 3.00s (0:00:03) =="),
        ({"SEEDS": "1"}, "== 7 passed in 3.00s (0:00:03) =="),
    ],
)
def test_continuous_integration_fails_with_any_part_and_ends_with_a_summary(
    tmp_path, otherwise, last
):
    for name in (".ci/run", "scripts/beside.sh"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    scripts = {"make": MAKE, ".venv/bin/partq": '#!/bin/sh\necho "$@"; exit $SEEDS\n'}
    for name, text in scripts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, **PASSED, "PATH": f"{tmp_path}:{os.environ['PATH']}", **otherwise}
    done = subprocess.run(
        [".ci/run"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == last, done.stdout + done.stderr
    assert (done.returncode != 0) == bool(otherwise)
    assert ("make e2e\n" in done.stdout) == ("TIMED" not in otherwise)
    assert "make test TESTS=untimed" in done.stdout or not otherwise.get("UNTIMED")


def test_what_runs_beside_has_the_lowest_priority_and_leaves_that_of_its_caller():
    """A kernel may share processors out by session: there `nice` alone says nothing."""
    grouped = Path("/proc/self/autogroup")
    shown = f"nice; cat {grouped} 2>/dev/null || true"

    def lines_of(*command):
        done = subprocess.run(
            [*command, "sh", "-c", shown], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    mine = grouped.read_text() if grouped.exists() else ""
    assert lines_of("scripts/beside.sh")[0] == "19"
    apart = lines_of("setsid", "scripts/beside.sh")
    assert apart[0] == "19"
    if mine:
        assert apart[1].endswith(" nice 19")
        assert grouped.read_text() == mine


def test_hooks_before_a_commit_are_the_steps_of_make_check():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert [repo["repo"] for repo in hooks] == ["local"], "versions are those of constraints.txt"
    (recipe,) = re.findall(r"^check: ##.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    steps = {
        line.partition("$(BIN)/")[2].removesuffix(" .")
        for line in recipe.splitlines()
        if "$(BIN)/" in line
    }
    assert {hook["entry"].removeprefix(".venv/bin/") for hook in hooks[0]["hooks"]} == steps


def test_forms_ask_for_what_the_commands_print():
    forms = "".join(
        path.read_text("utf-8") for path in (ROOT / ".github" / "ISSUE_TEMPLATE").iterdir()
    )
    named = set(re.findall(r"`partq ([a-z]+)", forms))
    assert named
    assert named <= set(COMMANDS)
