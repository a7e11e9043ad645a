"""The mutants of tests/conformance: each applies, and its row has tests that can kill it.

`make conformance-mutants` runs them, which takes minutes; this is what every change has to keep.
"""

import pytest

from tests.conformance.mutants import (
    BROKEN,
    KILLED,
    MUTANTS,
    SURVIVED,
    CodeMutant,
    MutantError,
    Outcome,
    check,
    judge,
    main,
    marked_tests,
    read_mutants,
    report,
)
from tests.conformance.page import ROOT, MarkedTest, read_marks

MUTANT = CodeMutant(
    "two-owners",
    "SOL-01",
    "A key has two owners.",
    "core/hashing.py",
    "key_hash(key) & 0xFFFF",
    "key_hash(key) & 0x7FFF",
)
TOML = """
[a]
row = "SOL-01"
breaks = "Nothing works."
file = "a.py"
before = "1"
after = "2"
"""
MARKS = {"SOL-01": [MarkedTest("tests/core/test_a.py", "test_b"), MarkedTest("e2e/test_c.py", "d")]}
KILLS = "tests/core/test_hashing.py::test_many_keys_spread_evenly"
SEES_NOTHING = "tests/core/test_hashing.py::test_first_places_spread_evenly"


def test_each_mutant_applies_and_its_row_has_tests():
    mutants = read_mutants(MUTANTS.read_text(encoding="utf-8"))
    assert len(mutants) >= 40
    check(mutants, read_marks(ROOT))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TOML.replace("row", "line"), "a: has line, breaks"),
        (TOML + 'more = "x"\n', "a: has row, breaks, file, before, after, more"),
        (TOML.replace('"2"', '"1"'), "changes nothing"),
        (TOML.replace("works.", "works"), "no sentence"),
    ],
)
def test_a_mutant_that_is_none_is_named(text, problem):
    assert read_mutants(TOML)[0].row == "SOL-01"
    with pytest.raises(MutantError, match=problem):
        read_mutants(text)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("return 0xFFFF", "is in core/hashing.py 0 times"),
        ("key_hash(key) & 0xFFFF; key_hash(key) & 0xFFFF", "is in core/hashing.py 2 times"),
        (None, "is in core/hashing.py 0 times"),
    ],
)
def test_a_mutant_whose_text_is_not_there_once_is_an_error(tmp_path, source, problem):
    folder = tmp_path / "partq" / "core"
    folder.mkdir(parents=True)
    path = folder / "hashing.py"
    path.write_text("return key_hash(key) & 0xFFFF")
    check([MUTANT], MARKS, tmp_path)
    assert path.read_text() == "return key_hash(key) & 0xFFFF", "only a copy is changed"
    if source is None:
        path.unlink()
    else:
        path.write_text(source)
    with pytest.raises(MutantError, match=f"two-owners: does not apply: `before` {problem}"):
        check([MUTANT], MARKS, tmp_path)


def test_a_mutant_without_a_test_is_an_error():
    assert marked_tests(MUTANT, MARKS) == ["tests/core/test_a.py::test_b"]
    with pytest.raises(MutantError, match="no test of tests/ is marked for SOL-01"):
        check([MUTANT], {"SOL-01": MARKS["SOL-01"][1:]})


def test_the_result_names_what_was_not_killed():
    outcomes = [Outcome(MUTANT, result, 1.0, "told") for result in (KILLED, SURVIVED, BROKEN)]
    text = report(outcomes, as_json=False)
    assert "two-owners (SOL-01) survived: A key has two owners.\ntold" in text
    assert text.endswith("3 mutants of 1 rows: 1 killed, 1 survived, 1 broken")
    assert '"counts": {\n    "killed": 1' in report(outcomes, as_json=True)


def test_a_row_without_a_mutant_is_an_error(capsys):
    assert main(["--row", "SOL-00"]) == 2
    assert "no mutant of SOL-00; there are those of AZR-14" in capsys.readouterr().err


async def test_a_mutant_is_killed_by_a_test_that_fails_and_by_no_other():
    assert (await judge(MUTANT, [KILLS])).result == KILLED
    survivor = await judge(MUTANT, [SEES_NOTHING])
    assert (survivor.result, "1 passed" in survivor.told) == (SURVIVED, True)
