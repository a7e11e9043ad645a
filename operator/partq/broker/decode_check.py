"""Looks into stored batches that a client could not decode."""

import asyncio

from partq.core.model import Offset, PartitionId
from partq.core.unreadable import Unreadable
from partq.store.log import Entry, Log
from partq.wire import batch


class DecodeCheck:
    """Finds which messages of a batch are undecodable; one batch at a time, as each is expanded."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._turn = asyncio.Lock()

    async def find(self, partition: PartitionId, offset: int) -> Unreadable | None:
        """Return what does not decode of the batch that holds an offset; None: it is not stored.

        Raises:
            StoreUnavailableError: no answer.
        """
        async with self._turn:
            entries = await self._log.read(partition, Offset(offset), max_bytes=1, max_entries=1)
            if not entries or not entries[0].first <= offset < entries[0].first + entries[0].count:
                return None
            return await self._look(entries[0])

    async def look(self, entry: Entry) -> Unreadable:
        """Return what does not decode of a batch."""
        async with self._turn:
            return await self._look(entry)

    async def _look(self, entry: Entry) -> Unreadable:
        # A large one takes long, and the lease has to be renewed meanwhile.
        places = await asyncio.to_thread(batch.undecodable, entry.data)
        return Unreadable.of_batch(entry.first, entry.count, places)
