"""What an application says of the messages that a consumer has handed it."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from partq.client.arguments import check_flag
from partq.client.consume.confirmations import Confirmations
from partq.client.consume.deliveries import UNCHANGED, Batch, Delivery, Unchanged
from partq.client.consume.flow import GROUP_DELAY_MS
from partq.client.transport.tasks import EnteredLoop
from partq.core.cursor.redelivery_rules import MAX_NACK_DELAY_MS
from partq.core.dead_letters import MAX_DESCRIPTION_CHARS, LetterNote, check_note
from partq.errors import BadRequestError
from partq.wire.batch import Message
from partq.wire.frames import UNDECODABLE

MAX_NACK_DELAY_S = MAX_NACK_DELAY_MS // 1000

Listener = Callable[[Delivery | Batch, BaseException | None], None]
"""Called with what was acknowledged or given back, and why that was refused."""


class Acknowledger:
    """Sends acks and nacks, and keeps the refusals until they are told: a part of `Consumer`."""

    def __init__(self, on_acked: Listener | None = None, on_nacked: Listener | None = None) -> None:
        self._entered_loop = EnteredLoop("the consumer")
        self._on_acked = on_acked
        self._on_nacked = on_nacked
        self._current: Sequence[Delivery | Batch] = ()
        """What was handed out last, for `auto_ack`."""
        self._acks = Confirmations()
        self._quiet_acks = Confirmations()
        """Those given by `ack_nowait` and `auto_ack`: only `flush` reports them."""

    async def ack(
        self,
        done: Delivery | Batch,
        *,
        confirmed: bool = False,
        state: bytes | Unchanged | None = UNCHANGED,
    ) -> None:
        """Acknowledge a message, or all of a batch; return once the ack is on its way.

        Acks of one turn of the event loop travel together. At most 10,000 are without an answer;
        above that the call waits. A refusal is raised by the next `ack`, `ack_cumulative` or
        `flush`, whose own acks are given all the same, or on leaving the block. A second ack of a
        message changes nothing.

        Args:
            done: as it was handed out.
            confirmed: wait until this ack is stored, and raise its own refusal.
            state: of a message with a key: what the next message of that key finds by
                `message.state()`, at most 64 KiB; None: nothing. It is stored with the ack, both or
                none. Left out: the state of the key stays as it is. A second ack of a message
                changes no state.

        Raises:
            BadRequestError: the state is too large, of a message without a key, or of a group whose
                `nack.order` is Free; nothing is acknowledged.
            StatesFullError: as many keys of the partition have a state as the group's
                `ack.maxStates` allows; the message is not acknowledged, and may be given back.
            FencedError: the partition is not this member's any more, by this token. The message
                is redelivered, here or elsewhere: undo or ignore what was done.
            NotDeliveredError: it was not delivered to this member under its token.
            TypeError: it is nothing that a consumer hands out, or `confirmed` is not a bool, or a
                state is not bytes or of a batch; no ack is sent.
        """
        self._check("ack", done)
        check_flag("ack: confirmed", confirmed)
        acked = done.ack() if state is UNCHANGED else _with_state(done, state)
        await self._give(self._notifying(acked, done), confirmed=confirmed)

    async def state(self, message: Delivery) -> bytes | None:
        """Return the state of the key of a message, as `await message.state()`."""
        self._entered_loop.check()
        if not isinstance(message, Delivery):
            raise TypeError(
                f"state: got {type(message).__name__}, expected a message as the consumer has "
                "handed it out"
            )
        return await message.state()

    async def ack_cumulative(self, done: Delivery | Batch, *, confirmed: bool = False) -> None:
        """Acknowledge everything of the partition up to and with a message or batch.

        Arguments, and what it raises: as `ack`, and RewoundError: the partition was delivered
        again from further down. BadRequestError: the group's `nack.order` is Key, in which messages
        below may wait for others of their keys; nothing is acknowledged: use `ack`.
        """
        self._check("ack_cumulative", done)
        check_flag("ack_cumulative: confirmed", confirmed)
        batch = done.batch if isinstance(done, Delivery) else done
        last = done.offset if isinstance(done, Delivery) else done.offsets[-1]
        await self._give(self._notifying(batch.ack_upto(last), done), confirmed=confirmed)

    def ack_nowait(self, done: Delivery | Batch) -> None:
        """Acknowledge without waiting, also without bound; only `flush` reports a refusal."""
        self._check("ack_nowait", done)
        self._quiet_acks.add(self._notifying(done.ack(), done))

    async def flush(self) -> None:
        """Wait until every ack given so far is stored.

        Raises: as `ack`, the first refusal that was not told; the other acks are stored.
            RuntimeError: from another event loop or thread.
        """
        self._entered_loop.check()
        await self._answered()
        self._acks.raise_error()
        self._quiet_acks.raise_error()

    async def nack(
        self, failed: Delivery | Batch, *, delay_s: float | None = None, reason: str = ""
    ) -> None:
        """Give back a message, or all of a batch, that could not be processed.

        It is redelivered after the delay. Until then the consumer gets nothing of what is behind it
        in its partition, and what it has got of that is redelivered, too, unless it is
        acknowledged; in a group of free order others continue. In a group of order Key it gets
        nothing of the same key, and what it has got of that it keeps: give that back, too.
        `auto_ack` leaves it out. A message that is given back and then acknowledged is
        acknowledged. Of a batch, what was acknowledged before is left out.

        Args:
            failed: as it was handed out.
            delay_s: from 0 to 86,400; None: as the group's `nack` says, 60 if it says nothing.
            reason: a short code, at most 64 printable characters. If the message becomes a dead
                letter by its redeliveries, that tells the reason of the last nack; a broker of an
                earlier version tells none.

        Raises:
            BadRequestError: the delay or the reason is out of range.
            ConflictError: it was acknowledged before, or all of the batch was; nothing has
                happened.
            FencedError: the partition is not this member's any more: it is redelivered in any case.
        """
        self._check("nack", failed)
        given: object = delay_s
        if isinstance(given, bool) or not isinstance(given, int | float | None):
            raise TypeError(f"nack: delay_s: got {type(delay_s).__name__}, expected seconds")
        if delay_s is not None and not 0 <= delay_s <= MAX_NACK_DELAY_S:
            raise BadRequestError(
                f"nack: delay_s {delay_s}; expected 0 to {MAX_NACK_DELAY_S}, or None"
            )
        delay_ms = GROUP_DELAY_MS if delay_s is None else round(delay_s * 1000)
        await self._return(failed, delay_ms, _note("nack", reason, ""))

    async def dead_letter(
        self, failed: Delivery | Batch, *, reason: str = "", description: str = ""
    ) -> None:
        """Have a message, or each of a batch, become a dead letter now, without redeliveries.

        It returns once the broker has stored that: the group has done with the message, and what
        is behind it continues. The broker then moves it to the dead-letter queue of the group,
        which tells reason and description in its headers. `auto_ack` leaves it out. Of a batch,
        what was acknowledged before is left out.

        Args:
            failed: as it was handed out.
            reason: a short code for programs, at most 64 printable characters. Empty: the dead
                letter has no such header; that the application asked for it is told in any case.
            description: a text for people. Of one above 1,024 characters the beginning is kept, and
                `...`. It is left out where the dead-letter queue takes no message of that size.

        Raises:
            BadRequestError: the reason is out of range, or the description has half a surrogate
                pair; nothing has happened.
            ConflictError: it was acknowledged before, or all of the batch was; nothing has
                happened.
            FencedError: the partition is not this member's any more, or the connection was lost:
                the message is redelivered, unless it has become a dead letter.
            UnavailableError: the broker is of an earlier version, and nothing has happened; or
                1,000 dead letters of the partition wait, and the message is redelivered as after
                `nack`.
        """
        self._check("dead_letter", failed)
        note = _note("dead_letter", reason, description)._replace(is_asked_for=True)
        await self._return(failed, GROUP_DELAY_MS, note)

    async def in_progress(self, begun: Delivery | Batch) -> None:
        """Have the group's ack timeout start again for a message, or all of a batch; or do nothing.

        It returns once the broker has counted that: without an ack the message is redelivered
        `ack.timeoutSeconds` from then on. Call it well before that time is over, and as often as
        needed for at most 12 hours after the message was handed out. In a group without an ack
        timeout, and for what is acknowledged already, it changes nothing. A handoff waits no longer
        for it: the queue's `maxHandoffSeconds` holds.

        Args:
            begun: as it was handed out.

        Raises:
            FencedError: the partition is not this member's any more, or the connection was lost;
                the message is redelivered: stop working on it.
            RewoundError: its time was over, or it was given back: as above. Of a batch the others
                are extended.
            ConflictError: it was handed out more than 12 hours ago: acknowledge it, or give it
                back. Of a batch the others are extended.
            UnavailableError: the broker is of an earlier version; nothing has happened.
        """
        self._check("in_progress", begun)
        if isinstance(begun, Delivery):
            extended = begun.batch.extend([begun.offset])
        else:
            extended = begun.extend(begun.offsets)
        await asyncio.shield(extended)

    async def _return(self, failed: Delivery | Batch, delay_ms: int, note: LetterNote) -> None:
        batch = failed.batch if isinstance(failed, Delivery) else failed
        offsets = [failed.offset] if isinstance(failed, Delivery) else failed.offsets
        given_back = batch.give_back(offsets, delay_ms, note)
        if self._on_nacked is not None:
            given_back.add_done_callback(partial(_notify, self._on_nacked, failed))
        await asyncio.shield(given_back)

    def _notifying(
        self, acked: asyncio.Future[None], done: Delivery | Batch
    ) -> asyncio.Future[None]:
        """Return the future of an ack; its answer is passed to the application."""
        if self._on_acked is not None:
            acked.add_done_callback(partial(_notify, self._on_acked, done))
        return acked

    def _check(self, call: str, done: object) -> None:
        self._entered_loop.check()
        _check_taken(call, done)

    async def _answered(self, timeout_s: float | None = None) -> None:
        await self._acks.wait(timeout_s)
        await self._quiet_acks.wait(timeout_s)

    async def _give(self, future: asyncio.Future[None], *, confirmed: bool) -> None:
        if confirmed or future.done():  # done already: its token has ended
            await asyncio.shield(future)
            return
        acks = self._acks
        acks.add(future)
        if acks.has_refusals:
            acks.raise_error()
        if acks.is_full:
            await acks.room()


def _with_state(done: Delivery | Batch, state: bytes | Unchanged | None) -> asyncio.Future[None]:
    """Acknowledge a message with the state of its key.

    Raises:
        TypeError: it is no message, or that no state; no ack is sent.
    """
    if not isinstance(done, Delivery):
        raise TypeError(
            "ack: got a batch with a state, expected one message: a state belongs to its key"
        )
    if not isinstance(state, bytes | None):
        raise TypeError(f"ack: state: got {type(state).__name__}, expected bytes, or None for none")
    return done.ack_with_state(state)


def _notify(listener: Listener, done: Delivery | Batch, future: asyncio.Future[None]) -> None:
    listener(done, None if future.cancelled() else future.exception())


def _note(call: str, reason: str, description: str) -> LetterNote:
    """Return what the headers of a dead letter are to say.

    Raises:
        TypeError, BadRequestError: they cannot say it.
    """
    for name, text in {"reason": reason, "description": description}.items():
        if not isinstance(text, str):
            raise TypeError(f"{call}: {name}: got {type(text).__name__}, expected str")
    if len(description) > MAX_DESCRIPTION_CHARS:
        # An error for a long text would end a loop, and again after each redelivery.
        description = f"{description[: MAX_DESCRIPTION_CHARS - 3]}..."
    check_note(call, reason, description)
    if reason == UNDECODABLE:
        raise BadRequestError(
            f"{call}: reason {UNDECODABLE!r} is what the client itself says of stored bytes that "
            "it cannot decode; expected another one"
        )
    return LetterNote(reason, description)


def _check_taken(call: str, done: object) -> None:
    if not isinstance(done, Delivery | Batch):
        hint = "; of a batch: one of batch.deliveries()" if isinstance(done, Message) else ""
        raise TypeError(
            f"{call}: got {type(done).__name__}, expected a message or batch as the consumer has "
            f"handed it out{hint}"
        )
