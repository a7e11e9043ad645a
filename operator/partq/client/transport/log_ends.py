"""The ends of all logs of a queue, and in which order partitions are read up to them."""

from typing import NamedTuple

from partq.client.transport.positions import LogPosition
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.readers.partition_order import PartitionOrder


class LogEnds(NamedTuple):
    """The layout of a queue, and the ends of all logs after it was read."""

    layout: Layout
    positions: dict[PartitionId, LogPosition]

    def order(self) -> PartitionOrder:
        """Return behind what of their predecessors partitions are to be read."""
        seals = {each: at.seals for each, at in self.positions.items()}
        return PartitionOrder.of(self.layout.lineage, seals)

    def is_final(self, partition: PartitionId) -> bool:
        """Whether a log never grows again: its partition has lost all slots, and is sealed."""
        losses = [
            each.generation for each, givers in self.layout.lineage.items() if partition in givers
        ]
        # Where the lineage names it no more, it was sealed, and all groups have passed that.
        known = self.positions[partition].seals
        return partition in self.layout.retired and all(each in known for each in losses)
