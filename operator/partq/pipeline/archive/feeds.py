"""What an archive takes in: the messages of a queue, and its audit record."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from partq.client.log_reader import LogPosition, LogReader, Where
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.readers.partition_order import whole_lineage
from partq.pipeline.access import QueueAccess
from partq.pipeline.manifest import ArchivePosition, Predecessor, Stream
from partq.pipeline.planning import LogExtent, Span


class Feed(Protocol):
    """One stream of a queue, partition by partition; what it raises is what its client raises."""

    stream: Stream
    access: QueueAccess

    def beginnings(self) -> dict[str, ArchivePosition]:
        """Return where an archive begins that has nothing of a partition yet."""

    def extents(self) -> dict[PartitionId, LogExtent]:
        """Return what the partitions hold."""

    def stops(self, spans: Mapping[PartitionId, Span]) -> dict[PartitionId, ArchivePosition]:
        """Return how far an archive is once it has the spans."""

    def acknowledge(self, positions: Mapping[str, ArchivePosition]) -> None:
        """Tell the queue that all below is durable elsewhere; a repeat changes nothing."""


class MessageFeed:
    """The messages, from a group's cursors on. The group is the archive's alone."""

    stream: Stream = "messages"

    def __init__(self, access: QueueAccess, group: str) -> None:
        self.access = access
        self.group = group

    def beginnings(self) -> dict[str, ArchivePosition]:
        """Return the cursors of the group."""
        found = self._positions({"group": self.group})
        return {
            str(partition): ArchivePosition(at.offset, at.append_broker_epoch)
            for partition, at in found.items()
        }

    def extents(self) -> dict[PartitionId, LogExtent]:
        """Return which offsets are stored."""

        async def ask() -> dict[PartitionId, LogExtent]:
            async with LogReader(**self.access.connection().arguments()) as reader:
                layout, found = await reader.ends()
            whole = whole_lineage(layout)
            return {
                partition: LogExtent(
                    at.first, at.end, _predecessors(partition, layout, found), partition in whole
                )
                for partition, at in found.items()
            }

        return asyncio.run(ask())

    def stops(self, spans: Mapping[PartitionId, Span]) -> dict[PartitionId, ArchivePosition]:
        """Return positions with the broker epoch of the message below, which tells a rollback."""
        found = self._positions({"offsets": {each: span.stop for each, span in spans.items()}})
        return {
            partition: ArchivePosition(at.offset, at.append_broker_epoch)
            for partition, at in found.items()
        }

    def waiting(self) -> int:
        """Return how many messages are stored that the group is not done with."""
        cursors = self.beginnings()
        return sum(
            extent.end - max(extent.first, min(extent.end, cursors[str(partition)].offset))
            for partition, extent in self.extents().items()
            if str(partition) in cursors
        )

    def acknowledge(self, positions: Mapping[str, ArchivePosition]) -> None:
        """Move the group's cursors; a partition that was removed has none any more."""
        wanted = {
            (partition := PartitionId.parse(name)): LogPosition(
                partition, at.append_broker_epoch, at.offset
            )
            for name, at in positions.items()
        }

        async def commit() -> None:
            async with LogReader(**self.access.connection().arguments()) as reader:
                layout = await reader.layout()
                living = {each: at for each, at in wanted.items() if not layout.is_past(each)}
                await reader.commit(self.group, living)

        if wanted:
            asyncio.run(commit())

    def _positions(self, where: Where) -> dict[PartitionId, LogPosition]:
        async def ask() -> dict[PartitionId, LogPosition]:
            async with LogReader(**self.access.connection().arguments()) as reader:
                return await reader.positions(where)

        return asyncio.run(ask())


def _predecessors(
    partition: PartitionId, layout: Layout, found: Mapping[PartitionId, LogPosition]
) -> dict[PartitionId, Predecessor]:
    return {
        each: Predecessor(
            tuple((slots.start, slots.stop) for slots in ranges),
            found[each].seals.get(partition.generation),
        )
        for each, ranges in layout.lineage.get(partition, {}).items()
    }
