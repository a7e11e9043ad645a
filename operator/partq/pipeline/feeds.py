"""What an archive takes in: the messages of a queue, and its audit record."""

import asyncio
import json
from collections.abc import Mapping
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody names it

from partq.client.log_reader import LogPosition, LogReader, Where
from partq.core.model import PartitionId
from partq.pipeline.access import QueueAccess
from partq.pipeline.manifest import ArchivePosition, Stream
from partq.pipeline.planning import LogExtent, Span


class Feed(Protocol):
    """One stream of a queue, partition by partition; what it raises is what its client raises."""

    stream: Stream

    def beginnings(self) -> dict[str, ArchivePosition]:
        """Return where an archive begins that has nothing of a partition yet."""

    def extents(self) -> dict[PartitionId, LogExtent]:
        """Return what the partitions hold."""

    def stops(self, spans: Mapping[PartitionId, Span]) -> dict[PartitionId, ArchivePosition]:
        """Return how far an archive is once it has the spans."""

    def rows(
        self,
        spark: SparkSession,
        starts: Mapping[str, ArchivePosition],
        stops: Mapping[str, ArchivePosition],
    ) -> DataFrame:
        """Return what lies between two places; reading it fails if it is not all there.

        Both name every partition that is known; one without a stop, or that begins where it stops,
        is left out.
        """

    def acknowledge(self, positions: Mapping[str, ArchivePosition]) -> None:
        """Tell the queue that all below is durable elsewhere; a repeat changes nothing."""


class MessageFeed:
    """The messages, from a group's cursors on. The group is the archive's alone."""

    stream: Stream = "messages"

    def __init__(self, access: QueueAccess, group: str) -> None:
        self._access = access
        self._group = group

    def beginnings(self) -> dict[str, ArchivePosition]:
        """Return the cursors of the group."""
        found = self._positions({"group": self._group})
        return {
            str(partition): ArchivePosition(at.offset, at.append_broker_epoch)
            for partition, at in found.items()
        }

    def extents(self) -> dict[PartitionId, LogExtent]:
        """Return which offsets are stored."""
        found = self._positions("latest")
        return {partition: LogExtent(at.first, at.end) for partition, at in found.items()}

    def stops(self, spans: Mapping[PartitionId, Span]) -> dict[PartitionId, ArchivePosition]:
        """Return positions with the broker epoch of the message below, which tells a rollback."""
        found = self._positions({"offsets": {each: span.stop for each, span in spans.items()}})
        return {
            partition: ArchivePosition(at.offset, at.append_broker_epoch)
            for partition, at in found.items()
        }

    def rows(
        self,
        spark: SparkSession,
        starts: Mapping[str, ArchivePosition],
        stops: Mapping[str, ArchivePosition],
    ) -> DataFrame:
        """Return the messages; both ends are checked to be those that were planned."""
        # What the group has not done with is kept for it. Elsewhere the source keeps the log for
        # ten minutes, so nothing would be trimmed for as long. That the log is still the one that
        # `starts` speak of was checked when the cursors moved there.
        cursors = {name: at.offset for name, at in self.beginnings().items()}
        is_there = cursors == {name: at.offset for name, at in starts.items()}
        where = "group" if is_there else _places(starts)
        wanted = [each for each, stop in stops.items() if stop.offset > starts[each].offset]
        return (
            spark.read.format("partq")
            .options(**self._access.options(), group=self._group)
            .option("startingOffsets", where)
            .option("endingOffsets", _places({**starts, **stops}))
            .option("includeHeaders", "true")
            .load()
            .where(F.col("partition").isin(wanted))
        )

    def acknowledge(self, positions: Mapping[str, ArchivePosition]) -> None:
        """Move the group's cursors."""
        wanted = {
            (partition := PartitionId.parse(name)): LogPosition(
                partition, at.append_broker_epoch, at.offset
            )
            for name, at in positions.items()
        }

        async def commit() -> None:
            async with LogReader(**self._access.connection().arguments()) as reader:
                await reader.commit(self._group, wanted)

        if wanted:
            asyncio.run(commit())

    def _positions(self, where: Where) -> dict[PartitionId, LogPosition]:
        async def ask() -> dict[PartitionId, LogPosition]:
            async with LogReader(**self._access.connection().arguments()) as reader:
                return await reader.positions(where)

        return asyncio.run(ask())


def _places(positions: Mapping[str, ArchivePosition]) -> str:
    return json.dumps(
        {
            partition: {"offset": at.offset, "broker_epoch": at.append_broker_epoch}
            for partition, at in positions.items()
        }
    )
