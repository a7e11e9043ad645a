"""How long messages have waited, counted in ranges: few numbers, which brokers can add up.

No I/O. A *span* is what is kept and sent of counts, without the empty ranges at both ends: the
number of its first range, and the counts from there on. The span of no counts is empty.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from operator import add

FIRST_BOUND_MS = 0.5
"""The longest wait of the first range."""
PER_DOUBLING = 8
"""So many ranges until waits are twice as long: a range ends 9 % above its begin."""
RANGES = 23 * PER_DOUBLING + 2
"""Ranges of waits; the last one has all above 70 minutes."""
_BOUNDS_MS = [FIRST_BOUND_MS * 2 ** (at / PER_DOUBLING) for at in range(RANGES - 1)]

Span = Sequence[int]


class WaitCounts:
    """Counts waits in ranges: adding one costs the same however many there are."""

    def __init__(self) -> None:
        self._counts = [0] * RANGES

    def add(self, wait_ms: float, times: int = 1) -> None:
        """Count a wait in milliseconds, `times` over; one below 0 counts as 0."""
        self._counts[bisect_left(_BOUNDS_MS, wait_ms)] += times

    def take(self) -> Span:
        """Return the span of the counts since the last call; begin again."""
        counts, self._counts = self._counts, [0] * RANGES
        # Not a list: ten minutes of it are kept for every group, with eight bytes for a count.
        return array("Q", span_of(counts))


def span_of(counts: Sequence[int]) -> list[int]:
    """Return the span of counts of all ranges."""
    start, stop = 0, len(counts)
    while stop and not counts[stop - 1]:
        stop -= 1
    while start < stop and not counts[start]:
        start += 1
    return [start, *counts[start:stop]] if stop else []


def dense(span: Span) -> list[int]:
    """Return the counts of all ranges up to the last one that has some."""
    return [0] * span[0] + list(span[1:]) if span else []


def add_spans(spans: Sequence[Span]) -> Span:
    """Return the sum of spans; what lies in no range is left out."""
    some = [span for span in spans if len(span) > 1 and 0 <= span[0] < RANGES]
    if len(some) < 2:
        return some[0] if some else ()
    start = min(span[0] for span in some)
    stop = min(RANGES, max(span[0] + len(span) - 1 for span in some))
    sums = [0] * (stop - start)
    for span in some:
        counts = span[1 : stop - span[0] + 1]
        part = slice(span[0] - start, span[0] - start + len(counts))
        sums[part] = map(add, sums[part], counts)
    return [start, *sums]


def quantiles_ms(span: Span, shares: Sequence[float]) -> list[float | None]:
    """Return for each share (0 to 1) a wait in ms that it did not exceed; None: none is counted.

    It is the bound of a range, so up to 9 % too large; of the last range its lower bound.
    """
    seen = list(accumulate(span[1:]))
    total = seen[-1] if seen else 0
    if total <= 0:
        return [None] * len(shares)
    ranges = (span[0] + bisect_left(seen, share * total) for share in shares)
    return [round(_BOUNDS_MS[min(at, RANGES - 2)], 3) for at in ranges]
