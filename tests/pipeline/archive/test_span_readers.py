"""Spans are read as they were planned, or not at all."""

import asyncio

import pytest

from partq import PartitionId
from partq.errors import RolledBackError
from partq.pipeline.archive.span_readers import MessageSpans
from partq.pipeline.manifest import ArchivePosition
from partq.wire.calls.entries import StoredBatch

PARTITION, PLANNED = PartitionId(1, 0), 5
"""`PLANNED`: the broker epoch of the last message when the read was planned."""


class StoredLog:
    """A log of one batch."""

    def __init__(self, broker_epoch):
        self._batch = StoredBatch(0, 1, broker_epoch, 0, 0, b"")

    async def entries(self, partition, start, stop):
        yield self._batch


def fetched(broker_epoch):
    """Return how many parts a span has whose message is of a broker epoch."""

    async def fetch():
        spans = MessageSpans(StoredLog(broker_epoch), "orders")
        ends = ArchivePosition(0), ArchivePosition(1, PLANNED)
        return [decode async for decode in spans.fetch(PARTITION, *ends)]

    return len(asyncio.run(fetch()))


def test_a_message_that_was_stored_after_the_plan_is_refused():
    assert fetched(PLANNED) == 1
    with pytest.raises(RolledBackError, match="stored after this read was planned"):
        fetched(PLANNED + 1)
