"""A queue's layout: its generations, whether it is being deleted, what is not subscribable."""

from collections.abc import Mapping

from partq.core.layout import Generation, Layout
from partq.core.model import BrokerId, PartitionId
from partq.core.records import LayoutRecord
from partq.errors import BatchTooLargeError, UnknownQueueError
from partq.store.codec import decode_counts, encode_counts
from partq.store.connection import Store
from partq.store.keys import Keys

MAX_MARKS = 65_536 + 1000
"""Every partition and every broker that a queue can have."""


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


class Marks:
    """Partitions and brokers of one queue that an administrator has marked not subscribable."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def read(self) -> dict[str, str]:
        """Return the reason of each mark, by `name_of` what is marked."""
        flat = await self._store.read("HGETALL", self._keys.marks())
        texts = [value.decode() for value in flat]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    async def find(self, *names: str) -> str | None:
        """Return the reason of the first of the names that is marked; None: none is."""
        found = await self._store.read("HMGET", self._keys.marks(), *names)
        return next((reason.decode() for reason in found if reason is not None), None)

    async def set(self, name: str, reason: str) -> None:
        """Mark what `name_of` names; a mark that is there gets the reason.

        Raises:
            BatchTooLargeError: there are too many marks; nothing is written.
        """
        marked = await self.read()
        if name not in marked and len(marked) >= MAX_MARKS:
            raise BatchTooLargeError(f"{MAX_MARKS} partitions and brokers are marked; clear some")
        await self._store.run("write_fields", [self._keys.marks()], [1, name, reason])

    async def clear(self, name: str) -> None:
        """Take a mark back; a repeat does nothing."""
        await self._store.run("write_fields", [self._keys.marks()], [0, name])


def name_of(marked: PartitionId | BrokerId) -> str:
    """Return by what a partition or a broker is known among the marks."""
    return f"partition:{marked}" if isinstance(marked, PartitionId) else f"broker:{marked}"
