"""The search finds the shortest way to what is wrong, also where processes only go round."""

import pytest

from tests.model.explorer import Step, Violation, explore


class Counter:
    """A model whose states are numbers, by the numbers that follow each of them."""

    liveness = "R6"

    def __init__(
        self, following: dict[int, list[int]], *, wrong: int = -1, faults: tuple[int, ...] = ()
    ) -> None:
        self._following = following
        self._wrong = wrong
        self._faults = faults
        self.rested: list[int] = []

    def initial(self):
        return 0

    def steps(self, state):
        for after in self._following.get(state, []):
            if after == self._wrong:
                raise Violation("R1", f"{after}")
            yield Step(f"to {after}", after, is_fault=after in self._faults)

    def check_rest(self, state):
        self.rested.append(state)
        if state == 9:
            raise Violation("R6", "9 is no end")


def test_every_state_is_searched_once():
    model = Counter({0: [1, 2], 1: [3], 2: [3]})
    assert explore(model) == (4, None, ())
    assert model.rested == [3]


def test_the_trace_is_the_shortest_one():
    found = explore(Counter({0: [1, 4], 1: [2], 2: [3], 3: [7], 4: [5], 5: [7]}, wrong=7))
    assert str(found.violation) == "R1: 7"
    assert found.trace == ("to 4", "to 5")


def test_a_state_where_only_faults_can_happen_is_at_rest():
    model = Counter({0: [1, 2], 1: []}, faults=(2,))
    explore(model)
    assert model.rested == [1, 2]


def test_a_state_at_rest_that_is_no_end_is_found():
    found = explore(Counter({0: [1], 1: [9]}))
    assert (str(found.violation), found.trace) == ("R6: 9 is no end", ("to 1", "to 9"))


@pytest.mark.parametrize("faults", [(), (5,)], ids=["no way out", "only a fault leads out"])
def test_steps_that_go_round_without_end_are_found(faults):
    out = {3: [2, 5]} if faults else {3: [2]}
    found = explore(Counter({0: [1, 2], 1: [], 2: [3], **out}, faults=faults))
    assert found.violation
    assert found.violation.invariant == "R6"
    assert found.trace == ("to 2",)


def test_steps_that_go_round_and_can_end_are_no_violation():
    assert explore(Counter({0: [1], 1: [0, 2]})).violation is None
