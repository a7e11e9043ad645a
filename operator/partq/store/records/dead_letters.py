"""Dead letters on their way: outboxes, one per group and partition, and replays of a partition."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Unpack

from partq.core.dead_letters import (
    MAX_REPLAYED_AHEAD,
    DeadLetter,
    DeadLetterReason,
    LetterNote,
)
from partq.core.model import BrokerEpoch, PartitionId
from partq.errors import InternalError, SupersededError
from partq.excerpts import excerpt
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.refusals import (
    FENCED,
    SUPERSEDED,
    UNKNOWN,
    BookWrite,
    check_book_write,
    fenced,
    unknown_partition,
)
from partq.store.server import Channel
from partq.wire.letter_notes import decode_note, encode_note


def decode_outbox(text: bytes) -> list[DeadLetter]:
    """Read an outbox as the scripts write it.

    Raises:
        InternalError: they did not write that.
    """
    try:
        return [DeadLetter(*map(int, entry.split(b":"))) for entry in text.split(b",") if entry]
    except (TypeError, ValueError) as error:
        raise InternalError(
            f"store: an outbox is damaged at {excerpt(text)!r}; expected NUMBER:OFFSET:REASON:COUNT"
        ) from error


class Outboxes:
    """The outboxes of one queue's groups."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def add(
        self,
        partition: PartitionId,
        group: str,
        *,
        letters: Iterable[tuple[int, DeadLetterReason, int]],
        notes: Mapping[int, LetterNote] = MappingProxyType({}),
        **write: Unpack[BookWrite],
    ) -> list[DeadLetter]:
        """Put messages (offset, reason, failed deliveries) into the outbox, and return all in it.

        From then on they count as done for the group, and hold the log. A message that is in it
        already keeps its number, and one that the stored book has done with stays out: an unknown
        outcome is simply asked for again, without messages if none is left. Where Redis has
        replicas, one of them has all that is returned: a number that was forgotten could be drawn
        again, and its target would take another message for a repeat. `notes`, by offset, are
        kept for as long as their messages are in it.

        Raises:
            FencedError: another broker has claimed the partition, or the log has lost such a
                message; nothing is written.
            SupersededError: a later write of the group's book is stored; nothing is written.
            UnknownGroupError: the partition has no such group any more.
            StoreUnavailableError: no answer, or no replica has it; stored or not.
        """
        parts = (
            part
            for offset, reason, count in letters
            for part in (offset, int(reason), count, encode_note(notes.get(offset)))
        )
        rest = [write["number"], write["born"], *parts]
        answer = await self._run(
            "add_dead_letters", partition, group, write, *rest, needs_replica=True
        )
        return decode_outbox(answer)

    async def remove(
        self,
        partition: PartitionId,
        group: str,
        *,
        letter: int,
        is_lost: bool = False,
        **write: Unpack[BookWrite],
    ) -> None:
        """Take a message out by its own number, `letter`, once the target has stored it.

        `is_lost`: or because the log does not hold it, so that nobody can ever send it. The group's
        book must be stored before, with the message as done. A repeat under the next `number`
        changes nothing.

        Raises:
            FencedError, SupersededError, UnknownGroupError: as in `add`.
        """
        rest = (letter, write["number"], write["born"], int(is_lost))
        await self._run("remove_dead_letter", partition, group, write, *rest)

    async def note(self, partition: PartitionId, group: str, number: int) -> LetterNote:
        """Return what the application said of a message in the outbox, by its number.

        Raises:
            InternalError: the stored note is damaged.
            StoreUnavailableError: no answer.
        """
        cursor = self._keys.cursor(partition, group)
        return decode_note(await self._store.read("HGET", cursor, f"note:{number}"))

    async def _run(
        self,
        script: str,
        partition: PartitionId,
        group: str,
        write: BookWrite,
        *rest: int | str,
        needs_replica: bool = False,
    ) -> bytes:
        keys = self._keys.of_cursor(partition, group)
        # Behind the flushes: a write that overtakes an earlier one makes that one write nothing.
        args: list[str | int] = [write["broker_epoch"], group, *rest]
        answer = await self._store.run(
            script, keys, args, channel=Channel.APPEND, needs_replica=needs_replica
        )
        check_book_write(answer, partition, group, write)
        return answer if isinstance(answer, bytes) else b""


class ReplayRecord(NamedTuple):
    """How far the dead letters of a partition were sent back."""

    below: int
    """All dead letters below this offset were sent back, or are no longer in the log."""
    number: int
    """Under which the last one went; its target tells a repeat by it."""
    sending: int | None
    """The offset that went under it, if it is not known whether it has arrived."""
    is_full: bool = False
    """An offset was not taken, as `MAX_REPLAYED_AHEAD` others behind `below` were sent back."""


class SentLetters(NamedTuple):
    """Which dead letters of a partition were sent back."""

    below: int = 0
    """All below this offset."""
    ahead: frozenset[int] = frozenset()
    """And these offsets behind it."""

    def has(self, offset: int) -> bool:
        """Say whether the dead letter at an offset was sent back."""
        return offset < self.below or offset in self.ahead


class Replays:
    """Which dead letters of one queue's partitions were sent back to their queues."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def advance(
        self,
        partition: PartitionId,
        *,
        broker_epoch: BrokerEpoch,
        write: int,
        over: int | None = None,
        is_sent: bool = False,
        passed: int = 0,
        begin: int | None = None,
    ) -> ReplayRecord:
        """Record the end of one sending and the beginning of the next; return what is stored.

        `over` is no longer on its way: `is_sent` says whether its queue has it, or certainly does
        not get it. `begin` goes next, under the number of the answer: if one is in doubt still, or
        there is no room, the answer says that and `begin` must not be sent. Below `passed` nothing
        is left to be sent. Where Redis has replicas, one of them has the answer before it is given.

        `write` rises under a broker epoch: a call that was given up changes nothing once a later
        one has been carried out.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
            SupersededError: a later write is stored; nothing is written.
            UnknownPartitionError: it was never created, or is deleted.
            StoreUnavailableError: no answer, or no replica has it; stored or not.
        """
        answer = await self._store.run(
            "advance_replay",
            [self._keys.meta(partition), self._keys.replayed(partition)],
            [
                *(broker_epoch, write, -1 if over is None else over, int(is_sent), passed),
                *(-1 if begin is None else begin, MAX_REPLAYED_AHEAD),
            ],
            needs_replica=over is not None or begin is not None,
        )
        if answer == FENCED:
            raise fenced(partition, broker_epoch)
        if answer == UNKNOWN:
            raise unknown_partition(partition)
        if answer == SUPERSEDED:
            raise SupersededError(
                f"partition {partition}: write {write} of a replay under broker epoch "
                f"{broker_epoch} is not the last one; nothing was written: begin the call again"
            )
        below, number, sending, is_full = map(int, answer)
        return ReplayRecord(below, number, None if sending < 0 else sending, bool(is_full))

    async def read_sent(self, partition: PartitionId) -> SentLetters:
        """Return the offsets that were sent back.

        Raises:
            StoreUnavailableError: no answer.
        """
        # In this order: an offset that leaves the hash meanwhile is below the bound that is read.
        ahead = await self._store.read("HKEYS", self._keys.replayed(partition))
        record = await self._store.read("HGET", self._keys.meta(partition), "replay")
        below = int(record.split(b" ", 1)[0]) if record else 0
        return SentLetters(below, frozenset(map(int, ahead)))
