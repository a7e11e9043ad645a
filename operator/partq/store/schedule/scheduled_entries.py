"""Scheduled messages: entries that wait beside a partition's log until they are due."""

from collections.abc import Sequence
from typing import NamedTuple

from partq.core.model import BrokerEpoch, PartitionId
from partq.core.numbering.scheduled_ids import number_text
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.refusals import FENCED, fenced
from partq.store.server import Channel


class ScheduledEntry(NamedTuple):
    """A batch that waits until it is due."""

    number: int
    due_ms: int
    """By Redis's clock, in ms since 1970."""
    ttl_ms: int
    """How long its messages may wait once they are in the log; 0: the batch says nothing of it."""
    data: bytes


class ScheduledPlace(NamedTuple):
    """A place in the order in which a partition's entries become due."""

    due_ms: int
    number: int = 0
    """Of the entry; 0: behind all that are due by then."""


class ScheduledPart(NamedTuple):
    """Some entries of a partition, in the order in which they become due."""

    entries: list[ScheduledEntry]
    has_more: bool


class ScheduledCounts(NamedTuple):
    """How much of a partition waits."""

    entry_count: int
    next_due_ms: int
    """When the first entry is due."""
    size_bytes: int


class Cancelled(NamedTuple):
    """What has become of entries that were to be removed."""

    freed_bytes: int
    were_there: list[bool]
    """Of each entry; False: it was appended, or removed before."""
    are_parts: list[bool]
    """Of each entry: whether other partitions may have more of its messages."""


class ScheduledEntries:
    """The scheduled messages of one queue's partitions."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def read(
        self,
        partition: PartitionId,
        *,
        after: ScheduledPlace | None = None,
        before_ms: int | None = None,
        max_entries: int,
        max_bytes: int,
    ) -> ScheduledPart:
        """Return entries from a place on; at least one if there is any, whatever its size.

        Raises:
            StoreUnavailableError: nothing was read.
        """
        place: tuple[int | str, int | str] = ("", "")
        if after is not None:
            place = (after.due_ms, number_text(after.number) if after.number else "")
        has_more, *fields = await self._store.run(
            "read_scheduled",
            [self._keys.due(partition), self._keys.scheduled(partition)],
            [*place, "" if before_ms is None else before_ms, max_entries, max_bytes],
            channel=Channel.BULK,
        )
        entries = []
        for number, due_ms, text in zip(*(iter(fields),) * 3, strict=True):
            entries.append(_entry(int(number), int(due_ms), text))
        return ScheduledPart(entries, bool(has_more))

    async def count(
        self, partitions: Sequence[PartitionId], *, before_ms: int | None = None
    ) -> dict[PartitionId, int]:
        """Return how many entries of each partition wait, or are due before a time.

        Raises:
            StoreUnavailableError: nothing was read.
        """
        highest = "+inf" if before_ms is None else f"({before_ms}"
        counts = await self._store.read_each(
            ("ZCOUNT", self._keys.due(partition), "-inf", highest) for partition in partitions
        )
        return dict(zip(partitions, map(int, counts), strict=True))

    async def read_counts(
        self, partitions: Sequence[PartitionId]
    ) -> dict[PartitionId, ScheduledCounts]:
        """Return how much waits of those partitions of which anything does.

        What lies on a silent node of a Redis Cluster is left out.

        Raises:
            StoreUnavailableError: nothing was read.
        """
        keys = self._keys
        firsts = await self._store.read_each(
            (("ZRANGE", keys.due(each), 0, 0, "WITHSCORES") for each in partitions),
            only_reachable=True,
        )
        waiting = {
            partition: int(float(first[1]))
            for partition, first in zip(partitions, firsts, strict=True)
            if first
        }
        if not waiting:
            return {}
        counts = await self._store.read_each(
            (("ZCARD", keys.due(each)) for each in waiting), only_reachable=True
        )
        sizes = await self._store.read_each(
            (("HGET", keys.meta(each), "scheduled_bytes") for each in waiting), only_reachable=True
        )
        return {
            partition: ScheduledCounts(count, due_ms, int(size or 0))
            for (partition, due_ms), count, size in zip(waiting.items(), counts, sizes, strict=True)
            if count
        }

    async def last_number(self, partition: PartitionId) -> int:
        """Return the number that was drawn last for an entry; 0: none was.

        Raises:
            StoreUnavailableError: nothing was read.
        """
        number = await self._store.read("HGET", self._keys.meta(partition), "scheduled_number")
        return int(number or 0)

    async def cancel(
        self, partition: PartitionId, numbers: Sequence[int], *, broker_epoch: BrokerEpoch
    ) -> Cancelled:
        """Remove entries that were not appended yet; a repeat finds them no more.

        Raises:
            FencedError: another broker has claimed the partition; nothing is removed.
            StoreUnavailableError: no answer; they are removed, or not.
        """
        keys = self._keys
        places = (keys.meta, keys.due, keys.scheduled, keys.ids, keys.id_entries, keys.audit)
        answer = await self._store.run(
            "cancel_scheduled",
            [place(partition) for place in places],
            [broker_epoch, *map(number_text, numbers)],
            needs_replica=True,
        )
        if answer == FENCED:
            raise fenced(partition, broker_epoch)
        freed, *were_there = answer
        return Cancelled(int(freed), [x > 0 for x in were_there], [x > 1 for x in were_there])


def _entry(number: int, due_ms: int, text: bytes) -> ScheduledEntry:
    """Read an entry as `append_batches.lua` writes it; its id stands behind its time to live."""
    head, _, data = text.partition(b" ")
    ttl_ms = head.partition(b"#")[0].rstrip(b"*")
    return ScheduledEntry(number, due_ms, int(ttl_ms), data)
