"""Reads spans of a queue as Arrow batches with the columns of an archive, without Spark."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Protocol

import pyarrow as pa

from partq.arrow.audit_columns import audit_batch
from partq.arrow.columns import record_batches
from partq.client.audit_reader import AuditReader
from partq.client.log_reader import LogPosition, LogReader
from partq.core.model import PartitionId
from partq.errors import RolledBackError
from partq.pipeline.archive.feeds import Feed, MessageFeed
from partq.pipeline.archive_columns import arrow_schema
from partq.pipeline.manifest import ArchivePosition
from partq.wire.audit import AuditGroup
from partq.wire.calls.entries import StoredBatch

GROUP_BYTES = 1024 * 1024
"""How many bytes of the audit record's groups become one Arrow batch, about."""
STORED_BYTES = 4 * 1024 * 1024
"""How many bytes of stored batches are decoded at once, about."""

_AUDIT = arrow_schema("audit")
_MESSAGES = arrow_schema("messages")

Decode = Callable[[], Iterable[pa.RecordBatch]]
"""Decodes what was fetched; it needs no event loop, so that a thread may do it."""


class SpanReader(Protocol):
    """Fetches the rows of one stream."""

    def fetch(
        self, partition: PartitionId, start: ArchivePosition, stop: ArchivePosition
    ) -> AsyncIterator[Decode]:
        """Yield what decodes the rows [start, stop) of a partition, a part of them each time.

        Raises:
            PartqError: as the client; decoding raises UndecodableError.
        """


@asynccontextmanager
async def open_spans(feed: Feed) -> AsyncIterator[SpanReader]:
    """Connect to what a feed is of, until the end of the block."""
    connection = feed.access.connection()
    if isinstance(feed, MessageFeed):
        async with LogReader(**connection.arguments()) as log:
            yield MessageSpans(log, feed.access.queue)
    else:
        async with AuditReader(**connection.arguments()) as record:
            yield AuditSpans(record)


class MessageSpans:
    """Reads messages; both ends of a span are checked to be those that were planned."""

    def __init__(self, reader: LogReader, queue: str) -> None:
        self._reader = reader
        self._queue = queue

    async def fetch(
        self, partition: PartitionId, start: ArchivePosition, stop: ArchivePosition
    ) -> AsyncIterator[Decode]:
        """Yield what decodes the messages; raises as `LogReader.entries`, too."""

        def decoding(batches: list[StoredBatch]) -> Decode:
            return lambda: record_batches(
                batches,
                _MESSAGES,
                queue=self._queue,
                partition=partition,
                start=start.offset,
                stop=stop.offset,
            )

        fetched: list[StoredBatch] = []
        size = 0
        async for batch in self._reader.entries(
            partition, _position(partition, start), _position(partition, stop)
        ):
            if stop.append_broker_epoch and batch.append_broker_epoch > stop.append_broker_epoch:
                raise RolledBackError(
                    f"queue {self._queue!r}, partition {partition}: the message at {batch.first} "
                    "was stored after this read was planned: the store was rolled back; start the "
                    "job again"
                )
            fetched.append(batch)
            size += len(batch.data)
            if size >= STORED_BYTES:
                yield decoding(fetched)
                fetched, size = [], 0
        if fetched:
            yield decoding(fetched)


class AuditSpans:
    """Reads groups of the audit record, a row for each of their records.

    The chain at both ends of a span is checked to be that which was planned, where it is known.
    """

    def __init__(self, reader: AuditReader) -> None:
        self._reader = reader

    async def fetch(
        self, partition: PartitionId, start: ArchivePosition, stop: ArchivePosition
    ) -> AsyncIterator[Decode]:
        """Yield what decodes the groups; raises as `AuditReader.groups`, too."""

        def decoding(groups: list[AuditGroup]) -> Decode:
            return lambda: [audit_batch(partition, groups, _AUDIT)]

        fetched: list[AuditGroup] = []
        size = 0
        groups = self._reader.groups(
            partition, start.offset, stop.offset, previous=start.chain or None
        )
        async for group in groups:
            if group.sequence + 1 == stop.offset and stop.chain not in ("", group.chain):
                raise RolledBackError(
                    f"partition {partition}: group {group.sequence} of the audit record was "
                    "written after this read was planned: the store was rolled back; start the "
                    "job again"
                )
            fetched.append(group)
            size += len(group.data)
            if size >= GROUP_BYTES:
                yield decoding(fetched)
                fetched, size = [], 0
        if fetched:
            yield decoding(fetched)


def _position(partition: PartitionId, at: ArchivePosition) -> LogPosition:
    return LogPosition(partition, at.append_broker_epoch, at.offset)
