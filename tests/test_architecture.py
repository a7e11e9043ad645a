"""What docs/architecture.md and docs/decisions name is there."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from partq.cli.commands import COMMANDS
from tests.syntax_trees import tree_of

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "operator" / "partq"
SCRIPTS = SOURCE / "store" / "scripts"
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
DECISIONS = ROOT / "docs" / "decisions"
FILES = sorted(DECISIONS.glob("[0-9]*.md"))
INDEX = (DECISIONS / "README.md").read_text(encoding="utf-8")
ALL = "".join([TEXT, *(path.read_text(encoding="utf-8") for path in FILES)])
QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", ALL)))


@pytest.mark.parametrize("path", [name for name in QUOTED if re.fullmatch(r"[\w/]+\.py", name)])
def test_modules(path):
    assert (SOURCE / path).is_file()


@pytest.mark.parametrize("path", [name for name in QUOTED if name.endswith(".lua")])
def test_scripts(path):
    assert (SOURCE / path if "/" in path else SCRIPTS / path).is_file()


@pytest.mark.parametrize("path", [name for name in QUOTED if re.fullmatch(r"\w+/", name)])
def test_packages(path):
    assert (SOURCE / path / "__init__.py").is_file()


def test_every_script_is_in_the_table_of_records():
    (table,) = re.findall(r"^\| key .*\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    named = {name.removesuffix(".lua") for name in re.findall(r"`(\w+(?:\.lua)?)`", table)}
    scripts = {path.stem for path in SCRIPTS.glob("*.lua")}
    assert scripts
    assert scripts - named == set()


def test_a_script_is_in_the_row_of_a_key_that_it_takes():
    (table,) = re.findall(r"^\| key .*\n\| ---.*\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    wrong = []
    for path in SCRIPTS.glob("*.lua"):
        head = "".join(re.findall(r"^--.*\n", path.read_text(encoding="utf-8"), re.MULTILINE))
        keys = set(re.findall(r"KEYS\[\d\]  +(\w+)", head)) - {"the"}
        rows = [row for row in table.splitlines() if re.search(rf"`{path.stem}(\.lua)?`", row)]
        named = {key for row in rows for key in re.findall(r"\b\w+\b", row.split(" | ")[0])}
        if keys and not keys & named:
            wrong.append(f"{path.stem}: {sorted(keys)}")
    assert wrong == []


def test_every_guarantee_has_a_row():
    assert re.findall(r"^\| (G\d) \|", TEXT, re.MULTILINE) == [f"G{n}" for n in range(1, 9)]


def test_the_layers_are_those_that_are_checked():
    rules = (ROOT / ".importlinter").read_text(encoding="utf-8")
    checked = re.findall(r"^layers =\n((?:    .+\n)+)", rules, re.MULTILINE)[0]
    shown = TEXT.split("## The layers")[1].split("```")[1]
    assert re.findall(r"\w+", shown) == re.findall(r"\w+", checked)


def test_the_index_has_every_decision_once():
    titles = [path.read_text(encoding="utf-8").splitlines()[0] for path in FILES]
    rows = re.findall(r"^\| \[(\d{3})\]\((.+)\) \| (.+) \|$", INDEX, re.MULTILINE)
    assert sorted(name for _, name, _ in rows) == [path.name for path in FILES]
    assert sorted(f"# {number}. {title}" for number, _, title in rows) == sorted(titles)
    assert all(name.startswith(f"{number}-") for number, name, _ in rows)
    numbers = [number for number, _, _ in rows]
    assert len(set(numbers)) == len(numbers), "take the next number"


def test_decisions_have_one_place():
    """A list of them beside the folder would be a second one."""
    section = TEXT.split("\n## Decisions and their reasons\n")[1]
    assert "](decisions/README.md)" in section
    assert not re.search(r"^- ", section, re.MULTILINE), "a decision is a file of docs/decisions"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_decision_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40, "say it on one screen"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_decision_says_why_and_what_it_costs(path):
    parts = re.findall(r"^\*\*(Why|Cost)\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert parts == ["Why", "Cost"]


def imported():
    """Return the libraries that the product imports, each with the packages that do."""
    users = {}
    for path in SOURCE.rglob("*.py"):
        package = path.relative_to(SOURCE).parts[0] + "/" * (path.parent != SOURCE)
        for node in ast.walk(tree_of(path)):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [str(node.module)]
            for library in {name.split(".")[0] for name in names}:
                if library not in sys.stdlib_module_names and library != "partq":
                    users.setdefault(library, set()).add(package)
    return users


def test_the_table_of_libraries_says_who_imports_them():
    (table,) = re.findall(r"^\| library .*\n\| ---.*\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    shown = {
        name: set(re.findall(r"`([\w.]+/?)`", users))
        for names, users in rows
        for name in names.split(", ")
    }
    assert shown == imported()


TREE = TEXT.split("## The tree")[1].split("```")[1]


def test_the_tree_has_every_package():
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert set(re.findall(r"^  (\w+)/ ", TREE, re.MULTILINE)) == packages


def test_the_tree_has_every_command():
    (commands,) = re.findall(r"`partq`: ([^/]*)\n", TREE)
    assert set(re.findall(r"[\w-]+", commands)) == set(COMMANDS)


def test_the_tree_has_every_folder():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    folders = {line.split("/")[0] for line in listed.stdout.splitlines() if "/" in line}
    assert {name for name in folders if name[0] != "."} <= set(re.findall(r"\b(\w+)/", TREE))
