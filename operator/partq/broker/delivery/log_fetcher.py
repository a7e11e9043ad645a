"""Finds stored batches for flows: in memory at the log's end, else read from Redis ahead."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from partq.aio import TaskSet
from partq.broker.delivery.read_ahead import ReadAhead
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.model import Offset, PartitionId
from partq.errors import DataLossError, PartqError
from partq.store.records.log import Entry, Log
from partq.store.retries import READ_RETRY_S

READ_ENTRIES = 256

_log = logging.getLogger(__name__)


class LogFetcher:
    """Serve batches to flows; one read of Redis at a time for a consumed partition."""

    def __init__(
        self,
        owned: Mapping[PartitionId, OwnedPartition],
        log: Log,
        *,
        max_bytes: int,
        clock: Callable[[], float],
        on_lost: Callable[[ConsumedPartition, PartqError], None],
    ) -> None:
        self._owned = owned
        self._store = log
        self._on_lost = on_lost
        self.ahead = ReadAhead(max_bytes, clock=clock)
        self._reading: set[ConsumedPartition] = set()
        self._reads = TaskSet()

    def is_behind(self, consumed: ConsumedPartition) -> bool:
        """Whether messages wait beyond the book's position."""
        owned = self._owned.get(consumed.partition)
        return owned is not None and consumed.book.position < owned.tail.end

    def find(self, consumed: ConsumedPartition, offset: int) -> Entry | None:
        """Return the batch that holds an offset, or None: beyond the end, or being read."""
        owned, consumed = self._owned.get(consumed.partition), consumed.reader
        if owned is None or offset >= owned.tail.end:
            return None
        entry = owned.tail.find(offset) or self.ahead.find(consumed, offset)
        if entry is None and consumed not in self._reading:
            self._reading.add(consumed)
            self._reads.start(self._read(consumed, offset, owned.tail.end))
        return entry

    async def read_on(self, consumed: ConsumedPartition, start: int) -> list[Entry]:
        """Return some batches, from the one that holds `start` on; none: the log ends there.

        As long as the store does not answer it is asked again.
        """
        while not consumed.is_dropped:
            owned = self._owned.get(consumed.partition)
            if owned is None or start >= owned.tail.end:
                break
            if (entry := owned.tail.find(start)) is not None:
                return [entry]
            try:
                entries = await self._read_within(consumed, Offset(start), Offset(owned.tail.end))
            except PartqError as error:
                _log.warning("the log of %s could not be read: %s", consumed.partition, error)
                await asyncio.sleep(READ_RETRY_S)
                continue
            if entries and entries[0].first <= start:
                return entries
            following = entries[0].first if entries else owned.tail.end
            if not consumed.is_dropped:
                self._on_lost(consumed, _missing(consumed, start, following))
        return []

    def forget(self, consumed: ConsumedPartition) -> None:
        """Let go what was read for a flow that has lost the partition."""
        self.ahead.forget(consumed)

    async def close(self) -> None:
        """Stop all reads."""
        await self._reads.close()

    async def _read(self, consumed: ConsumedPartition, start: int, stop: int) -> None:
        try:
            entries = await self._read_within(consumed, Offset(start), Offset(stop))
            if not consumed.root.is_dropped and (not entries or entries[0].first > start):
                # Stored and not trimmed, yet not there: this memory is of another history.
                self._on_lost(
                    consumed.root,
                    _missing(consumed, start, entries[0].first if entries else stop),
                )
                return
            if consumed.is_bound:
                self.ahead.keep(consumed, entries)
        except PartqError as error:
            _log.warning("the log of %s could not be read: %s", consumed.partition, error)
            await asyncio.sleep(READ_RETRY_S)
        finally:
            self._reading.discard(consumed)
            consumed.wake()

    async def _read_within(
        self, consumed: ConsumedPartition, start: Offset, stop: Offset
    ) -> list[Entry]:
        partition = consumed.partition
        extent = await self._store.measure(partition, start, stop, max_bytes=self.ahead.share_bytes)
        if extent is None:
            return []
        async with self.ahead.reserved(extent.size_bytes):
            return await self._store.read_extent(partition, extent, max_entries=READ_ENTRIES)


def _missing(consumed: ConsumedPartition, offset: int, following: int) -> DataLossError:
    return DataLossError(
        f"partition {consumed.partition}, group {consumed.group}: message {offset} is not "
        f"in the log, which continues at {following}; reset the group there to {following} or above"
    )
