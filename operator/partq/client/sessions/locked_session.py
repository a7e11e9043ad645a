"""A session that this consumer has: its messages in order, its state, its lock."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, Self

from partq.aio import Pulse, cancel_and_wait
from partq.client import arguments
from partq.client.consume.acknowledger import Acknowledger
from partq.client.consume.deliveries import Batch, Delivery
from partq.client.sessions.session_assignment import SessionAssignment
from partq.client.transport import tasks
from partq.client.transport.liveness import Clock
from partq.client.transport.retries import retry_backoff
from partq.core.dead_letters import LetterNote
from partq.core.model import Cause, PartitionId
from partq.errors import (
    BadRequestError,
    FencedError,
    PartqError,
    SessionLockedError,
    SessionLostError,
    UnavailableError,
)
from partq.excerpts import excerpt

log = logging.getLogger("partq.client")

OnLost = Callable[["LockedSession"], object]

CLOSE_S = 5.0
"""How long closing waits for the broker's word that the session is unlocked."""
RENEW_SHARE = 3
"""A lock is renewed when a third of its length is over."""


class SessionHost(Protocol):
    """The consumer that has the session."""

    clock: Clock
    idle_s: float
    max_lock_s: float

    @property
    def is_leaving(self) -> bool:
        """Whether the consumer hands out nothing more."""

    def check(self) -> None:
        """Raise what has stopped the consumer."""

    async def reaccept(self, session: "LockedSession", timeout_s: float) -> SessionAssignment:
        """Ask for a session that the consumer had, under the number of its lock."""

    async def unlock(self, session: "LockedSession") -> None:
        """End a lock over any broker, as the connection to the session's was lost."""

    def lost(self, session: "LockedSession") -> None:
        """Tell the application that a session was lost."""

    def forget(self, session: "LockedSession") -> None:
        """Learn that a session has ended."""


