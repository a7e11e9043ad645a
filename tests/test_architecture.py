"""What docs/architecture.md and docs/decisions name is there."""

import re
from pathlib import Path

import pytest

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
