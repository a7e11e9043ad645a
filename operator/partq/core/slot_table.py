"""Which slots each partition takes, and which of them move when the partition count changes.

A change moves as few slots as an even distribution allows. No partition ever gets slots: a new one
of a higher generation takes them, so the generation of a key's partition only grows.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, Self

from partq.core.hashing import slot_range
from partq.core.model import SLOT_COUNT, PartitionId
from partq.errors import SettingsError

MAX_PARTITION_COUNT = SLOT_COUNT
"""With more, some partitions would own no slot and so never see a key."""
MAX_PARTITIONS = 4096
"""The most that anybody can ask for."""
SlotRanges = tuple[range, ...]
"""Slots in ascending order. Ranges are not empty, and do not touch."""


@dataclass(frozen=True, slots=True)
class SlotTable:
    """The partitions that take messages, and their slots: each slot has one partition."""

    slots: Mapping[PartitionId, SlotRanges]
    """One partition for each index from 0. The sizes of two of them differ by at most one."""
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _owners: tuple[PartitionId, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        owned = sorted(
            (each.start, each.stop, partition)
            for partition, ranges in self.slots.items()
            for each in ranges
        )
        object.__setattr__(self, "_starts", tuple(start for start, _, _ in owned))
        object.__setattr__(self, "_owners", tuple(partition for _, _, partition in owned))
        if problem := self._problem([(start, stop) for start, stop, _ in owned]):
            raise SettingsError(f"table of slots: {problem}")

    def _problem(self, owned: list[tuple[int, int]]) -> str | None:
        """Return what is wrong with the table, if anything is."""
        indexes = sorted(partition.index for partition in self.slots)
        if not indexes or indexes != list(range(len(indexes))):
            return f"got partitions of the indexes {indexes[:20]}, expected each from 0 on once"
        reached = 0
        for start, stop in owned:
            if start != reached or stop <= start:
                return f"got the range {start} to {stop} behind slot {reached}, expected no gap"
            reached = stop
        if reached != SLOT_COUNT:
            return f"got slots up to {reached}, expected all {SLOT_COUNT}"
        sizes = {size_of(ranges) for ranges in self.slots.values()}
        if max(sizes) - min(sizes) > 1:
            return f"got {min(sizes)} to {max(sizes)} slots per partition, expected an even spread"
        return None

    @classmethod
    def first(cls, partition_count: int) -> Self:
        """Return the table of a queue whose partition count has never changed.

        Raises:
            SettingsError: not 1 to 65,536 partitions.
        """
        check_count(partition_count)
        return cls(
            {
                PartitionId(1, index): (slot_range(index, partition_count),)
                for index in range(partition_count)
            }
        )

    @property
    def partition_count(self) -> int:
        """How many partitions take messages."""
        return len(self.slots)

    @property
    def generation(self) -> int:
        """The highest generation of a partition that takes messages."""
        return max(partition.generation for partition in self.slots)

    def partition_of(self, slot: int) -> PartitionId:
        """Return the partition that takes messages of a slot (0 to 65,535)."""
        return self._owners[bisect_right(self._starts, slot) - 1]

    def resized(self, partition_count: int, generation: int) -> "SlotChange":
        """Return the change to another partition count; with the same count nothing moves.

        `generation` is that of the new partitions, and higher than all before it.

        What it returns for a table and a count never changes again: which rows a producer with
        fixed numbers has stored is found by the tables that the queue's earlier counts led to
        (`core/numbering/fixed_series.py`), in clients and brokers of different versions.

        Raises:
            SettingsError: not 1 to 65,536 partitions, or the generation is not higher.
        """
        check_count(partition_count)
        if generation <= self.generation:
            raise SettingsError(
                f"change to {partition_count} partitions: got generation {generation}, "
                f"expected one above {self.generation}"
            )
        present = {partition.index: partition for partition in self.slots}
        quotas = self._quotas(partition_count, present)
        left: dict[int, SlotRanges] = {}
        given: list[GivenRange] = []
        for index, partition in present.items():
            keeps, gives = divided(self.slots[partition], quotas.get(index, 0))
            left[index] = keeps
            given += [GivenRange(each.start, each.stop, partition) for each in gives]

        given.sort(reverse=True)  # the lowest slots leave first, from the end of the list
        slots: dict[PartitionId, SlotRanges] = {}
        lineage: dict[PartitionId, dict[PartitionId, SlotRanges]] = {}
        for index in range(partition_count):
            kept = left.get(index, ())
            received = cut_off(given, quotas[index] - size_of(kept))
            if not received:
                slots[present[index]] = kept
                continue
            successor = PartitionId(generation, index)
            received += [GivenRange(each.start, each.stop, present[index]) for each in kept]
            by_giver: dict[PartitionId, list[range]] = {}
            for start, stop, giver in received:
                by_giver.setdefault(giver, []).append(range(start, stop))
            slots[successor] = joined(chain.from_iterable(by_giver.values()))
            lineage[successor] = {giver: joined(by_giver[giver]) for giver in sorted(by_giver)}
        return SlotChange(SlotTable(slots), lineage)

    def _quotas(self, partition_count: int, present: Mapping[int, PartitionId]) -> dict[int, int]:
        """Return how many slots each index gets.

        The largest partitions get the odd extra slot: they would have to give one away otherwise.
        """
        share, extra = divmod(SLOT_COUNT, partition_count)
        sizes = {index: size_of(self.slots[partition]) for index, partition in present.items()}
        largest_first = sorted(range(partition_count), key=lambda i: (-sizes.get(i, 0), i))
        return {index: share + (rank < extra) for rank, index in enumerate(largest_first)}


@dataclass(frozen=True, slots=True)
class SlotChange:
    """A change of a table: the table after it, and where its new partitions have slots from."""

    table: SlotTable
    lineage: Mapping[PartitionId, Mapping[PartitionId, SlotRanges]]
    """New partition → its predecessors, each with the slots that go from it to the new one. When
    the count falls, a new partition that continues an index has its earlier self among them."""

    @property
    def sealed(self) -> Mapping[PartitionId, SlotRanges]:
        """Partitions that lose slots, each with the slots that stay in it, in order."""
        losing = sorted({giver for givers in self.lineage.values() for giver in givers})
        return {partition: self.table.slots.get(partition, ()) for partition in losing}

    @property
    def moved_count(self) -> int:
        """How many slots get another index.

        A slot that only gets another generation is not counted: its keys can stay with the member
        that has them.
        """
        return sum(
            size_of(ranges)
            for successor, givers in self.lineage.items()
            for giver, ranges in givers.items()
            if giver.index != successor.index
        )


class GivenRange(NamedTuple):
    """Slots that leave a partition."""

    start: int
    stop: int
    giver: PartitionId


def tables_of(counts: Mapping[int, int]) -> dict[int, SlotTable]:
    """Return the table of each generation by its partition count, the oldest first."""
    (first, count), *later = sorted(counts.items())
    table = SlotTable.first(count)
    tables = {first: table}
    for generation, count in later:
        tables[generation] = table = table.resized(count, generation).table
    return tables


@lru_cache(maxsize=4)
def slots_at_first(counts: tuple[tuple[int, int], ...]) -> Mapping[PartitionId, SlotRanges]:
    """Return the slots that each partition was made with: later changes only take some away.

    `counts`: the generation and partition count of each table, the oldest first.
    """
    found: dict[PartitionId, SlotRanges] = {}
    for table in tables_of(dict(counts)).values():
        found = {**table.slots, **found}
    return found


def check_count(partition_count: int) -> None:
    """Check a partition count.

    Raises:
        SettingsError: not 1 to 65,536.
    """
    if not 1 <= partition_count <= MAX_PARTITION_COUNT:
        raise SettingsError(
            f"table of slots: got {partition_count} partitions, expected 1 to {MAX_PARTITION_COUNT}"
        )


def size_of(ranges: Iterable[range]) -> int:
    """Return how many slots the ranges have."""
    return sum(map(len, ranges))


def slot_at(ranges: SlotRanges, number: int) -> int:
    """Return a slot by its number within the ranges, from 0."""
    for each in ranges:
        if number < len(each):
            return each[number]
        number -= len(each)
    raise IndexError("the ranges have fewer slots")


def divided(ranges: SlotRanges, count: int) -> tuple[SlotRanges, SlotRanges]:
    """Return the first `count` slots of the ranges, or all if they are fewer; and the others."""
    kept: list[range] = []
    others: list[range] = []
    for each in ranges:
        kept.append(each[:count])
        others.append(each[count:])
        count = max(0, count - len(each))
    return tuple(filter(len, kept)), tuple(filter(len, others))


def without(ranges: SlotRanges, taken: Iterable[range]) -> SlotRanges:
    """Return the ranges without the slots that are taken."""
    left = list(ranges)
    for gap in taken:
        parts = [
            (
                range(each.start, min(each.stop, gap.start)),
                range(max(each.start, gap.stop), each.stop),
            )
            for each in left
        ]
        left = [part for pair in parts for part in pair if len(part)]
    return tuple(left)


def cut_off(given: list[GivenRange], count: int) -> list[GivenRange]:
    """Remove `count` slots from the end of a list, and return them."""
    removed: list[GivenRange] = []
    while count > 0:
        start, stop, giver = given.pop()
        if stop - start > count:
            given.append(GivenRange(start + count, stop, giver))
            stop = start + count
        removed.append(GivenRange(start, stop, giver))
        count -= stop - start
    return removed


def joined(ranges: Iterable[range]) -> SlotRanges:
    """Return the ranges in order; those that touch become one."""
    found: list[range] = []
    for each in sorted(ranges, key=attrgetter("start")):
        if found and found[-1].stop == each.start:
            found[-1] = range(found[-1].start, each.stop)
        else:
            found.append(each)
    return tuple(found)
