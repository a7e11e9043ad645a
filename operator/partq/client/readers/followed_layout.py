"""Which partitions a reader without a consumer group reads, and which of them wait for others."""

from collections.abc import Mapping

from partq.client.log_reader import LogReader
from partq.client.transport.positions import LogPosition
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.readers.partition_order import PartitionOrder

LOOK_S = 1.0
"""How often a reader looks for partitions that a change of the partition count has made."""


class FollowedLayout:
    """The layout of a queue, and what a reader waits for by it.

    A change of the partition count moves slots to new partitions. What these have comes behind what
    the earlier partitions have of the slots.
    """

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._order = PartitionOrder()
        self._seals: dict[PartitionId, Mapping[int, int]] = {}
        self._ends: dict[PartitionId, int] = {}
        """Of the logs of partitions that have no slots any more."""
        self.layout: Layout | None = None

    async def read(self) -> Layout:
        """Read the layout, and where the logs of partitions ended when slots left them.

        Raises:
            PartqError: as `LogReader.positions`; what was known stays.
        """
        layout = await self._log.layout()
        if self.layout is not None and layout.generation < self.layout.generation:
            return self.layout  # of a broker that has not read the last change
        present = set(layout.partitions())
        awaited = {
            (partition, successor.generation)
            for successor, givers in layout.lineage.items()
            for partition in givers
            if partition in present
        }
        asked = {p for p, number in awaited if number not in self._seals.get(p, {})}
        asked |= layout.retired.keys() - self._ends.keys()
        if asked:
            found = await self._log.positions("earliest", sorted(asked))
            self._seals |= {partition: each.seals for partition, each in found.items()}
            self._ends |= {
                partition: each.end
                for partition, each in found.items()
                if partition in layout.retired
                and all(number in each.seals for p, number in awaited if p == partition)
            }
        self._order = PartitionOrder.of(layout.lineage, self._seals)
        self.layout = layout
        return layout

    def is_due(self, partition: PartitionId, places: Mapping[PartitionId, LogPosition]) -> bool:
        """Whether a partition may be read by a reader that is at these places."""
        if partition not in self._order.awaited:
            return True
        return self._order.is_due(partition, {each: at.offset for each, at in places.items()})

    def has_read(self, place: LogPosition) -> bool:
        """Whether a reader at this place has read all of a partition that has no slots."""
        end = self._ends.get(place.partition)
        return end is not None and place.offset >= end
