"""Entries that wait go to another partition, as their slots have: each exactly once."""

from collections.abc import Sequence
from hashlib import sha1
from typing import NamedTuple

from partq.core.model import BrokerEpoch, PartitionId
from partq.core.numbering.scheduled_ids import number_text
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.refusals import FENCED, fenced
from partq.store.server import Channel

CARRIED = "carried"
"""Field of a partition's hash `meta`: its predecessors have no entries for it any more."""

NOT_SEALED = -1
"""Of `give_entries`: the slots have not left the predecessor; nothing is taken out."""

Leaving = tuple[bytes, bytes]
"""Of an entry that was given: the field of the hash `leaving`, and its text."""


class WaitingEntry(NamedTuple):
    """A batch that waits."""

    number: int
    due_ms: int
    data: bytes


class Gift(NamedTuple):
    """What a successor gets of an entry."""

    entry: WaitingEntry
    """As it was read."""
    part: bytes
    """The batch that it gets; empty: all of it."""
    rest: bytes
    """The batch that stays; empty: none does."""


class EntryMoves:
    """Takes entries out of predecessors, and into the partitions of one queue that follow them."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def read(
        self,
        partition: PartitionId,
        after: WaitingEntry | None,
        *,
        max_entries: int,
        max_bytes: int,
    ) -> list[WaitingEntry]:
        """Return entries behind one of them; at least one if there is one.

        Raises:
            StoreUnavailableError: no answer.
        """
        place = (-1, number_text(0)) if after is None else (after.due_ms, number_text(after.number))
        found = await self._store.run(
            "read_waiting",
            [self._keys.due(partition), self._keys.scheduled(partition)],
            [*place, max_entries, max_bytes],
            channel=Channel.BULK,
        )
        return [
            WaitingEntry(int(number), int(due_ms), text.partition(b" ")[2])
            for number, due_ms, text in zip(*[iter(found)] * 3, strict=True)
        ]

    async def give(self, giver: PartitionId, taker: PartitionId, gifts: Sequence[Gift]) -> int:
        """Take entries out of a sealed predecessor; return how many there were, as they were read.

        They wait nowhere until `adopt` has them; `read_leaving` finds them. `NOT_SEALED`: none is.

        Raises:
            StoreUnavailableError: no answer; they are taken out, or not.
        """
        keys = self._keys
        places = (keys.meta, keys.due, keys.scheduled, keys.id_entries, keys.leaving)
        args: list[str | bytes | int] = [taker.generation, str(taker)]
        for entry, part, rest in gifts:
            digest = sha1(entry.data, usedforsecurity=False).hexdigest()
            args += (number_text(entry.number), digest, part, rest)
        return int(await self._store.run("give_entries", [p(giver) for p in places], args))

    async def read_leaving(self, giver: PartitionId, taker: PartitionId) -> list[Leaving]:
        """Return what a predecessor has given: its fields and texts, in the order of the gifts.

        Raises:
            StoreUnavailableError: no answer.
        """
        name = self._keys.leaving(giver)
        prefix = f"{taker}/".encode()
        fields = [f for f in await self._store.read("HKEYS", name) if f.startswith(prefix)]
        fields.sort(key=lambda field: int(field.removeprefix(prefix)))
        if not fields:
            return []
        texts = await self._store.read("HMGET", name, *fields)
        return [(f, text) for f, text in zip(fields, texts, strict=True) if text is not None]

    async def adopt(
        self,
        taker: PartitionId,
        giver: PartitionId,
        gifts: Sequence[Leaving],
        *,
        broker_epoch: BrokerEpoch,
    ) -> None:
        """Have entries wait that `read_leaving` has found; none of them twice.

        Their ids are known as in the predecessor, which knows them until `forget`.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
            StoreUnavailableError: no answer; they wait, or not.
        """
        keys = self._keys
        args: list[str | bytes | int] = [broker_epoch, str(giver)]
        parts = [(field.rpartition(b"/")[2], *gift.split(b" ", 2)) for field, gift in gifts]
        ids = [bytes.fromhex(_message_id(text)) for *_, text in parts]
        known = iter(
            await self._store.read_each(("ZSCORE", keys.ids(giver), each) for each in ids if each)
        )
        for each, message_id in zip(parts, ids, strict=True):
            since = next(known) if message_id else None
            args += (*each, since or "")
        places = (keys.meta, keys.due, keys.scheduled, keys.id_entries, keys.ids)
        answer = await self._store.run(
            "adopt_entries", [p(taker) for p in places], args, needs_replica=True
        )
        if answer == FENCED:
            raise fenced(taker, broker_epoch)

    async def forget(self, giver: PartitionId, fields: Sequence[bytes]) -> None:
        """Remove from a predecessor what `adopt` has written, with the ids.

        Raises:
            StoreUnavailableError: no answer; a repeat does the rest.
        """
        keys = [self._keys.meta(giver), self._keys.leaving(giver), self._keys.ids(giver)]
        await self._store.run("forget_given", keys, fields)

    async def is_complete(self, partition: PartitionId) -> bool:
        """Whether a partition has all that its predecessors had for it, or has none, or is gone.

        Raises:
            StoreUnavailableError: no answer.
        """
        preds, is_carried = await self._store.read(
            "HMGET", self._keys.meta(partition), "preds", CARRIED
        )
        return not preds or is_carried is not None

    async def complete(self, partition: PartitionId, *, broker_epoch: BrokerEpoch) -> None:
        """Record that a partition has all that its predecessors had for it.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
            StoreUnavailableError: no answer; a repeat does it.
        """
        key = self._keys.meta(partition)
        answer = await self._store.run("complete_carrying", [key], [broker_epoch, CARRIED])
        if answer == FENCED:
            raise fenced(partition, broker_epoch)


def _message_id(text: bytes) -> str:
    return text.partition(b" ")[0].partition(b"#")[2].decode()
