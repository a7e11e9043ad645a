"""Processes whose flows have ended though they may live: another of their name waits for them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from partq.broker.config import QueueConfig
from partq.core.model import MemberId

RETURN_S = 5.0
"""The longest that a process may take to connect again, after it has closed or the broker has."""
MAX_EXPECTED = 1000


def return_s_of(config: QueueConfig, group: str) -> float:
    """Return how long a process of a member is expected again; 0: it is not, in this group."""
    if group not in config.client_assigned:
        return 0.0
    return return_s(config.rebalance_delays.get(group))


def return_s(delay_s: float | None) -> float:
    """Return how long a process is expected, in a group with this rebalance delay; None: not known.

    Half of the delay at most: one that restarts under its name has its partitions before they go to
    nobody.
    """
    return RETURN_S if delay_s is None else min(RETURN_S, delay_s / 2)


@dataclass(slots=True)
class _Expected:
    incarnation: str
    return_s: float
    seen_at: float
    waiting: int = 0
    """How many binds of it have not been judged yet, as the store does not answer."""


class ExpectedReturns:
    """The last process of each member whose flow has ended, for as long as it may come back.

    When the store is away for a while every broker loses its flows. The first process that binds
    afterwards would have the partitions of this broker, and another one of the name those of the
    next broker.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._expected: dict[tuple[str, MemberId], _Expected] = {}

    def expect(self, group: str, member: MemberId, incarnation: str, return_s: float) -> None:
        """Note that the flow of a process has ended, which may connect again within a time."""
        self._expected.pop((group, member), None)
        self._expected[group, member] = _Expected(incarnation, return_s, self._clock())
        if len(self._expected) > MAX_EXPECTED:
            del self._expected[next(iter(self._expected))]

    def end(self, group: str, member: MemberId) -> None:
        """Note that a process of the member has a flow, or that its last one has ended."""
        self._expected.pop((group, member), None)

    @contextmanager
    def waits(self, group: str, member: MemberId, incarnation: str) -> Iterator[None]:
        """Say that a process wants to bind, for as long as it waits for the store."""
        found = self._expected.get((group, member))
        if found is None or found.incarnation != incarnation:
            yield
            return
        found.waiting += 1
        try:
            yield
        finally:
            found.waiting -= 1
            found.seen_at = self._clock()

    def other(self, group: str, member: MemberId, incarnation: str) -> tuple[str, float] | None:
        """Return which other process of the member is expected, and for how long; None: none."""
        found = self._expected.get((group, member))
        if found is None or found.incarnation == incarnation:
            return None
        ends_at = self._clock() if found.waiting else found.seen_at
        left_s = ends_at + found.return_s - self._clock()
        return (found.incarnation, left_s) if left_s > 0 else None
