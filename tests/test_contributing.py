"""CONTRIBUTING.md and docs/where.md name what is there, and leave no room and no module out."""

import re
from collections import defaultdict
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

WHERE = (ROOT / "docs" / "where.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (?!---|you look for)(.+) \| (`.+`) \| (`.+`) \|$", re.MULTILINE)
INDEXED = ("core", "broker", "coordinator", "client", "kube", "store/records")
"""Where the decisions, limits and texts are: no module of these is without a row."""


def file_of(named):
    """Return the file that a row names; None: there is none."""
    return next((path / named for path in (SOURCE, ROOT) if (path / named).is_file()), None)


def quoted_in(cell):
    """Return what a line of a cell quotes, for each of its lines."""
    return [re.findall(r"`([^`]+)`", line) for line in cell.split("<br>")]


def is_set_in(text, constant):
    """Tell whether a module or a class gives the constant its value, and does not only use it."""
    return re.search(rf"^\s*{constant}(?:: [^=\n]+)? =", text, re.MULTILINE) is not None


def test_a_row_of_the_index_names_files_and_what_each_of_them_has():
    """Beside each file are names that it has; a constant stands beside the file that sets it."""
    wrong = []
    for subject, files, names in ROW.findall(WHERE):
        if len(quoted_in(files)) != len(quoted_in(names)):
            wrong.append(f"{subject}: not a line of names for each file")
            continue
        for (named, *more), having in zip(quoted_in(files), quoted_in(names), strict=True):
            path = file_of(named)
            if more or path is None:
                wrong.append(f"{subject}: {more or named}: expected one file in each line")
                continue
            text = path.read_text(encoding="utf-8")
            for name in having:
                if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
                    wrong.append(f"{subject}: {name} is not in {named}")
                elif re.fullmatch(r"_?[A-Z]{2}[A-Z0-9_]*", name) and path.suffix == ".py":
                    wrong += [f"{subject}: {named} does not set {name}"] * (
                        not is_set_in(text, name)
                    )
    assert wrong == []


def test_each_line_of_the_index_is_a_row():
    lines = [line for line in WHERE.splitlines() if line.startswith("| ")]
    heads = [line for line in lines if line.startswith(("| you look for |", "| --- |"))]
    assert len(lines) - len(heads) == len(ROW.findall(WHERE)) > 300


def test_rows_of_the_index_are_sorted_by_what_people_look_for():
    for group in WHERE.split("\n## ")[1:]:
        subjects = [subject for subject, _, _ in ROW.findall(group)]
        keys = [re.sub(r"[^a-z0-9 ]", "", subject.lower()) for subject in subjects]
        assert keys == sorted(keys), group.partition("\n")[0]


def test_a_name_of_a_file_stands_in_one_row():
    """Two rows with the same name answer the same question: a reader finds one, and mends one."""
    subjects = defaultdict(list)
    for subject, files, names in ROW.findall(WHERE):
        for (named,), having in zip(quoted_in(files), quoted_in(names), strict=True):
            for name in having:
                subjects[named, name].append(subject)
    doubled = {pair: rows for pair, rows in subjects.items() if len(rows) > 1}
    assert doubled == {}, "join these rows of docs/where.md, or leave the name to one of them"


@pytest.mark.parametrize("folder", INDEXED)
def test_no_module_is_missing_in_the_index(folder):
    indexed = {file_of(named) for named in re.findall(r"`([^`]+)`", WHERE)}
    modules = {path for path in (SOURCE / folder).rglob("*.py") if path.name != "__init__.py"}
    missing = sorted(str(path.relative_to(SOURCE)) for path in modules - indexed)
    assert missing == [], "add rows to docs/where.md: what would somebody look for there?"


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
