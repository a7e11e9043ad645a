"""A queue's layout: its generations, and whether it is being deleted."""

from collections.abc import Mapping

from partq.core.layout import Generation, Layout
from partq.core.records import LayoutRecord
from partq.errors import UnknownQueueError
from partq.store.codec import decode_counts, encode_counts
from partq.store.connection import Store
from partq.store.keys import Keys


class Layouts:
    """The layout of one queue."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def create_queue(self, generations: Mapping[int, int]) -> LayoutRecord:
        """Make the layout from generation → partition count, and return the stored one.

        A layout that is there stays as it is.
        """
        text = encode_counts(generations)
        await self._store.run("create_queue", [self._keys.layout()], [text], needs_replica=True)
        return await self.read()

    async def read(self) -> LayoutRecord:
        """Return the layout.

        Raises:
            UnknownQueueError: it was never made, or is deleted.
        """
        generations, tombstone = await self._store.read(
            "HMGET", self._keys.layout(), "generations", "tombstone"
        )
        if generations is None:
            name = f"{self._keys.namespace}/{self._keys.queue}"
            raise UnknownQueueError(f"queue {name}: the store has no layout of it; create it")
        counts = decode_counts(generations)
        layout = Layout(tuple(Generation(*pair) for pair in sorted(counts.items())))
        return LayoutRecord(layout, tombstone is not None)

    async def bury(self) -> None:
        """Mark the queue as being deleted: brokers refuse it from now on."""
        await self._store.run("write_fields", [self._keys.layout()], [1, "tombstone", "1"])
