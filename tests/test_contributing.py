"""CONTRIBUTING.md names files, rooms and targets that are there, and no room is missing."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "operator" / "partq"
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ENDINGS = r"(?:py|md|lua|toml|txt|yaml|sh|ya?ml)"
PATHS = sorted(
    set(re.findall(rf"[\w./-]*\w/[\w./-]*\w\.{ENDINGS}\b|`\w[\w-]*\.{ENDINGS}`", TEXT))
    | set(re.findall(r"`((?:[\w-]+/)+)`", TEXT))
)
MADE_UP = re.compile(r"[A-Z]{3,}")
"""Stands in a path for what the reader chooses, such as NAME."""
ROOMS = sorted(
    str(path.parent.relative_to(SOURCE)) + "/"
    for path in [*SOURCE.glob("*/__init__.py"), *SOURCE.glob("*/*/__init__.py")]
)


@pytest.mark.parametrize("named", PATHS)
def test_a_path_is_there(named):
    path = Path(named.strip("`"))
    if MADE_UP.search(path.stem) and path.name not in {"README.md", "CHANGELOG.md"}:
        path = path.parent
    assert [root for root in (ROOT, SOURCE) if (root / path).exists()], f"no {path}"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_a_row_that_says_what_belongs_there(room):
    rows = re.findall(r"^\| `([\w/]+)` \| \S.+ \|$", TEXT, re.MULTILINE)
    assert room in rows


def test_targets_of_make_are_there():
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"`make ([a-z-]+)", TEXT)) <= set(targets)


def test_names_of_code_are_there():
    """Functions, classes and constants that the page quotes are defined or used somewhere."""
    quoted = set(re.findall(r"`(_?[A-Za-z]\w*_\w*|_[A-Z]\w+|[A-Z][a-z]+[A-Z]\w+)`", TEXT))
    code = [SOURCE, ROOT / "tests"]
    words = {
        word
        for folder in code
        for path in folder.rglob("*.py")
        for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))
    }
    assert quoted - words == set()
