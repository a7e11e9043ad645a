"""Consuming by sessions: one is accepted, worked on in order, and closed, before the next."""

import asyncio
import logging
import secrets
from pathlib import Path
from typing import Self

from partq.aio import Pulse, TaskSet
from partq.client import arguments
from partq.client.consume.callbacks import Callbacks
from partq.client.consume.credit import CREDIT_BYTES, checked_credit
from partq.client.consume.membership import OnError
from partq.client.consume.naming import member_name, member_path
from partq.client.consume.process import stop_signals
from partq.client.consume.process.heartbeat import Heartbeat
from partq.client.consumer_stats import ConsumerStats, Tally
from partq.client.hooks.serializers import ValueDeserializer, check_serializer
from partq.client.sessions.acceptance import Acceptance
from partq.client.sessions.locked_session import LockedSession, OnLost
from partq.client.sessions.session_assignment import SessionAssignment
from partq.client.sessions.session_flow import SessionFlow
from partq.client.transport.layout import QueueLayout
from partq.client.transport.layout_watch import LayoutWatch
from partq.client.transport.liveness import Clock, boot_time
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import NOT_REACHED, Session, why
from partq.client.transport.tasks import EnteredLoop
from partq.core.model import Cause
from partq.errors import NoSessionError, PartqError, UnavailableError
from partq.path_names import quoted
from partq.wire.sessions.session_calls import ClosedSession, SessionLockBody

log = logging.getLogger("partq.client")

NEXT_S = 60.0
"""How long one request for the next session waits, while sessions are iterated over."""
LEAVE_S = 1.0
"""How long closing waits until what is queued is written."""


