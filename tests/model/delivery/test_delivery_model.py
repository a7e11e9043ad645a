"""Deliveries keep their invariants, and each mistake breaks the one that it should."""

import pytest

from tests.model.__main__ import NAMES, search
from tests.model.delivery.scenarios import INVARIANTS, LARGE, MUTANTS, SMALL
from tests.model.delivery.session_scenarios import (
    SESSION_INVARIANTS,
    SESSION_MUTANTS,
    SESSIONS_LARGE,
    SESSIONS_SMALL,
)

ALL_MUTANTS = MUTANTS | SESSION_MUTANTS
EACH_RUN = [*SMALL, *SESSIONS_SMALL]


@pytest.mark.parametrize("scenario", EACH_RUN)
def test_invariants_hold_in_every_state(scenario):
    found = search(scenario)
    assert found.violation is None, "\n".join((str(found.violation), *found.trace))


@pytest.mark.parametrize("name", ALL_MUTANTS)
def test_a_mistake_breaks_its_invariant(name):
    mutant = ALL_MUTANTS[name]
    found = search(mutant.scenario, name)
    assert found.violation is not None, f"nothing notices it: {mutant.mistake}"
    assert found.violation.invariant == mutant.invariant, (str(found.violation), *found.trace)


def test_each_invariant_is_broken_by_some_mistake():
    """One that nothing can break would say nothing."""
    broken = {mutant.invariant for mutant in ALL_MUTANTS.values()}
    assert broken == set(INVARIANTS | SESSION_INVARIANTS)


def test_mistakes_are_searched_where_the_right_protocol_is():
    assert {mutant.scenario for mutant in ALL_MUTANTS.values()} <= set(EACH_RUN)


def test_a_scenario_is_there_once():
    scenarios = [*SMALL.values(), *LARGE.values()]
    sessions = [*SESSIONS_SMALL.values(), *SESSIONS_LARGE.values()]
    names = {*SMALL, *LARGE, *SESSIONS_SMALL, *SESSIONS_LARGE}
    assert len(names) == len({*scenarios}) + len({*sessions}) == len(scenarios) + len(sessions)


def test_a_scenario_has_its_name_alone():
    """`make model` is given no more than the name, and the mistake."""
    assert len(NAMES) == len(set(NAMES))
