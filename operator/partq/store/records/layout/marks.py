"""Partitions and brokers that an administrator has marked not subscribable."""

from partq.core.model import BrokerId, PartitionId
from partq.errors import BatchTooLargeError
from partq.store.connection import Store
from partq.store.keys import Keys

MAX_MARKS = 65_536 + 1000
"""Every partition and every broker that a queue can have."""


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
