"""Looks into stored batches that a client could not decode."""

import asyncio

from partq.core.cursor.unreadable import Unreadable
from partq.core.model import Offset, PartitionId
from partq.store.records.log import Entry, Log
from partq.wire import batch

READS_AT_ONCE = 8
"""Batches that are read, or wait for their turn: bounds their memory."""


class DecodeCheck:
    """Finds which messages of a batch are undecodable; one batch at a time, as each is expanded.

    What is read for it waits for its turn: a read that is slow holds up no batch that is there.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._turn = asyncio.Lock()
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

    async def find(self, partition: PartitionId, offset: int) -> Unreadable | None:
        """Return what does not decode of the batch that holds an offset; None: it is not stored.

        Raises:
            StoreUnavailableError: no answer.
        """
        async with self._reads:
            entry = await self._log.find(partition, Offset(offset))
            return None if entry is None else await self.check(entry)

    async def check(self, entry: Entry) -> Unreadable:
        """Return what does not decode of a batch."""
        async with self._turn:
            # A large one takes long, and the lease has to be renewed meanwhile.
            places = await asyncio.to_thread(batch.undecodable, entry.data)
        return Unreadable.of_batch(entry.first, entry.count, places)
