"""Looks into stored batches that a client could not decode."""

import asyncio

from partq.core.cursor.unreadable import Unreadable
from partq.core.model import Offset, PartitionId
from partq.store.records.log import Entry, Log
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
            entry = await self._log.find(partition, Offset(offset))
            return None if entry is None else await self._look(entry)

    async def look(self, entry: Entry) -> Unreadable:
        """Return what does not decode of a batch."""
        async with self._turn:
            return await self._look(entry)

    async def _look(self, entry: Entry) -> Unreadable:
        # A large one takes long, and the lease has to be renewed meanwhile.
        places = await asyncio.to_thread(batch.undecodable, entry.data)
        return Unreadable.of_batch(entry.first, entry.count, places)
