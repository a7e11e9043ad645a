"""Each mistake of the model can be made in the code, and has tests that are there.

`make code-mutants` runs all of them, which takes minutes; here are two, one of a script and one of
a decision.
"""

import ast
import re

import pytest

from tests.conformance.mutants import KILLED, CodeMutant, MutantError, check_applies, judge
from tests.conformance.page import ROOT
from tests.model.code_mutants import BEYOND, TABLES, main, read_table, read_tables
from tests.model.delivery.scenarios import MUTANTS as DELIVERY_MUTANTS
from tests.model.rescale.scenarios import MUTANTS as RESCALE_MUTANTS

CODE_MUTANTS = read_tables()
LEFT_OUT = {
    "epoch_without_clock", "gate_by_cursor_alone", "gate_by_memory", "gate_by_sent",
    "gate_passes_parked", "memory_outlives_store", "returned_and_kept", "state_before_ack",
    "state_left_behind", "state_not_fenced", "state_read_past_acks",
}  # fmt: skip
"""Mistakes of the model of deliveries that other tables make: those of the other model, and of the
simulator (`tests/lab/simulate/mutations.py` and the tables beside it)."""
EACH_RUN = ["gate_by_cursor_alone", "seal_before_open"]


def test_each_mistake_of_the_model_is_made_in_the_code():
    made = {mutant.name for mutant in CODE_MUTANTS if mutant.row != BEYOND}
    assert made == RESCALE_MUTANTS.keys() | (DELIVERY_MUTANTS.keys() - LEFT_OUT)
    check_applies(CODE_MUTANTS)


def test_the_tests_that_find_them_are_there():
    for mutant, tests in CODE_MUTANTS.items():
        assert tests, mutant.name
        for test in tests:
            path, _, name = test.partition("::")
            found = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            assert name in {each.name for each in found if isinstance(each, functions)}, test


def test_the_files_that_the_table_names_are_there():
    for table in TABLES:
        for path in re.findall(r"tests/[\w/]+\.py", table.read_text(encoding="utf-8")):
            assert (ROOT / path).is_file(), path


@pytest.mark.parametrize("name", EACH_RUN)
async def test_a_mistake_is_found(name):
    (mutant,) = (each for each in CODE_MUTANTS if each.name == name)
    outcome = await judge(mutant, CODE_MUTANTS[mutant])
    assert outcome.result == KILLED, outcome.told


@pytest.mark.parametrize("text", ["[no_such]\nfile = 'a'", "[deliver_at_once]\nfile = 'a'"])
def test_a_table_that_is_none_is_refused(text):
    with pytest.raises(MutantError, match="expected a mutant of the model"):
        read_table(text, RESCALE_MUTANTS)


def test_a_text_that_is_not_there_is_named():
    with pytest.raises(MutantError, match="deliver_at_once: does not apply: `before` is in"):
        check_applies([CodeMutant("deliver_at_once", "R4", "It.", "core/layout.py", "no such", "")])


def test_a_mutant_that_is_not_there_is_an_error(capsys):
    assert main(["no_such"]) == 2
    assert "no mutant no_such" in capsys.readouterr().err
