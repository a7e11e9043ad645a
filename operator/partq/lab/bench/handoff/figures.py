"""What the consumers' journals say of moves: gaps, and the flow of those that did not move.

Every instant is in nanoseconds on the clock of the journals. All of it is a function of rows.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from partq.core.samples.percentile import percentile
from partq.lab.verdict.journal_rows import DeliveredRow
from partq.lab.verdict.judge import token_of

MARGIN_NS: Final = 500_000_000
"""How long before and after its moves a change counts as under way."""


@dataclass(frozen=True, slots=True)
class DeliveryGap:
    """A partition without deliveries, because it moved."""

    partition: str
    before_ns: int
    """The last message at the old owner."""
    after_ns: int
    """The first one at the new owner."""

    @property
    def ms(self) -> float:
        """How long it stood still; the distance of two messages is in it."""
        return (self.after_ns - self.before_ns) / 1e6


def gaps(rows: Iterable[DeliveredRow], start_ns: int, stop_ns: int) -> list[DeliveryGap]:
    """Return the gap of each move to another member that ended in a time.

    `rows` must be in order. What a former owner writes down late, under an older token, is not
    counted.
    """
    last: dict[str, DeliveredRow] = {}
    found = []
    for row in rows:
        if row.at_ns >= stop_ns:
            break
        before = last.get(row.partition)
        if before is not None and token_of(row) < token_of(before):
            continue
        last[row.partition] = row
        if before is not None and row.at_ns >= start_ns and row.member != before.member:
            found.append(DeliveryGap(row.partition, before.at_ns, row.at_ns))
    return found


def highest_tokens(rows: Iterable[DeliveredRow]) -> dict[str, tuple[int, int]]:
    """Return the newest token under which each partition came, in whatever order the rows are."""
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        found[row.partition] = max(found.get(row.partition, (0, 0)), token_of(row))
    return found


def first_elsewhere(
    before: Mapping[str, tuple[int, int]], rows: Iterable[DeliveredRow]
) -> dict[str, int]:
    """Return when each partition first came under a newer token than before, if it did.

    `rows` must be in order.
    """
    found: dict[str, int] = {}
    for row in rows:
        if row.partition in before and token_of(row) > before[row.partition]:
            found.setdefault(row.partition, row.at_ns)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyDelivery:
    """How messages came in partitions that did not move."""

    per_s: float
    """Messages per partition and second."""
    silences_ms: tuple[float, ...]
    """The times between two messages of a partition."""


def flow(
    rows: Iterable[DeliveredRow], windows: Sequence[tuple[int, int, frozenset[str]]]
) -> SteadyDelivery:
    """Return how messages came in windows: from, to, and which partitions count.

    `rows` must be in order, and the windows must not overlap.
    """
    at_ns: defaultdict[str, list[int]] = defaultdict(list)
    for row in rows:
        at_ns[row.partition].append(row.at_ns)
    count = 0
    silences: list[float] = []
    for start_ns, stop_ns, partitions in windows:
        for partition in partitions:
            inside = [each for each in at_ns[partition] if start_ns <= each < stop_ns]
            count += len(inside)
            # One that began before the window and ends in it is a silence of the window, too.
            earlier = [each for each in at_ns[partition] if each < start_ns][-1:]
            silences += [(after - before) / 1e6 for before, after in pairwise(earlier + inside)]
    partition_s = sum((stop - start) / 1e9 * len(ids) for start, stop, ids in windows)
    return SteadyDelivery(
        per_s=count / partition_s if partition_s else 0.0, silences_ms=tuple(silences)
    )


def summary(values_ms: Sequence[float]) -> dict[str, float | int]:
    """Return count, median, 99th percentile and maximum, rounded to a tenth of a millisecond."""
    return {
        "count": len(values_ms),
        "p50": round(percentile(values_ms, 50) or 0.0, 1),
        "p99": round(percentile(values_ms, 99) or 0.0, 1),
        "max": round(max(values_ms, default=0.0), 1),
    }