class LockedSession(Acknowledger):
    """One session, which nobody else has until it is closed or its lock has ended.

    ```python
    async with await clerks.accept(timeout_s=60) as session:
        async for message in session:
            state = update(await session.state(), message)
            await session.ack(message, state=state)
    ```

    Iterating hands out its messages in order, and ends when none has come for `idle_s`, when the
    consumer leaves, or when the session is closed. It may begin again. The library renews the lock.
    `ack`, `nack`, `dead_letter`, `in_progress` and `flush` are those of a consumer, for messages
    of this session: others are refused with `BadRequestError`. Leaving the block closes it.

    When the connection to its broker is lost, or another broker takes the partition over, the
    session goes on at the next broker, under the same lock. Acks of what was handed out before are
    refused with `FencedError`, and those messages are redelivered, with a cause.

    Made by `SessionConsumer.accept` alone.
    """

    def __init__(self, host: SessionHost, assigned: SessionAssignment, idle_s: float) -> None:
        super().__init__()
        self._entered_loop.enter()
        self._host = host
        self._assigned = assigned
        self.changes = Pulse()
        """Beats when something of it may be handed out, or it has ended."""
        assigned.changes = self.changes
        self._idle_s = idle_s
        self._lock = assigned.lock
        self._partition = assigned.partition
        self._session = assigned.session
        self._locked_until = assigned.locked_until
        self._renewed_at = host.clock()
        self._renewals_end = self._renewed_at + host.max_lock_s
        self._in_hand: dict[int, Delivery] = {}
        self._put_back: list[Delivery] = []
        """What an interrupted call had taken; the next one hands it out."""
        self._is_closed = False
        self._why_lost: str | None = None
        self.lost_cause: Cause | None = None
        """Why the lock has ended before the session was closed; None: it has not."""
        self._closing: asyncio.Task[None] | None = None
        self._keeper = tasks.start(
            self._keep(),
            f"keeping {assigned}",
            lambda error: self._lose(Cause.FLOW_LOST, str(error)),
        )

    # ---- what it is ----

    @property
    def session_id(self) -> str:
        """The key of its messages; of a message without a key a name such as `@1.3:4711`."""
        return self._session

    @property
    def partition(self) -> PartitionId:
        """The partition that its messages are stored in."""
        return self._partition

    @property
    def lock(self) -> int:
        """The number of its lock: a later lock of the session has a higher one."""
        return self._lock

    @property
    def locked_s(self) -> float:
        """How long the lock lasts from now on without another renewal, in seconds."""
        return max(0.0, self._locked_until - self._host.clock())

    @property
    def is_lost(self) -> bool:
        """Whether the lock has ended before the session was closed."""
        return self.lost_cause is not None

    @property
    def is_closed(self) -> bool:
        """Whether the session was closed, or lost."""
        return self._is_closed or self.is_lost

    def __repr__(self) -> str:
        return f"LockedSession({self._session!r}, partition {self._partition}, lock {self._lock})"

    # ---- its messages ----

    def __aiter__(self) -> Self:
        """Iterate over its messages until none comes for `idle_s`."""
        return self

    async def __anext__(self) -> Delivery:
        """Return the next message.

        Raises:
            SessionLostError: the lock has ended; what was handed out is redelivered.
            UndecodableError and others: what has stopped the consumer, or a part of it.
        """
        message = await self.receive(timeout_s=self._idle_s)
        if message is None:
            raise StopAsyncIteration
        return message

    async def receive(self, *, timeout_s: float | None = None) -> Delivery | None:
        """Return the next message; None: none came within the time, or the session was closed.

        `timeout_s`: seconds, from 0 to 86,400; None: `idle_s`. It does not run while the session
        has no broker.

        Raises: as iterating.
        """
        self._entered_loop.check()
        if timeout_s is None:
            timeout_s = self._idle_s
        arguments.check_range("timeout_s", timeout_s, 0, arguments.MAX_TIME_S)
        time = asyncio.get_running_loop().time
        deadline = time() + timeout_s
        while True:
            self._is_over()
            self._check_lost()
            if self._is_closed or self._host.is_leaving:
                return None
            self._host.check()
            changed = self.changes.next()
            assigned = self._assigned
            if self._put_back and not assigned.is_ended:
                return self._put_back.pop(0)
            message = None if assigned.is_ended else assigned.flow.next_message(assigned)
            if message is not None:
                self._hand_out(message)
                return message
            if assigned.is_ended or not self._assigned.flow.is_valid():
                deadline = max(deadline, time() + timeout_s)
            left_s = deadline - time()
            if left_s <= 0 and not assigned.is_ended:
                return None
            await asyncio.wait([changed], timeout=max(0.05, left_s))

    async def state(self, message: Delivery | None = None) -> bytes | None:
        """Return the state of the session: what the last ack with a state has left; None: none.

        Acks that this consumer has given count, also those that are not stored yet.

        Raises:
            BadRequestError: the session is of a message without a key.
            SessionLostError, FencedError: the lock has ended, or the connection was lost, or the
                session was closed.
        """
        self._check_lost()
        self._check_closed()
        if message is not None:
            return await super().state(message)
        self._entered_loop.check()
        return await asyncio.shield(self._assigned.read_state(self._session))

    async def renew(self) -> None:
        """Have the lock last as long as a new one from now on; the library does so by itself.

        Raises:
            SessionLostError: the lock has ended.
            FencedError: the session was closed.
            UnavailableError: no broker has answered; it may be renewed, or not.
        """
        self._entered_loop.check()
        self._check_lost()
        self._check_closed()
        try:
            async with asyncio.timeout(self.locked_s):
                await self._renew()
        except TimeoutError:
            raise UnavailableError(
                f"renew: {self._assigned}: no broker has answered in the time of the lock; it has "
                "ended, unless it was renewed: stop working on the session"
            ) from None

    async def close(self) -> None:
        """Unlock the session; what was handed out and not acknowledged is given back, and counts.

        It returns once the session is unlocked, after 5 s at the latest; a lock that could not be
        ended ends when its time is over.

        Raises:
            FencedError and others: an `ack` was refused and no call has reported it; it is closed.
        """
        self._entered_loop.check()
        await self._close()
        self._acks.raise_error()

    async def __aenter__(self) -> Self:
        """Return the session, which is locked already."""
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Close the session; raises as `close`, unless an exception leaves the block."""
        await self._close()
        if error is None:
            self._acks.raise_error()

    # ---- for the consumer ----

    def put_back(self, message: Delivery) -> None:
        """Hold a message again that was handed out and never seen."""
        if self._assigned.is_in_hand(message.offset):
            self._put_back.append(message)

    @property
    def assigned(self) -> SessionAssignment:
        """The right to it at its broker of now, or of before."""
        return self._assigned

    async def end(self) -> None:
        """Close the session, with no word of refused acks."""
        await self._close()

    def ended(self, cause: Cause, *, is_lost: bool) -> None:
        """Learn that the right to it has ended: its lock has, too, or it is asked for again."""
        self._in_hand.clear()
        self._put_back.clear()
        if is_lost:
            self._lose(cause, "the broker says that its lock has ended")
        self.changes.beat()

    # ---- inside ----

    def _check(self, call: str, done: object) -> None:
        super()._check(call, done)
        self._check_lost()
        self._check_closed()
        batch = done.batch if isinstance(done, Delivery) else done
        target = batch.target if isinstance(batch, Batch) else None
        if not isinstance(target, SessionAssignment) or target.session != self._session:
            of = "another consumer"
            if isinstance(target, SessionAssignment):
                of = f"session {excerpt(target.session)!r}"
            raise BadRequestError(
                f"{call}: session {excerpt(self._session)!r}: got a message of {of}, expected one "
                "that this session has handed out; nothing was changed: call it there"
            )

    def _check_closed(self) -> None:
        if self._is_closed and self._assigned.is_ended:
            raise FencedError(
                f"session {excerpt(self._session)!r}: it was closed here, and what it had not "
                "acknowledged is redelivered; accept it again to go on"
            )

    def _is_over(self) -> bool:
        """Say whether its time is over; it is lost then, before `_keep` comes to that."""
        is_over = self._host.clock() >= self._locked_until
        if is_over:
            self._lose(Cause.FLOW_LOST, "its lock was not renewed in time")
        return is_over

    def _check_lost(self) -> None:
        if self._why_lost is not None:
            raise SessionLostError(self._why_lost)

    def _lose(self, cause: Cause, why: str) -> None:
        if self.is_closed:
            return
        self.lost_cause = cause
        self._why_lost = (
            f"session {excerpt(self._session)!r}: {why}; another member may have it: stop working "
            "on its messages, those without a stored ack are redelivered; accept it again to go on"
        )
        log.warning("%s", self._why_lost)
        self._in_hand.clear()
        self._host.forget(self)
        self._host.lost(self)
        self.changes.beat()

    async def _keep(self) -> None:
        """Renew the lock, and get the session back when its broker is lost."""
        backoff = retry_backoff(1.0)
        while not self.is_closed:
            if self._is_over():
                return
            now = self._host.clock()
            if self._assigned.is_ended:
                await self._come_back()
                continue
            changed = self.changes.next()
            length_s = self._locked_until - self._renewed_at
            due_s = self._renewed_at + length_s / RENEW_SHARE - now
            if now >= self._renewals_end:
                due_s = self._locked_until - now
            elif due_s <= 0:
                try:
                    async with asyncio.timeout(self._locked_until - now):
                        await self._renew()
                    backoff.reset()
                    continue
                except TimeoutError:
                    continue
                except SessionLostError as error:
                    self._lose(Cause.FLOW_LOST, error.message)
                    return
                except PartqError as error:
                    log.info("%s: the lock is not renewed yet: %s", self._assigned, error)
                    due_s = backoff.next_s(error.retry_after_s)
            await asyncio.wait([changed], timeout=max(0.01, due_s))

    async def _renew(self) -> None:
        assigned, asked_at = self._assigned, self._host.clock()
        await asyncio.shield(self._assigned.flow.renew(assigned))
        if self._assigned is assigned:
            self._renewed_at = asked_at
            self._locked_until = max(self._locked_until, assigned.locked_until)

    async def _come_back(self) -> None:
        """Have the session again, at whichever broker has its partition now."""
        left_s = self._locked_until - self._host.clock()
        asked_at = self._host.clock()
        try:
            assigned = await self._host.reaccept(self, max(0.0, left_s))
        except (FencedError, SessionLockedError) as error:
            self._lose(Cause.FLOW_LOST, error.message)
            return
        except PartqError as error:
            log.info("session %s is not back yet: %s", excerpt(self._session), error)
            await asyncio.sleep(0.1)
            return
        self._assigned = assigned
        self._partition, self._lock = assigned.partition, assigned.lock
        assigned.changes = self.changes
        self._renewed_at, self._locked_until = asked_at, assigned.locked_until
        log.info("%s: goes on, under lock %d", assigned, self._lock)
        self.changes.beat()

    async def _close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._end())
        await asyncio.shield(self._closing)

    async def _end(self) -> None:
        if self.is_closed:
            return
        self._is_closed = True
        await cancel_and_wait(self._keeper)
        is_connected = not self._assigned.is_ended
        self._give_in_hand_back()
        closed = self._assigned.flow.close_session(self._assigned)
        self.changes.beat()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._answered()
                if is_connected:
                    with suppress(UnavailableError):
                        await closed
                        return
                await self._host.unlock(self)
        except (PartqError, TimeoutError) as error:
            log.info("session %s may be locked a while yet: %s", excerpt(self._session), error)
        finally:
            self._host.forget(self)

    def _hand_out(self, message: Delivery) -> None:
        if len(self._in_hand) >= 2 * self._assigned.in_hand_count + 16:
            self._in_hand = {
                offset: each
                for offset, each in self._in_hand.items()
                if self._assigned.is_in_hand(offset)
            }
        self._in_hand[message.offset] = message

    def _give_in_hand_back(self) -> None:
        """Give back what the application has begun and said nothing of: it counts."""
        by_batch: dict[int, list[Delivery]] = {}
        for message in self._in_hand.values():
            if not self._assigned.is_ended and self._assigned.is_in_hand(message.offset):
                by_batch.setdefault(id(message.batch), []).append(message)
        for messages in by_batch.values():
            messages[0].batch.give_back([each.offset for each in messages], 0, LetterNote())
        self._in_hand.clear()