class SessionConsumer:
    """One member of a consumer group of the type Session.

    ```python
    async with SessionConsumer("http://127.0.0.1:7411", queue="orders", group="clerks",
                               token=token) as clerks:
        async with await clerks.accept(timeout_s=60) as session:
            async for message in session:
                handle(message.key, message.value)
                await session.ack(message)
    ```

    A session is all messages of one key. The consumer that has accepted it has it alone, until it
    is closed or its lock ends. A consumer may have several sessions at once, each in its own task.

    Args:
        url: one broker, or several with commas between them; they name the others.
        queue: name of the queue.
        group: name of the consumer group.
        token: bearer token with the role `consume` for the group.
        namespace: of the queue; None: the broker's.
        ca_file: PEM of the CAs that may sign the brokers' certificates; None: the system's.
        member: name in the group. None: the environment's PARTQ_MEMBER, else made of host name, pid
            and chance.
        idle_s: how long iterating over a session waits for its next message before it ends, in
            seconds, 0 to 86,400.
        max_lock_s: how long the library renews the lock of a session, in seconds, from 1 to
            604,800. Then it ends, in case the application hangs.
        on_lost: called with a `LockedSession` whose lock has ended before it was closed: stop
            working on it. A function or a coroutine function; it must not block.
        on_error: called with an error that stops only a part, such as `UndecodableError`. None:
            iterating over a session raises it, once, and can be started again.
        value_deserializer: called with the bytes of a message when its `value` is read, and
            returns that value. None: values are bytes.
        credit: messages to hold ready per broker, 1 to 1,000,000.
        credit_bytes: bytes of batches to hold ready per broker, as they are stored, 1 to 2**40.
        handle_signals: SIGTERM and Ctrl-C mean `leave`, each unless the application handles the
            signal itself.
        connect_timeout_s: seconds that entering waits for a broker, the queue and the group, 0 to
            86,400.
        max_processing_s: seconds that the event loop may stand still before the brokers give up
            the connection; 0 to 86,400. 0: they wait for 3 s.
        clock: returns seconds that never go back, time asleep included.

    Raises:
        SettingsError: an argument is of a wrong type or out of range; names it.
    """

    def __init__(
        self,
        url: str,
        *,
        queue: str,
        group: str,
        token: str | None = None,
        namespace: str | None = None,
        ca_file: str | Path | None = None,
        member: str | None = None,
        idle_s: float = 5.0,
        max_lock_s: float = 3600.0,
        on_lost: OnLost | None = None,
        on_error: OnError | None = None,
        value_deserializer: ValueDeserializer | None = None,
        credit: int = 1_000,
        credit_bytes: int = CREDIT_BYTES,
        handle_signals: bool = True,
        connect_timeout_s: float = 30.0,
        max_processing_s: float = 300.0,
        clock: Clock = boot_time,
    ) -> None:
        room = checked_credit(credit, credit_bytes)
        arguments.check_range("idle_s", idle_s, 0, arguments.MAX_TIME_S)
        arguments.check_range("max_lock_s", max_lock_s, 1, 7 * arguments.MAX_TIME_S)
        arguments.check_range("connect_timeout_s", connect_timeout_s, 0, arguments.MAX_TIME_S)
        arguments.check_range("max_processing_s", max_processing_s, 0, arguments.MAX_TIME_S)
        arguments.check_names({"group": group}, needed=("group",))
        arguments.check_flags({"handle_signals": handle_signals})
        arguments.check_clock(clock)
        arguments.check_functions({"on_lost": on_lost, "on_error": on_error})
        check_serializer("value_deserializer", value_deserializer)
        self.member = member_name(member)
        self.incarnation = secrets.token_hex(8)
        self.value_deserializer = value_deserializer
        self.clock = clock
        self.idle_s = idle_s
        self.max_lock_s = max_lock_s
        self._queue = queue
        self._group = group
        self._on_lost = on_lost
        self._on_error = on_error
        options = ConnectionOptions(url, queue, token=token, namespace=namespace, ca_file=ca_file)
        self._session = Session(options)
        self._credit = room
        self._handle_signals = handle_signals
        self._connect_timeout_s = connect_timeout_s
        self._max_processing_s = max_processing_s
        self._entered_loop = EnteredLoop("the consumer")
        self._tally = Tally(clock)
        self._callbacks = Callbacks(self.stop)
        self._flows: dict[str, SessionFlow] = {}
        self._sessions: dict[SessionAssignment, LockedSession] = {}
        self._changes = Pulse()
        self._closing = TaskSet()
        self._layout_watch: LayoutWatch | None = None
        self._heartbeat: Heartbeat | None = None
        self._fatal: Exception | None = None
        self._untold: list[PartqError] = []
        self._is_leaving = self._is_closed = False

    # ---- open and close ----

    async def __aenter__(self) -> Self:
        """Fetch the layout and open a flow to each broker.

        Raises:
            UnauthorizedError, ForbiddenError: at once.
            UnavailableError, UnknownQueueError, UnknownGroupError: nothing better came within
                `connect_timeout_s`.
            RuntimeError: it was entered before.
        """
        self._entered_loop.enter()
        await self._session.__aenter__()
        if self._handle_signals:
            stop_signals.add(self.leave)
        try:
            found = await self._session.first_layout(self._connect_timeout_s, self._group)
            url = next(iter(found.urls.values()), self._session.seeds[0])
            await self._session.check_rights(url, member_path(self._group, self.member))
        except BaseException:
            stop_signals.remove(self.leave)
            await self._session.__aexit__()
            raise
        self._credit = self._credit.at_most(max(1, found.max_unacked_per_flow))
        self._layout_watch = LayoutWatch(self._session, found, self._follow, self.stop)
        if self._max_processing_s:
            self._heartbeat = Heartbeat(
                self._session,
                lambda: list(self._flows.values()),
                incarnation=self.incarnation,
                max_processing_s=self._max_processing_s,
            )
        self._follow(found)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Close every session and the consumer."""
        await self.close()

    async def close(self) -> None:
        """Close every session that it has, and leave the group; what is left is redelivered."""
        self._entered_loop.check()
        if self._is_closed or self._layout_watch is None:
            self._is_closed = True
            return
        self._is_closed = True
        self.leave()
        try:
            closing = [session.end() for session in list(self._sessions.values())]
            await asyncio.gather(*closing)
        finally:
            self._entered_loop.close()
            stop_signals.remove(self.leave)
            await self._layout_watch.close()
            if self._heartbeat is not None:
                await self._heartbeat.close()
            flows = list(self._flows.values())
            for flow in flows:
                flow.leave()
            await asyncio.gather(*(flow.connection.hung_up(LEAVE_S) for flow in flows))
            await asyncio.gather(*(flow.connection.close() for flow in flows), *self._closing)
            await self._callbacks.close(LEAVE_S)
            await self._session.__aexit__()

    def leave(self) -> None:
        """Accept no further session: iterating over those that it has ends, as the process does."""
        self._entered_loop.check()
        self._is_leaving = True
        self.wake()
        for session in list(self._sessions.values()):
            session.changes.beat()

    # ---- sessions ----

    async def accept(
        self, session: str | None = None, *, timeout_s: float = 60.0, idle_s: float | None = None
    ) -> LockedSession:
        """Lock a session, and return it: the next one that has messages, or one by its name.

        All brokers are asked at once. Of the sessions that nobody has, a broker gives out the one
        whose first open message is the oldest; its partitions take turns, as do consumers that
        wait. A named session is locked also while it has no messages.

        Args:
            session: the key of its messages; None: any.
            timeout_s: seconds to wait for one, 0 to 86,400; 0: only what is there now. The answers
                of brokers that change may take 10 s more.
            idle_s: as of the consumer, for this session; None: the consumer's.

        Raises:
            NoSessionError: there was none within the time. That is no failure: accept again.
            SessionLockedError: another member, or this consumer, has the named session.
            UnavailableError: no broker could answer.
            RuntimeError: the consumer is not open, or is leaving.
            PartqError: what has stopped the consumer, such as a group that has no sessions.
        """
        self._entered_loop.check_not_closed()
        arguments.check_texts({"session": session})
        arguments.check_range("timeout_s", timeout_s, 0, arguments.MAX_TIME_S)
        if idle_s is not None:
            arguments.check_range("idle_s", idle_s, 0, arguments.MAX_TIME_S)
        if self._layout_watch is None:
            raise RuntimeError("the consumer is not open; use it inside `async with`")
        assigned = await Acceptance(
            self._open_flows,
            self._changes,
            session=session,
            timeout_s=timeout_s,
            is_held=lambda: self._holds(session),
            may_take=self._is_locked,
            check=self._check_accepting,
        ).run()
        return self._hold(assigned, self.idle_s if idle_s is None else idle_s)

    def __aiter__(self) -> Self:
        """Iterate over sessions: accept one after another, until the consumer leaves."""
        return self

    async def __anext__(self) -> LockedSession:
        """Return the next session; use it inside `async with`, which closes it.

        Raises: as `accept`, but for NoSessionError: it waits on.
        """
        while not self._is_leaving:
            try:
                return await self.accept(timeout_s=NEXT_S)
            except NoSessionError:
                continue
            except RuntimeError:
                if not self._is_leaving:
                    raise
        raise StopAsyncIteration

    @property
    def sessions(self) -> list[LockedSession]:
        """The sessions that it has now."""
        return list(self._sessions.values())

    @property
    def queue(self) -> str:
        """The queue that it consumes."""
        return self._queue

    @property
    def group(self) -> str:
        """The consumer group that it is a member of."""
        return self._group

    def stats(self) -> ConsumerStats:
        """Return what the consumer has received and acknowledged so far, and its rates.

        Raises:
            TimeoutError: the event loop has stood still for a second.
            RuntimeError: it was entered before this process was forked.
        """
        return self._entered_loop.make(self._snapshot)

    def _snapshot(self) -> ConsumerStats:
        held = list(self._sessions)
        return self._tally.snapshot(
            buffered=sum(each.buffered_count for each in held),
            in_hand=sum(each.in_hand_count for each in held),
        )

    # ---- for flows and sessions ----

    @property
    def is_leaving(self) -> bool:
        """Whether it hands out nothing more."""
        return self._is_leaving

    def wake(self) -> None:
        """Have all calls of `accept` look again."""
        self._changes.beat()

    def hurry_layout(self) -> None:
        """Have the layout read again soon."""
        if self._layout_watch is not None:
            self._layout_watch.hurry()

    def stop(self, error: Exception) -> None:
        """Note that the consumer cannot continue; every call raises that."""
        self._fatal = self._fatal or error
        self.wake()
        for session in list(self._sessions.values()):
            session.changes.beat()

    def report(self, error: PartqError) -> None:
        """Tell an error that stops only a part: to the callback, else by raising it once."""
        log.error("%s", error)
        if self._on_error is not None:
            self._callbacks.call(None, self._on_error, error)
        else:
            self._untold.append(error)

    def check(self) -> None:
        """Raise what was not told by a callback, or why the consumer has stopped."""
        if self._untold:
            raise self._untold.pop(0)
        if self._fatal is not None:
            raise self._fatal

    def ended(self, assigned: SessionAssignment, cause: Cause, *, is_lost: bool) -> None:
        """Learn that the right to a session has ended at its broker."""
        session = self._sessions.get(assigned)
        if session is not None:
            session.ended(cause, is_lost=is_lost)

    async def reaccept(self, session: LockedSession, timeout_s: float) -> SessionAssignment:
        """Ask for a session that the consumer had, under the number of its lock.

        Raises: as `accept`, and SessionLostError: its lock has ended.
        """
        before = session.assigned
        acceptance = Acceptance(
            lambda: self._flows.values(),
            self._changes,
            session=session.session_id,
            timeout_s=0,
            lock=session.lock,
            check=self.check,
        )
        try:
            async with asyncio.timeout(timeout_s):
                assigned = await acceptance.run()
        except TimeoutError:
            raise UnavailableError(
                f"session of lock {session.lock}: no broker has answered before the lock ended; "
                "stop working on the session"
            ) from None
        self._sessions.pop(before, None)
        self._sessions[assigned] = session
        return assigned

    async def unlock(self, session: LockedSession) -> None:
        """End a lock over any broker, as the connection to the session's was lost.

        Raises:
            PartqError: no broker has ended it.
        """
        body = SessionLockBody(self.member, self.incarnation, session.session_id, session.lock)
        path = f"/groups/{quoted(self._group, 'group')}/sessions/close"
        error: PartqError | None = None
        for url in [*self._flows, *self._session.seeds]:
            try:
                await self._session.call("POST", url, path, ClosedSession, body)
                return
            except NOT_REACHED as reason:
                error = UnavailableError(why(url, reason))
            except PartqError as reason:
                error = reason
        if error is not None:
            raise error

    def lost(self, session: LockedSession) -> None:
        """Tell the application that a session was lost."""
        if self._on_lost is not None:
            self._callbacks.call(None, self._on_lost, session)

    def forget(self, session: LockedSession) -> None:
        """Learn that a session has ended."""
        self._sessions.pop(session.assigned, None)
        self.wake()

    def give_back(self, session: LockedSession) -> None:
        """Close a session that was accepted and never seen, without waiting for that."""
        self._closing.start(session.end())

    # ---- inside ----

    def _check_accepting(self) -> None:
        self.check()
        if self._is_leaving:
            raise RuntimeError("the consumer is leaving: it accepts no further session")

    def _open_flows(self) -> list[SessionFlow]:
        return list(self._flows.values())

    def _holds(self, name: str | None) -> bool:
        return any(each.session_id == name for each in self._sessions.values())

    def _is_locked(self, assigned: SessionAssignment) -> bool:
        """Say whether its lock lasts still: a process that stood still may take it too late."""
        return assigned.locked_until > self.clock()

    def _hold(self, assigned: SessionAssignment, idle_s: float) -> LockedSession:
        session = self._sessions[assigned] = LockedSession(self, assigned, idle_s)
        return session

    def _follow(self, queue_layout: QueueLayout) -> None:
        """Open flows to new brokers; forget brokers that are gone."""
        if self._is_leaving or self._layout_watch is None:
            return
        urls = set(queue_layout.urls.values())
        for url in sorted(urls - set(self._flows)):
            self._flows[url] = self._open_flow(url)
        for url in sorted(set(self._flows) - urls):
            if not self._flows[url].connection.is_up:  # while it answers, it may know better
                self._closing.start(self._flows.pop(url).connection.close())
        self.wake()

    def _open_flow(self, url: str) -> SessionFlow:
        return SessionFlow(
            self,
            self._session,
            url=url,
            queue=self._queue,
            group=self._group,
            credit=self._credit,
            clock=self.clock,
            tally=self._tally,
            name_timeout_s=self._connect_timeout_s,
        )
