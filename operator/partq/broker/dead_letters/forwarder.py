"""Moves what a group does not get done to its outbox, and from there to the dead-letter queue.

Three steps, each safe to repeat, so that the partition's owner continues after any crash: one
script puts the offset into the outbox, the target stores the message under the number that it got
there, one script takes it out. One message of an outbox is on its way at a time: they arrive in
the order of their numbers, and a number below the target's last one is a repeat.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from itertools import islice
from typing import Any, Protocol

from partq.aio import Backoff, cancel_and_wait
from partq.broker.config import DeadLetterRules
from partq.broker.dead_letters.letter import LetterWriter
from partq.broker.delivery.cursor_writer import CursorWriter
from partq.broker.delivery.decode_check import DecodeCheck
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.outbox import Answer, Outbox, OutboxProblem
from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.dead_letters import (
    DeadLetter,
    DeadLetterReason,
    LetterNote,
    OnExhausted,
    producer_of,
)
from partq.errors import (
    BatchTooLargeError,
    DataLossError,
    FencedError,
    MessageTooLargeError,
    PartqError,
    UnavailableError,
    UnknownGroupError,
)
from partq.excerpts import counted
from partq.metrics import BrokerMetrics
from partq.store.keys import Keys
from partq.store.records.dead_letters import Outboxes
from partq.store.records.log import Log

MOVES_AT_ONCE = 100
"""Messages that one script moves at most."""
FIRST_WAIT_S = 0.1
"""How long the first repeat of a failed step waits; the wait doubles from time to time."""
LONGEST_WAIT_S = 2.0
PATIENCE_S = 5.0
"""A target that takes nothing for this long stops the partition: it may just be restarting."""
_log = logging.getLogger(__name__)


class LetterTarget(Protocol):
    """Where dead letters go."""

    async def send(self, queue: str, slot: int, data: bytes, producer: str, number: int) -> bool:
        """Have a batch of one message stored; False: its number is known there, so it was before.

        Raises:
            PartqError: it is not stored, or that is not known.
        """

    async def find_quarantined(self, queue: str, group: str, slots: Collection[int]) -> set[int]:
        """Return those of some slots that a group of a queue has in quarantine.

        Raises:
            PartqError: nobody knows now.
        """


class DeadLetterForwarder:
    """Empties the outboxes of the partitions that this broker owns, each by a separate task."""

    def __init__(
        self,
        outboxes: Outboxes,
        log: Log,
        keys: Keys,
        *,
        check: DecodeCheck,
        cursor_writer: CursorWriter,
        clock: Callable[[], float],
        rules: Callable[[str], DeadLetterRules],
        on_lost: Callable[[ConsumedPartition, PartqError], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
        metrics: BrokerMetrics,
    ) -> None:
        self._outboxes = outboxes
        self._writer = LetterWriter(log, outboxes, keys, check)
        self._keys = keys
        self._cursor_writer = cursor_writer
        self._clock = clock
        self._rules = rules
        self._target: LetterTarget | None = None
        self._on_lost = on_lost
        self._spawn = spawn
        self._metrics = metrics

    def connect(self, target: LetterTarget) -> None:
        """Say how other queues are reached; before that nothing is sent."""
        self._target = target

    @property
    def target(self) -> LetterTarget:
        """How other queues are reached.

        Raises:
            UnavailableError: nobody has said.
        """
        if self._target is None:
            raise UnavailableError(
                "dead letters: the broker has no connection to other queues yet; it tries again"
            )
        return self._target

    def watch(self, owned: OwnedPartition) -> None:
        """Continue with the outboxes of a partition, and look at what its groups exceed."""
        for consumed in owned.groups.values():
            if consumed.after_counts is None:
                consumed.after_counts = self.check
                consumed.after_take = self.move_quarantined
                if consumed.outbox.letters:
                    # They count as done, which the stored book may not say yet.
                    self._cursor_writer.notice(consumed)
            self.check(consumed)

    def check(self, consumed: ConsumedPartition) -> None:
        """Doom the messages that were delivered again more often than the group allows."""
        rules = self._rules(consumed.group)
        limit, lanes, on_exhausted = rules.max_redeliveries, consumed.lanes, rules.on_exhausted
        makes_none = limit is None or (lanes is not None and on_exhausted is OnExhausted.BLOCK)
        consumed.outbox.is_parking = makes_none and not rules.takes_expired
        exceeding = [] if limit is None else consumed.book.exceeding(limit)
        if lanes is not None and on_exhausted is not OnExhausted.SKIP:
            if lanes.hold(exceeding, quarantines=on_exhausted is OnExhausted.QUARANTINE):
                self._cursor_writer.notice(consumed)
            exceeding = []
        elif lanes is not None:
            # A key stays blocked, or in quarantine, also if the spec has changed since.
            exceeding = [offset for offset in exceeding if lanes.may_exceed(offset)]
        self.schedule(consumed, exceeding, DeadLetterReason.MAX_REDELIVERIES)

    def move_quarantined(self, consumed: ConsumedPartition) -> None:
        """Doom what is due of keys in quarantine, as far as there is room.

        Not before the record says that they are: a broker that takes the partition over would
        else deliver what is behind their dead letters.
        """
        lanes, outbox = consumed.lanes, consumed.outbox
        if lanes is None:
            return
        if lanes.holds_made != consumed.holds_stored:
            if not consumed.is_dirty:
                self._cursor_writer.notice(consumed)
            return
        room = min(outbox.room - len(outbox.scheduled), MOVES_AT_ONCE)
        if offsets := lanes.next_quarantined(room):
            limit = self._rules(consumed.group).max_redeliveries
            failed = set() if limit is None else {*lanes.exceeding(limit)}
            for offset in offsets:
                reason = (
                    DeadLetterReason.MAX_REDELIVERIES
                    if offset in failed
                    else DeadLetterReason.QUARANTINED
                )
                if offset not in outbox.scheduled:
                    outbox.scheduled[offset] = reason
                    outbox.wake()
            self._work_on(consumed)

    def schedule(
        self, consumed: ConsumedPartition, offsets: list[int], reason: DeadLetterReason
    ) -> None:
        """Have messages moved that are not in flight; until they are, nothing is delivered.

        In a group of order Key nothing of their keys.
        """
        outbox = consumed.outbox
        new = [offset for offset in offsets if offset not in outbox.scheduled]
        outbox.scheduled.update(dict.fromkeys(new, reason))
        consumed.doom(new)
        if new:
            outbox.wake()  # the others wait for the repeat of a failed step
        if outbox.scheduled or outbox.letters:
            self._work_on(consumed)

    def make(
        self, consumed: ConsumedPartition, offsets: list[int], note: LetterNote, answer: Answer
    ) -> None:
        """Have messages moved that an application asks for; `answer` is called once they are."""
        consumed.outbox.asked_for.update(dict.fromkeys(offsets, note))
        consumed.outbox.scheduled.update(dict.fromkeys(offsets, DeadLetterReason.APPLICATION))
        consumed.outbox.waits.append((offsets, answer))
        consumed.doom(offsets)
        if offsets:
            consumed.outbox.wake()
            self._work_on(consumed)
        else:
            self._resume(consumed)

    def park(self, consumed: ConsumedPartition, ranges: list[tuple[int, int]]) -> None:
        """Have messages moved that do not decode, whatever the group's limit of redeliveries."""
        count = sum(stop - start for start, stop in ranges)
        if not count:
            return
        _log.warning(
            "partition %s, group %s: %s from offset %d on do not decode, and become dead letters",
            consumed.partition,
            consumed.group,
            counted(count, "message"),
            ranges[0][0],
        )
        self._metrics.undecodable(consumed.group, count)
        for start, stop in ranges:
            consumed.outbox.aside.update(dict.fromkeys(range(start, stop)))
        consumed.outbox.wake()
        self._work_on(consumed)

    def _work_on(self, consumed: ConsumedPartition) -> None:
        if not consumed.outbox.is_working and not consumed.is_dropped:
            consumed.outbox.is_working = True
            name = f"dead letters {consumed.partition}/{consumed.group}"
            self._spawn(self._work(consumed), name)

    async def _work(self, consumed: ConsumedPartition) -> None:
        outbox = consumed.outbox
        backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
        try:
            while outbox.has_work and not consumed.is_dropped:
                to_move = outbox.to_move
                try:
                    await self._step(consumed)
                except PartqError as error:
                    self._note(consumed, error)
                    await to_move.wait_at_most(backoff.next_s())
                else:
                    backoff.reset()
        finally:
            outbox.is_working = False

    async def _step(self, consumed: ConsumedPartition) -> None:
        """Move what is scheduled while there is room, else send the next letter.

        Raises:
            PartqError: the step is to be repeated.
        """
        outbox = consumed.outbox
        if outbox.is_in_doubt or outbox.can_move:
            await self._move(consumed)
            return
        letter = outbox.letters[0]
        try:
            reason = await self._send_and_move(consumed, letter)
        except DataLossError as error:
            if not consumed.is_dropped:
                self._on_lost(consumed, error)
            if consumed.is_dropped:
                raise
            # The record was read again since, and says the same: nobody can ever send it.
            consumed.missing = ""
            await self._give_up(consumed, letter)
            return
        if await self._take_out(consumed, letter):
            self._metrics.dead_lettered(consumed.group, reason.word)

    async def _give_up(self, consumed: ConsumedPartition, letter: DeadLetter) -> None:
        """Drop a letter whose message is nowhere."""
        if await self._take_out(consumed, letter, is_lost=True):
            _log.error(
                "dead letter %d of %s, group %s: the log does not hold its message; it is dropped",
                *(letter.offset, consumed.partition, consumed.group),
            )
            self._metrics.skipped(consumed.group, 1)

    async def _take_out(
        self, consumed: ConsumedPartition, letter: DeadLetter, *, is_lost: bool = False
    ) -> bool:
        """Take a letter out; False: the partition or the group is not served here.

        Raises:
            PartqError: it is to be repeated.
        """
        # Only once the stored book says that the group has done with it: a broker that claims the
        # partition would else find its offset neither done nor in the outbox. Of a busy group the
        # book is never stored as a whole.
        error = await self._cursor_writer.store(consumed)
        if consumed.is_dropped:
            return False
        if error is not None:
            raise error
        remove = self._outboxes.remove(
            consumed.partition,
            consumed.group,
            **consumed.next_write(),
            letter=letter.number,
            is_lost=is_lost,
        )
        if not await self._in_record(consumed, remove):
            return False
        outbox = consumed.outbox
        outbox.letters = [each for each in outbox.letters if each.number != letter.number]
        self._end_trouble(consumed)
        self._resume(consumed)
        return True

    async def _send_and_move(
        self, consumed: ConsumedPartition, letter: DeadLetter
    ) -> DeadLetterReason:
        """Send a letter, and move what is scheduled meanwhile: the target may take long to answer.

        Raises:
            DataLossError: the log does not have the letter's message.
            PartqError: both are to be repeated.
        """
        outbox = consumed.outbox
        sending = asyncio.create_task(self._send(consumed, letter))
        try:
            while not sending.done():
                if outbox.can_move and not consumed.is_dropped:
                    await self._move(consumed)
                    continue
                scheduled = asyncio.create_task(outbox.to_move.wait())
                try:
                    await asyncio.wait({sending, scheduled}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    scheduled.cancel()
            return sending.result()
        finally:
            await cancel_and_wait(sending)

    async def _send(self, consumed: ConsumedPartition, letter: DeadLetter) -> DeadLetterReason:
        """Have a letter stored, and return why it was one.

        Raises:
            DataLossError: the log does not have its message.
        """
        queue = self._rules(consumed.group).queue
        producer = producer_of(self._keys.uid, consumed.partition, consumed.group)
        written = await self._writer.write(consumed, letter)
        try:
            await self.target.send(queue, written.slot, written.data, producer, letter.number)
        except (MessageTooLargeError, BatchTooLargeError) as error:
            if written.shorter is None:
                raise
            # Nobody can decode the batch, and nobody needs the description to go on: nobody is to
            # wait until the queue takes larger messages.
            _log.warning(
                "dead letters of %s, group %s: %s at offset %d is left out: %s",
                *(consumed.partition, consumed.group, written.left_out, letter.offset),
                error.message,
            )
            await self.target.send(queue, written.slot, written.shorter, producer, letter.number)
        if written.carries_batch and consumed.outbox.broken is not None:
            consumed.outbox.broken.carrier = letter.offset
        return written.reason

    async def _move(self, consumed: ConsumedPartition) -> None:
        outbox, book = consumed.outbox, consumed.book
        if consumed.is_held:
            raise UnavailableError(
                f"partition {consumed.partition}: a commit or a reset is under way; it is "
                "tried again"
            )
        counts = book.redeliveries
        for offset in [offset for offset in outbox.scheduled if book.is_done(offset)]:
            outbox.moved(offset)
            consumed.spare(offset)
        for offset in list(islice(outbox.aside, MOVES_AT_ONCE)):
            if book.is_done(offset) or offset in outbox.scheduled:
                del outbox.aside[offset]
        most = min(outbox.room, MOVES_AT_ONCE)
        chosen = sorted(outbox.scheduled.items())[:most]
        aside = islice(outbox.aside, max(0, most - len(chosen)))
        chosen += [(offset, DeadLetterReason.UNDECODABLE) for offset in aside]
        if not chosen and not outbox.is_in_doubt:
            self._resume(consumed)
            return
        add = self._outboxes.add(
            consumed.partition,
            consumed.group,
            **consumed.next_write(),
            letters=[(offset, reason, counts.get(offset, 0)) for offset, reason in chosen],
            notes={at: note for at, why in chosen if (note := _note(outbox, at, why))},
        )

        async def move() -> None:
            # Until it is answered the stored outbox may hold what this one does not.
            outbox.is_in_doubt = True
            outbox.letters = await add
            outbox.is_in_doubt = False

        if not await self._in_record(consumed, move()):
            return
        for offset, _ in chosen:
            outbox.moved(offset)
            # A reset may have put another book in the place of the one that chose it.
            consumed.discard([(offset, offset + 1)])
            consumed.spare(offset)
        self._cursor_writer.notice(consumed)
        self._resume(consumed)

    async def _in_record(
        self, consumed: ConsumedPartition, change: Coroutine[Any, Any, None]
    ) -> bool:
        """Change the stored outbox; False: the partition or the group is not served here."""
        try:
            await change
        except (FencedError, UnknownGroupError) as error:
            self._on_lost(consumed, error)
        return not consumed.is_dropped

    def _note(self, consumed: ConsumedPartition, error: PartqError) -> None:
        """Remember why a step failed, and say so once when that lasts."""
        now, outbox = self._clock(), consumed.outbox
        if outbox.trouble is None:
            outbox.trouble = OutboxProblem(error.message, now)
        outbox.trouble.message = error.message
        if not outbox.trouble.is_lasting and now - outbox.trouble.since >= PATIENCE_S:
            outbox.trouble.is_lasting = True
            _log.warning(
                "dead letters of %s, group %s are not stored: %s; %s until they are",
                consumed.partition,
                consumed.group,
                error.message,
                "they do not decode, and hold the log, while deliveries continue,"
                if outbox.is_parking
                else "its deliveries wait"
                if consumed.lanes is None
                else "the keys of what does not fit into the outbox wait",
            )

    def _end_trouble(self, consumed: ConsumedPartition) -> None:
        trouble, consumed.outbox.trouble = consumed.outbox.trouble, None
        if trouble is not None and trouble.is_lasting:
            _log.info(
                "dead letters of %s, group %s are stored again",
                consumed.partition,
                consumed.group,
            )

    def _resume(self, consumed: ConsumedPartition) -> None:
        for answer in consumed.outbox.end_waits():
            self._cursor_writer.notice(consumed, answer)
        consumed.wake()


def _note(outbox: Outbox, offset: int, reason: DeadLetterReason) -> LetterNote | None:
    """Return what is to be stored with a letter beside its reason."""
    note = outbox.note_of(offset)
    if reason is DeadLetterReason.QUARANTINED:
        return (note or LetterNote())._replace(is_quarantined=True)
    return note
