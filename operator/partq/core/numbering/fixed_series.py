"""Numbers that stand for the same messages at each attempt, across changes of the partition count.

A producer counts the messages of each partition. Which these are depends on the slots of the
partition: so it begins at 0 again, with another series, wherever a change has taken slots away. An
earlier series is frozen: the partition stores nothing more of it.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.slot_table import SlotRanges, SlotTable
from partq.errors import InternalError


class FixedSeries(NamedTuple):
    """One series of numbers of a producer."""

    partition: PartitionId
    layout: int
    """The change that took slots away from the partition, or made it."""
    slots: SlotRanges
    """Those that the partition has had from then on; none: it is retired, and the series empty."""


class StoredSeries(NamedTuple):
    """An earlier series that has messages."""

    series: FixedSeries
    due: int
    """How many it has."""


def tables_of(layout: Layout) -> dict[int, SlotTable]:
    """Return the table of each generation, the oldest first.

    Raises:
        InternalError: the counts do not lead to the table in force.
    """
    counts = sorted(layout.counts.items()) or [(layout.generation, layout.partition_count)]
    (first, count), *later = counts
    tables = {first: SlotTable.first(count)}
    for generation, count in later:
        tables[generation] = tables[max(tables)].resized(count, generation).table
    if tables[max(tables)] != layout.table:
        raise InternalError(
            f"layout: the partition counts {dict(counts)} do not lead to the table of generation "
            f"{layout.generation}; use a client and brokers of one version"
        )
    return tables


def series_of(layout: Layout) -> tuple[FixedSeries, ...]:
    """Return the series of all partitions that there are, and were, by the change they begin with.

    Raises:
        InternalError: as `tables_of`.
    """
    found: list[FixedSeries] = []
    before: dict[PartitionId, SlotRanges] = {}
    for generation, table in tables_of(layout).items():
        slots = {partition: table.slots.get(partition, ()) for partition in {*before, *table.slots}}
        found += [
            FixedSeries(partition, generation, slots[partition])
            for partition in sorted(slots)
            if slots[partition] != before.get(partition)
        ]
        before = slots
    return tuple(found)


def last_series(series: Iterable[FixedSeries]) -> dict[PartitionId, FixedSeries]:
    """Return the series that each partition has now."""
    return {each.partition: each for each in series}


def earlier_series(series: Sequence[FixedSeries]) -> list[FixedSeries]:
    """Return the series that are frozen once all partitions are at their last one."""
    last = last_series(series)
    return [each for each in series if each is not last[each.partition]]


def first_layout(layout: Layout) -> Layout:
    """Return the layout that the queue has begun with: what is drawn by it never changes."""
    return Layout(table=next(iter(tables_of(layout).values())))
