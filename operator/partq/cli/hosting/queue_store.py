"""One queue's store, as the operator needs it."""

import asyncio
from collections.abc import Sequence

from partq.coordinator.ports import StorePorts
from partq.coordinator.queue_records import QueueRecords
from partq.coordinator.reports.rescale_progress import ProgressStore
from partq.core.cursor.lag import lag_of
from partq.core.model import PartitionId
from partq.embedded.store_ports import queue_records, store_ports
from partq.kube.names import QueueKey
from partq.kube.status.facts import Durability
from partq.store.connection import Store
from partq.store.erase import erase_queue
from partq.store.keys import Keys
from partq.store.records.layout.layouts import Layouts
from partq.store.records.lives import Lives
from partq.store.records.partitions import Partitions

CHUNK = 500
"""How many partitions are read at once."""


class RedisQueueStore:
    """One life of a queue in one Redis, over separate connections."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._partitions = Partitions(store, keys)
        self.partitions: ProgressStore = self._partitions
        self._lives = Lives(store, keys)
        self._layouts = Layouts(store, keys)
        self.records: QueueRecords = queue_records(store, keys)
        self.ports: StorePorts = store_ports(store, keys)

    @classmethod
    async def open(cls, url: str, key: QueueKey, uid: str, *, prefix: str) -> "RedisQueueStore":
        """Connect; errors as `Store.open`."""
        store = await Store.open(url, prefix=prefix)
        return cls(store, Keys(prefix, key.namespace, key.name, uid))

    async def durability(self) -> Durability:
        """Return how Redis keeps what it confirms."""
        info = await self._store.info()
        return Durability(
            is_appending=info.appendonly,
            sync=info.appendfsync,
            is_nearly_full=info.is_nearly_full,
        )

    async def lags(self, group: str, partitions: Sequence[PartitionId]) -> dict[PartitionId, int]:
        """Return how many messages a group has not acknowledged yet, where it has a cursor."""
        found: dict[PartitionId, int] = {}
        for start in range(0, len(partitions), CHUNK):
            chunk = partitions[start : start + CHUNK]
            records = await self._partitions.read_many(chunk)
            having = [p for p, record in records.items() if group in record.groups]
            cursors = await asyncio.gather(
                *(self._partitions.read_cursor(partition, group) for partition in having)
            )
            for partition, cursor in zip(having, cursors, strict=True):
                found[partition] = lag_of(records[partition].next, cursor.cursor, cursor.acked)
        return found

    async def bury(self) -> None:
        """Mark the queue as being deleted."""
        await self._layouts.bury()

    async def erase(self) -> int:
        """Remove the queue's keys, and return how many there were."""
        return await erase_queue(self._store, self._keys)

    async def release(self, *, keeps_data: bool) -> None:
        """Give up the queue's name."""
        await self._lives.release(self._keys.uid, keeps_data=keeps_data)

    async def close(self) -> None:
        """Close the connections."""
        await self._store.close()
