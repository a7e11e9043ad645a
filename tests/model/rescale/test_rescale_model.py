"""The protocol of a change keeps its invariants, and each mistake breaks the one that it should."""

import pytest

from tests.model.__main__ import search
from tests.model.rescale.scenarios import ATTEMPTS, INVARIANTS, LARGE, MUTANTS, SMALL

EACH_RUN = [ATTEMPTS, *SMALL]
"""Three seconds together; `make model` searches the large ones, too."""


@pytest.mark.parametrize("scenario", EACH_RUN)
def test_invariants_hold_in_every_state(scenario):
    found = search(scenario)
    assert found.violation is None, "\n".join((str(found.violation), *found.trace))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_breaks_its_invariant(name):
    mutant = MUTANTS[name]
    found = search(mutant.scenario, name)
    assert found.violation is not None, f"nothing notices it: {mutant.mistake}"
    assert found.violation.invariant == mutant.invariant, (str(found.violation), *found.trace)


def test_each_invariant_is_broken_by_some_mistake():
    """One that nothing can break would say nothing."""
    assert {mutant.invariant for mutant in MUTANTS.values()} == set(INVARIANTS)


def test_mistakes_are_searched_where_the_right_protocol_is():
    assert {mutant.scenario for mutant in MUTANTS.values()} <= set(EACH_RUN)


def test_a_scenario_is_there_once():
    scenarios = [*SMALL.values(), *LARGE.values()]
    assert len({*SMALL, *LARGE, *scenarios}) == 2 * len(scenarios)
