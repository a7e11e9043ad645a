"""A part of a partition: an equal share of its slots, which one member of a group has."""

import re
from collections.abc import Collection, Iterable
from typing import Final, Self

from partq.core.model import PartitionId
from partq.core.slot_table import SlotRanges, divided, size_of
from partq.excerpts import excerpt

MAX_PARTS = 64
"""Most parts of a partition."""
DEFAULT_PARTS: Final = 16
PARTS = (1, 2, 4, 8, 16, 32, 64)
"""How many parts a partition may have."""
PARTS_TEXT = ", ".join(map(str, PARTS))
MAX_SEATS = 65_536
"""Most parts of all partitions of a queue: more than slots would leave some without any."""
_PART = re.compile(r"(.+)/(0|[1-9][0-9]?)")


class PartId(PartitionId):
    """One part of a partition; written `1.3/5`: part 5 of partition 1.3.

    The planner distributes parts over members as it does partitions, so a part is a `PartitionId`
    to it. Its name is no partition's: what takes one of the two refuses the other.
    """

    __slots__ = ()

    def __new__(cls, generation: int, index: int, part: int) -> Self:
        """Return the part; `part` counts from 0."""
        return tuple.__new__(cls, (generation, index, part))

    @property
    def part(self) -> int:
        """Number of the part in its partition, from 0."""
        number: int = tuple.__getitem__(self, 2)
        return number

    @property
    def partition(self) -> PartitionId:
        """The partition that it is a part of."""
        return PartitionId(self.generation, self.index)

    @classmethod
    def of(cls, partition: PartitionId, part: int) -> Self:
        """Return a part of a partition."""
        return cls(partition.generation, partition.index, part)

    def __str__(self) -> str:
        return f"{self.generation}.{self.index}/{self.part}"

    def __repr__(self) -> str:
        return f"PartId({self.generation}, {self.index}, {self.part})"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `1.3/5`, as `str` writes it.

        Raises:
            ValueError: not a partition and a number of at most two digits, joined by a slash.
        """
        found = _PART.fullmatch(text)
        if found is None:
            raise ValueError(f"part {excerpt(text)!r}: expected PARTITION/PART, such as 1.3/5")
        return cls.of(PartitionId.parse(found[1]), int(found[2]))


def parse_seat(text: str) -> PartitionId:
    """Read the name of a partition, or of a part of one.

    Raises:
        ValueError: neither of them.
    """
    return PartId.parse(text) if "/" in text else PartitionId.parse(text)


def partition_of(seat: PartitionId) -> PartitionId:
    """Return the partition of a part; a partition is its own."""
    return seat.partition if isinstance(seat, PartId) else seat


def parts_of(partitions: Iterable[PartitionId], parts: int) -> list[PartitionId]:
    """Return the parts of the partitions, in their order."""
    return [PartId.of(partition, part) for partition in partitions for part in range(parts)]


def slots_of(ranges: SlotRanges, part: int, parts: int) -> SlotRanges:
    """Return the slots of one of the `parts` equal parts into which slots are cut, in order.

    They are those that the partition was made with (`Layout.first_slots`), so that a slot never
    gets into another part.

    Sizes differ by at most one. Where there are fewer slots than parts, some parts have none.
    """
    size = size_of(ranges)
    first, end = part * size // parts, (part + 1) * size // parts
    _, rest = divided(ranges, first)
    return divided(rest, end - first)[0]


def number_ranges(indexes: Collection[int]) -> str:
    """Return numbers as ranges, such as `0-3,7`."""
    parts: list[str] = []
    start = end = None
    for index in [*sorted(indexes), None]:
        if end is not None and index == end + 1:
            end = index
            continue
        if start is not None:
            parts.append(str(start) if start == end else f"{start}-{end}")
        start = end = index
    return ",".join(parts)
