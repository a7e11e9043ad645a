"""What docs/architecture.md names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "operator" / "partq"
SCRIPTS = SOURCE / "store" / "scripts"
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", TEXT)))


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
