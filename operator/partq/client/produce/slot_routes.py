"""Which partition a producer sends the messages of each slot to, also while slots move."""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from partq.core.model import PartitionId
from partq.core.slot_table import SlotRanges, SlotTable, joined

_Piece = tuple[int, int, PartitionId]
"""Slots that follow each other, from the first to before the second number."""


@dataclass(frozen=True, slots=True)
class SlotRoutes:
    """The partition of each slot.

    A change of the partition count moves slots partition by partition: a producer sends to the
    earlier one until it knows what became of all that it has sent there. So these are not always
    the routes of one layout.
    """

    ranges: Mapping[PartitionId, SlotRanges]
    """Each partition that gets messages, with its slots."""
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _owners: tuple[PartitionId, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pieces = _pieces(self.ranges)
        object.__setattr__(self, "_starts", tuple(start for start, _, _ in pieces))
        object.__setattr__(self, "_owners", tuple(partition for _, _, partition in pieces))

    @classmethod
    def of(cls, table: SlotTable) -> Self:
        """Return the routes of a table."""
        return cls(table.slots)

    @property
    def current_partitions(self) -> tuple[PartitionId, ...]:
        """The partitions that get messages, by index."""
        return tuple(sorted(self.ranges, key=lambda each: (each.index, each.generation)))

    def slots(self, partition: PartitionId) -> SlotRanges:
        """Return the slots whose messages a partition gets; none: it gets no message."""
        return self.ranges.get(partition, ())

    def partition_of(self, slot: int) -> PartitionId:
        """Return the partition that messages of a slot (0 to 65,535) are sent to."""
        return self._owners[bisect_right(self._starts, slot) - 1]

    def switched(self, partitions: Collection[PartitionId], table: SlotTable) -> "SlotRoutes":
        """Return the routes after the slots of some partitions have gone where a table says."""
        pieces = _pieces(table.slots)
        starts = [start for start, _, _ in pieces]
        found: dict[PartitionId, list[range]] = {}
        for start, stop, partition in _pieces(self.ranges):
            if partition not in partitions:
                found.setdefault(partition, []).append(range(start, stop))
                continue
            for first, end, owner in _overlapping(pieces, starts, start, stop):
                found.setdefault(owner, []).append(range(max(start, first), min(stop, end)))
        return SlotRoutes({partition: joined(found[partition]) for partition in sorted(found)})


def _pieces(ranges: Mapping[PartitionId, SlotRanges]) -> list[_Piece]:
    return sorted(
        (each.start, each.stop, partition) for partition, owned in ranges.items() for each in owned
    )


def _overlapping(
    pieces: list[_Piece], starts: list[int], start: int, stop: int
) -> Iterator[_Piece]:
    at = bisect_right(starts, start) - 1
    while at < len(pieces) and pieces[at][0] < stop:
        yield pieces[at]
        at += 1
