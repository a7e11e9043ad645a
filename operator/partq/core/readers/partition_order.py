"""In which order partitions are read after changes of the partition count.

A change moves slots from partitions to new ones, their successors. The messages of a slot in a
predecessor, all of which lie below its seal, come before those in the successor.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from partq.core.layout import Layout, Lineage
from partq.core.model import PartitionId
from partq.core.slot_table import size_of


@dataclass(frozen=True, slots=True)
class PartitionOrder:
    """Which partitions are read only behind parts of others."""

    awaited: Mapping[PartitionId, Mapping[PartitionId, int | None]] = field(default_factory=dict)
    """Partition → its predecessors, each with the offset up to which it is read before; None: that
    is not known yet, and nothing of the partition is read."""

    @classmethod
    def of(cls, lineage: Lineage, seals: Mapping[PartitionId, Mapping[int, int]]) -> Self:
        """Return the order that a layout gives.

        `seals`: of each partition, generation of a change → the end of the log when slots left it.
        """
        return cls(
            {
                partition: {
                    each: seals.get(each, {}).get(partition.generation) for each in predecessors
                }
                for partition, predecessors in lineage.items()
            }
        )

    def is_due(self, partition: PartitionId, reached: Mapping[PartitionId, int]) -> bool:
        """Whether a partition may be read by one who has read others up to `reached`.

        A partition that is missing there is not read any more: all of it was.
        """
        return all(
            each not in reached
            or (stop is not None and reached[each] >= stop and self.is_due(each, reached))
            for each, stop in self.awaited.get(partition, {}).items()
        )

    def due(
        self, partitions: Iterable[PartitionId], reached: Mapping[PartitionId, int]
    ) -> list[PartitionId]:
        """Return those of the partitions that may be read, in order."""
        return [each for each in sorted(partitions) if self.is_due(each, reached)]


def whole_lineage(layout: Layout) -> Lineage:
    """Return the partitions of which the layout still names all predecessors, with these.

    It forgets those that are settled: nobody has to read them before their successors. A reader of
    copies of old messages has to know all.
    """
    given_on: dict[PartitionId, int] = {}
    for givers in layout.lineage.values():
        for giver, slots in givers.items():
            given_on[giver] = given_on.get(giver, 0) + size_of(slots)
    return {
        partition: givers
        for partition, givers in layout.lineage.items()
        if sum(map(size_of, givers.values()))
        == size_of(layout.slots(partition)) + given_on.get(partition, 0)
    }
