"""Entries that have waited beside a partition's log, as its owner reads them when they are due."""

from typing import NamedTuple

from partq.core.model import PartitionId
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.server import Channel


class DueEntry(NamedTuple):
    """A batch that is due."""

    number: int
    due_ms: int
    """By Redis's clock."""
    ttl_ms: int
    """How long its messages may wait once they are in the log; 0: the batch says nothing of it."""
    message_id: str
    """32 hex digits of a digest of its id; empty: it has none."""
    data: bytes


class DuePage(NamedTuple):
    """The first entries that are due."""

    now_ms: int
    """Redis's time."""
    next_ms: int | None
    """When the first entry is due that was not read; None: none is left."""
    entries: list[DueEntry]


class DueEntries:
    """The entries of one queue's partitions."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def read(
        self, partition: PartitionId, *, max_entries: int, max_bytes: int, passed_over: int = 0
    ) -> DuePage:
        """Return entries that are due, the first ones first; at least one if there is one.

        `passed_over`: how many of the first ones are not read.

        Raises:
            StoreUnavailableError: no answer.
        """
        now_ms, next_ms, *found = await self._store.run(
            "read_due",
            [self._keys.due(partition), self._keys.scheduled(partition)],
            [passed_over, max_entries, max_bytes],
            channel=Channel.BULK,
        )
        entries = [_entry(*fields) for fields in zip(*[iter(found)] * 3, strict=True)]
        return DuePage(int(now_ms), int(next_ms) if int(next_ms) >= 0 else None, entries)


def _entry(number: bytes, due_ms: bytes, text: bytes) -> DueEntry:
    head, _, data = text.partition(b" ")
    ttl_ms, _, message_id = head.decode().partition("#")
    return DueEntry(int(number), int(due_ms), int(ttl_ms.rstrip("*") or 0), message_id, data)
