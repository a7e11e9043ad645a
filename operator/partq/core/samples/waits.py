"""How long messages have waited, counted in ranges: few numbers, which brokers can add up.

No I/O.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

FIRST_BOUND_MS = 0.5
"""The longest wait of the first range; the bound of each further one is the root of 2 larger."""
RANGES = 48
"""Ranges of waits; the last one has all above 70 minutes."""
_BOUNDS_MS = [FIRST_BOUND_MS * 2 ** (at / 2) for at in range(RANGES - 1)]


class WaitCounts:
    """Counts waits in ranges: adding one costs the same however many there are."""

    def __init__(self) -> None:
        self._counts = [0] * RANGES

    def add(self, wait_ms: float, times: int = 1) -> None:
        """Count a wait in milliseconds, `times` over; one below 0 counts as 0."""
        self._counts[bisect_left(_BOUNDS_MS, wait_ms)] += times

    def take(self) -> tuple[int, ...]:
        """Return the counts since the last call, without empty ranges at the end; begin again."""
        counts, self._counts = self._counts, [0] * RANGES
        return trim(counts)


def trim(counts: Sequence[int]) -> tuple[int, ...]:
    """Return counts without the zeros at their end."""
    stop = len(counts)
    while stop and not counts[stop - 1]:
        stop -= 1
    return tuple(counts[:stop])


def add_counts(every: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the sums of counts, range by range; ranges that no broker has are left out."""
    length = min(RANGES, max(map(len, every), default=0))
    return tuple(sum(each[at] for each in every if at < len(each)) for at in range(length))


def quantile_ms(counts: Sequence[int], share: float) -> float | None:
    """Return a wait in ms that the `share` (0 to 1) of all did not exceed; None: none is counted.

    It is the bound of a range, so up to the root of 2 too large; of the last range its lower bound.
    """
    total = sum(counts)
    if not total:
        return None
    at = next(at for at, seen in enumerate(accumulate(counts)) if seen >= share * total)
    return round(_BOUNDS_MS[min(at, RANGES - 2)], 3)
