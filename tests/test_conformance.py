"""docs/conformance.md says what the tests show, and no row is forgotten."""

from collections import Counter

import pytest

from tests.conformance.page import (
    ASKED,
    PAGE,
    ROWS,
    ConformanceError,
    MarkedTest,
    check,
    compare,
    family_of,
    page,
    read_asked,
    read_marks,
    read_rows,
    render,
)

MET = '[SOL-01]\nkind = "R"\nasks = "order"\n'
OPEN = '[SOL-02]\nkind = "F"\nasks = "topics"\nresult = "not built"\nreason = "later"\n'
SHOWN = {"SOL-01": [MarkedTest("tests/core/test_a.py", "test_order_is_kept")]}


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make conformance`"


def test_rows_come_with_their_tests_or_their_reason():
    text = render(read_rows(MET + OPEN), SHOWN)
    assert "| SOL-01 | R | order | met | [a: order is kept](../tests/core/test_a.py) |" in text
    assert "| SOL-02 | F | topics | *not built*: later |  |" in text
    assert "| SOL | 2 | 1 |  |  | 1 |  |" in text
    assert "| **all four** | 2 | 1 |  |  | 1 |  |" in text
    assert "| **partq** |  |  |  |  |  |  |" in text


def test_every_row_of_the_four_systems_is_there():
    """344 rows are asked for: a row that is dropped here and there would be noticed by nobody."""
    asked = read_asked(ASKED.read_text(encoding="utf-8"))
    compare(read_rows(ROWS.read_text(encoding="utf-8")), asked)
    families = Counter(family_of(row_id) for row_id in asked)
    assert families == {
        "SOL": 46, "HND": 33, "SOL-U": 14, "PUL": 136, "PUL-U": 8, "AZR": 70, "TUB": 34, "TUB-U": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ('SOL-01 = {kind = "B", terms = ["Order"]}', "SOL-01: of kind R, expected B"),
        ('SOL-01 = {kind = "R", terms = ["order", "restart"]}', r"nor reason says \['restart'\]"),
        ('SOL-01 = {kind = "R"}', "SOL-01: expected kind and terms"),
        ('SOL-01 = {kind = "R", terms = []}', "SOL-01: expected kind and terms"),
        ('PUL-01 = {kind = "R", terms = ["x"]}', "PUL-01: not in rows.toml\nSOL-01: not in asked"),
    ],
)
def test_a_row_that_says_less_than_is_asked_is_named(asked, problem):
    rows = read_rows(MET)
    compare(rows, read_asked('SOL-01 = {kind = "R", terms = ["Order"]}'))
    with pytest.raises(ConformanceError, match=problem):
        compare(rows, read_asked(asked))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (MET.replace("R", "X"), "SOL-01: kind"),
        (MET.replace("order", ""), "SOL-01: kind, asks"),
        (MET + 'result = "done"\n', "result is missing or unknown"),
        (MET + 'reason = "so"\n', "`met` has none"),
        (OPEN.replace('reason = "later"\n', ""), "has a reason"),
        (MET + 'test = "test_a"\n', r"unknown fields \['test'\]"),
        (MET.replace("SOL-01", "XYZ-01"), "XYZ-01: not of SOL"),
        (MET.replace("SOL-01", "first"), "'first' is no id"),
    ],
)
def test_a_row_that_is_none_is_named(text, problem):
    with pytest.raises(ConformanceError, match=problem):
        read_rows(text)


@pytest.mark.parametrize(
    ("marks", "problem"),
    [
        ({}, "SOL-01: met, and no test"),
        (SHOWN | {"SOL-02": SHOWN["SOL-01"]}, "SOL-02: not built, and yet marked: tests/core"),
        (SHOWN | {"HND-99": SHOWN["SOL-01"]}, "HND-99: not in rows.toml"),
        (SHOWN | {"SOL-1": SHOWN["SOL-01"]}, "'SOL-1' is no id"),
        (SHOWN | {"XYZ-01": SHOWN["SOL-01"]}, "XYZ-01: not in rows.toml"),
        (SHOWN | {"PUL-U03": SHOWN["SOL-01"]}, "PUL-U03: not in rows.toml"),
    ],
)
def test_rows_and_marks_have_to_agree(marks, problem):
    rows = read_rows(MET + OPEN)
    check(rows, SHOWN)
    with pytest.raises(ConformanceError, match=problem):
        check(rows, marks)


def marked(tmp_path, text):
    folder = tmp_path / "tests" / "core"
    folder.mkdir(parents=True)
    (folder / "test_a.py").write_text(text)
    return read_marks(tmp_path)


def test_marks_are_found_wherever_they_decorate(tmp_path):
    text = '@pytest.mark.req("SOL-01", "HND-02")\n@pytest.mark.req("SOL-03")\nasync def test_b(): 0'
    test = MarkedTest("tests/core/test_a.py", "test_b")
    assert marked(tmp_path, text) == {"SOL-01": [test], "HND-02": [test], "SOL-03": [test]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('pytestmark = pytest.mark.req("SOL-01")', "not the decorator of a test"),
        ("@pytest.mark.req(ROW)\ndef test_b(): 0", "test_a.py:1: the id of a row is a text"),
    ],
)
def test_a_mark_that_would_be_overlooked_is_named(tmp_path, text, problem):
    with pytest.raises(ConformanceError, match=problem):
        marked(tmp_path, text)
