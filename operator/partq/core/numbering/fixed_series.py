"""Numbers that stand for the same messages at each attempt, across changes of the partition count.

A producer counts the messages of each partition. Which these are depends on the slots of the
partition: so it begins at 0 again, with another series, wherever a change has taken slots away. An
earlier series is frozen: the partition stores nothing more of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from partq.core.layout import MAX_COUNTS, Layout
from partq.core.model import PartitionId
from partq.core.slot_table import SlotRanges, SlotTable, tables_of
from partq.errors import ConflictError, InternalError

KEPT = 4
"""Queues whose series a process keeps."""


class FixedSeries(NamedTuple):
    """One series of numbers of a producer."""

    partition: PartitionId
    generation: int
    """Of the change that took slots away from the partition, or made it."""
    slots: SlotRanges
    """Those that the partition has had from then on; none: it is retired, and the series empty."""


class StoredSeries(NamedTuple):
    """An earlier series that has messages."""

    series: FixedSeries
    due: int
    """How many it has."""


def series_of(layout: Layout) -> tuple[FixedSeries, ...]:
    """Return the series of all partitions that there are, and were, by the change they begin with.

    For counts that the last calls did not have, each change is made once more. With 4,096
    partitions that takes about 30 ms of CPU each, so an event loop leaves it to a thread.

    Raises:
        ConflictError: the layout does not name all counts any more.
        InternalError: the counts do not lead to the table in force.
    """
    counts = _counts_of(layout)
    if len(counts) >= MAX_COUNTS:
        raise ConflictError(
            f"layout: the partition count has changed {MAX_COUNTS - 1} times or more, and the "
            "layout has forgotten counts, so nobody knows what fixed numbers stand for; publish "
            "without fixed numbers (`producer_id`, `exactlyOnce`), or to another queue"
        )
    series, table = _replayed(tuple(sorted(counts.items())))
    if table != layout.table:
        raise InternalError(
            f"layout: the {len(counts)} partition counts that it names do not lead to the table "
            f"of generation {layout.generation}, so nobody knows what fixed numbers stand for; use "
            "a client and brokers of one version, or another queue if the store has lost changes"
        )
    return series


def _counts_of(layout: Layout) -> Mapping[int, int]:
    return layout.counts or {layout.generation: layout.partition_count}


@lru_cache(maxsize=KEPT)
def _replayed(counts: tuple[tuple[int, int], ...]) -> tuple[tuple[FixedSeries, ...], SlotTable]:
    """Return the series that partition counts have led to, and the last table."""
    found: list[FixedSeries] = []
    before: dict[PartitionId, SlotRanges] = {}
    tables = tables_of(dict(counts))
    for generation, table in tables.items():
        slots = {partition: table.slots.get(partition, ()) for partition in {*before, *table.slots}}
        found += [
            FixedSeries(partition, generation, slots[partition])
            for partition in sorted(slots)
            if slots[partition] != before.get(partition)
        ]
        before = slots
    return tuple(found), tables[counts[-1][0]]


def last_series(series: Iterable[FixedSeries]) -> dict[PartitionId, FixedSeries]:
    """Return the series that each partition has now."""
    return {each.partition: each for each in series}


def earlier_series(series: Sequence[FixedSeries]) -> list[FixedSeries]:
    """Return the series that are frozen once all partitions are at their last one."""
    last = last_series(series)
    return [each for each in series if each is not last[each.partition]]


def first_layout(layout: Layout) -> Layout:
    """Return the layout that the queue has begun with: what is drawn by it never changes."""
    counts = _counts_of(layout)
    return Layout.first(counts[min(counts)])
