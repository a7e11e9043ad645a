"""Finds stored batches for flows: in memory at the log's end, else read from Redis ahead."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from partq.broker.delivery.read_ahead import ReadAhead
from partq.broker.partition.group_partition import ConsumedPartition
from partq.broker.partition.partition import OwnedPartition
from partq.core.model import Offset, PartitionId
from partq.errors import DataLossError, PartqError
from partq.store.records.log import Entry, Log

READ_ENTRIES = 256
RETRY_GAP_S = 0.1

_log = logging.getLogger(__name__)


class LogFetcher:
    """Serve batches to flows; one read of Redis at a time for a subscription."""

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
        self._tasks: set[asyncio.Task[None]] = set()

    def is_behind(self, subscription: ConsumedPartition) -> bool:
        """Whether messages wait beyond the book's position."""
        owned = self._owned.get(subscription.partition)
        return owned is not None and subscription.book.position < owned.tail.end

    def find(self, subscription: ConsumedPartition, offset: int) -> Entry | None:
        """Return the batch that holds an offset, or None: beyond the end, or being read."""
        owned = self._owned.get(subscription.partition)
        if owned is None or offset >= owned.tail.end:
            return None
        entry = owned.tail.find(offset) or self.ahead.find(subscription, offset)
        if entry is None and subscription not in self._reading:
            self._reading.add(subscription)
            task = asyncio.create_task(self._read(subscription, offset, owned.tail.end))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return entry

    def forget(self, subscription: ConsumedPartition) -> None:
        """Let go what was read for a flow that has lost the partition."""
        self.ahead.forget(subscription)

    async def close(self) -> None:
        """Stop all reads."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self, subscription: ConsumedPartition, start: int, stop: int) -> None:
        try:
            entries = await self._read_within(subscription, Offset(start), Offset(stop))
            if not subscription.is_dropped and (not entries or entries[0].first > start):
                # Stored and not trimmed, yet not there: this memory is of another history.
                self._on_lost(
                    subscription,
                    _missing(subscription, start, entries[0].first if entries else stop),
                )
                return
            if subscription.flow is not None:
                self.ahead.keep(subscription, entries)
        except PartqError as error:
            _log.warning("read of %s: %s", subscription.partition, error)
            await asyncio.sleep(RETRY_GAP_S)
        finally:
            self._reading.discard(subscription)
            if subscription.flow is not None:
                subscription.flow.notice(subscription)

    async def _read_within(
        self, subscription: ConsumedPartition, start: Offset, stop: Offset
    ) -> list[Entry]:
        partition = subscription.partition
        extent = await self._store.measure(partition, start, stop, max_bytes=self.ahead.share_bytes)
        if extent is None:
            return []
        async with self.ahead.reserved(extent.size_bytes):
            return await self._store.read_extent(partition, extent, max_entries=READ_ENTRIES)


def _missing(subscription: ConsumedPartition, offset: int, following: int) -> DataLossError:
    return DataLossError(
        f"partition {subscription.partition}, group {subscription.group}: message {offset} is not "
        f"in the log, which goes on at {following}; reset the group there to {following} or above"
    )
