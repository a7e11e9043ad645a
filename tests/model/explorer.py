"""Search of every state that a model can reach, breadth first, so that a counterexample is short.

A model is a value with three methods (`Model`). States are immutable and hashable: a state that was
reached before, by whatever other order of steps, is not searched a second time.
"""

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple, Protocol


class Violation(Exception):  # noqa: N818 - what a search is for, and no error of the program
    """An invariant does not hold in a state, or a step has broken it."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


class Step(NamedTuple):
    """One thing that can happen next. It is atomic: nothing else happens in the middle of it."""

    label: str
    state: Hashable
    is_fault: bool = False


class Model(Protocol):
    """What is searched."""

    liveness: str
    """The name of the invariant that work can always be done."""

    def initial(self) -> Hashable:
        """Return the state to begin with."""

    def steps(self, state: Any) -> Iterator[Step]:
        """Return what can happen in a state.

        Raises:
            Violation: one of these steps breaks an invariant.
        """

    def check_rest(self, state: Any) -> None:
        """Check a state in which nothing but faults can happen: all work has to be done.

        Raises:
            Violation: something waits in it, and nothing will ever come.
        """


class Finding(NamedTuple):
    """What a search has found."""

    state_count: int
    violation: Violation | None = None
    trace: tuple[str, ...] = ()
    """The labels of the shortest way to the violation; `violation` names the step after them."""


def explore(model: Model) -> Finding:
    """Search all states of a model, and end at the first violation.

    When all were searched, each of them has to have a way to a state at rest that needs no fault:
    otherwise processes could wait for each other, or repeat steps without end.
    """
    start = model.initial()
    numbers: dict[Hashable, int] = {start: 0}
    came_by: list[tuple[int, str]] = [(0, "")]
    predecessors: list[list[int]] = [[]]
    at_rest: list[int] = []
    waiting = deque([start])
    number = -1
    while waiting:
        state, number = waiting.popleft(), number + 1
        is_at_rest = True
        try:
            for label, after, is_fault in model.steps(state):
                reached = numbers.setdefault(after, len(came_by))
                if reached == len(came_by):
                    came_by.append((number, label))
                    predecessors.append([])
                    waiting.append(after)
                if not is_fault:
                    is_at_rest = False
                    predecessors[reached].append(number)
            if is_at_rest:
                model.check_rest(state)
                at_rest.append(number)
        except Violation as violation:
            return Finding(len(came_by), violation, _trace(came_by, number))
    stuck = _without_way(predecessors, at_rest)
    if stuck is not None:
        endless = Violation(
            model.liveness, "from here on, work is never done unless a fault happens"
        )
        return Finding(len(came_by), endless, _trace(came_by, stuck))
    return Finding(len(came_by))


def _without_way(predecessors: list[list[int]], at_rest: list[int]) -> int | None:
    """Return the first state that has no way to a state at rest, if there is one."""
    has_way = bytearray(len(predecessors))
    waiting = list(at_rest)
    while waiting:
        number = waiting.pop()
        if not has_way[number]:
            has_way[number] = True
            waiting += predecessors[number]
    first = has_way.find(0)
    return None if first < 0 else first


def _trace(came_by: list[tuple[int, str]], number: int) -> tuple[str, ...]:
    """Return the labels of the steps from the initial state to another one."""
    labels = []
    while number:
        number, label = came_by[number]
        labels.append(label)
    return tuple(reversed(labels))
