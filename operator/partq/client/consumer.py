"""Consuming messages: in order per partition, each under a token, acknowledged when done."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Self, TypeVar

from partq.aio import cancel_and_wait
from partq.client import arguments
from partq.client.consume import stop_signals
from partq.client.consume.acknowledger import Acknowledger
from partq.client.consume.assigned_partition import DeliveredWindow
from partq.client.consume.caller import Caller
from partq.client.consume.deliveries import Batch, Delivery
from partq.client.consume.flow import CREDIT_BYTES, ConsumerFlow, checked_credit, member_path
from partq.client.consume.flow_set import FlowSet
from partq.client.consume.heartbeat import Heartbeat
from partq.client.consume.membership import Membership, OnAssigned, OnError, OnRevoked
from partq.client.consume.naming import member_name
from partq.client.transport.layout import QueueLayout
from partq.client.transport.layout_watch import LayoutWatch
from partq.client.transport.liveness import Clock, boot_time
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session
from partq.core.model import PartitionId
from partq.excerpts import counted

log = logging.getLogger("partq.client")

LAST_ACKS_S = 1.0
"""How long closing waits for the answers to acks that are under way."""
MAX_TURN_S = 0.01
"""How long messages are handed out before the event loop gets a turn, for acks and pings."""

T = TypeVar("T")


class Consumer(Acknowledger):
    """One member of a consumer group; its partitions come and go as the group changes.

    ```python
    async with Consumer("http://127.0.0.1:7411", queue="orders", group="workers",
                        token=token) as consumer:
        async for message in consumer:
            handle(message.key, message.value)
            await consumer.ack(message)
    ```

    Messages of a partition come in order. Leaving the block hands the partitions over.

    Args:
        url: one broker, or several with commas between them; they name the others.
        queue: name of the queue.
        group: name of the consumer group.
        token: bearer token with the role `consume` for the group.
        namespace: of the queue; None: the broker's.
        ca_file: PEM of the CAs that may sign the brokers' certificates; None: the system's.
        member: name in the group, the same after a restart if partitions are to come back to it.
            None: the environment's PARTQ_MEMBER, else made of host name, pid and chance.
        on_assigned: called with a partition before its first message.
        on_revoked: called with a partition and the cause; begun messages of it may be processed
            elsewhere from now on, and their acks are refused.
        on_error: called with an error that stops only a part, such as `UndecodableError`; the
            others continue. None: iterating raises it, once, and can be started again.
        auto_ack: acknowledge what was handed out when the next is asked for.
        credit: messages to hold ready per broker, 1 to 1,000,000; the queue's limit of
            unacknowledged messages per flow bounds it.
        credit_bytes: bytes of batches to hold ready per broker, as they are stored, 1 to 2**40;
            one batch always comes, however large it is.
        handle_signals: SIGTERM and Ctrl-C mean `leave`, each unless the application handles the
            signal itself. A second Ctrl-C raises KeyboardInterrupt at once; closing waits no more.
        leave_timeout_s: seconds that `leave` waits for the partitions to be taken over, 0 to
            86,400.
        connect_timeout_s: seconds that entering waits for a broker, the queue and the group, 0 to
            86,400; the log says what is missing. Iterating raises `MemberInUseError` when another
            process has had the member's name for this long.
        max_processing_s: seconds that the event loop may stand still, as in a handler that blocks
            it, before the partitions go to other members; 0 to 86,400. A thread of the consumer
            tells the brokers meanwhile that it lives. 0: no thread, and brokers wait for 3 s.
        clock: returns seconds that never go back, time asleep included.

    Callbacks are functions or coroutine functions. They run in the event loop and must not block;
    coroutines are awaited, those of one partition one after the other. What one raises stops the
    consumer: iterating raises it, or leaving the block.

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
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
        on_error: OnError | None = None,
        auto_ack: bool = False,
        credit: int = 10_000,
        credit_bytes: int = CREDIT_BYTES,
        handle_signals: bool = True,
        leave_timeout_s: float = 25.0,
        connect_timeout_s: float = 30.0,
        max_processing_s: float = 300.0,
        clock: Clock = boot_time,
    ) -> None:
        room = checked_credit(credit, credit_bytes)
        arguments.check_range("leave_timeout_s", leave_timeout_s, 0, arguments.MAX_TIME_S)
        arguments.check_range("connect_timeout_s", connect_timeout_s, 0, arguments.MAX_TIME_S)
        arguments.check_range("max_processing_s", max_processing_s, 0, arguments.MAX_TIME_S)
        arguments.check_names({"group": group}, needed=("group",))
        arguments.check_flags({"auto_ack": auto_ack, "handle_signals": handle_signals})
        arguments.check_clock(clock)
        arguments.check_functions(
            {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_error": on_error}
        )
        super().__init__()
        self.member = member = member_name(member)
        self._queue = queue
        self._group = group
        options = ConnectionOptions(url, queue, token=token, namespace=namespace, ca_file=ca_file)
        self._session = Session(options)
        self._wake = asyncio.Event()
        self._membership = Membership(
            member,
            secrets.token_hex(8),
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_error=on_error,
            wake=self._wake.set,
        )
        self._auto_ack = auto_ack
        self._credit = room
        self._handle_signals = handle_signals
        self._leave_timeout_s = leave_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._max_processing_s = max_processing_s
        self._clock = clock
        self._flows = FlowSet(self._open_flow, self._membership.raise_error)
        self._entering: asyncio.Task[QueueLayout] | None = None
        self._layout_watch: LayoutWatch | None = None
        """None until the consumer is open; it stays when the consumer closes."""
        self._heartbeat: Heartbeat | None = None
        self._is_finished = False
        """Nothing is handed out or waited for any more: it closes, or leaving has timed out."""
        self._leave_timer: asyncio.TimerHandle | None = None
        self._turn_ends_at = 0.0

    # ---- open and close ----

    async def __aenter__(self) -> Self:
        """Fetch the layout and open a flow to each broker.

        Told to leave meanwhile, it opens none, and iterating ends at once.

        Raises:
            UnauthorizedError, ForbiddenError: at once.
            UnavailableError, UnknownQueueError, UnknownGroupError: nothing better came within
                `connect_timeout_s`.
            RuntimeError: it was entered before.
        """
        self._entered_loop.enter()
        await self._session.__aenter__()
        if self._handle_signals:
            self.leave_on_signals()
        first_layout = self._session.first_layout(self._connect_timeout_s, self._group)
        self._entering = asyncio.create_task(first_layout)
        if self._membership.is_leaving:  # told before
            self._entering.cancel()
        queue_layout = None
        try:
            await asyncio.wait([self._entering])
            if not self._entering.cancelled():
                found = self._entering.result()
                url = next(iter(found.urls.values()), self._session.seeds[0])
                await self._session.check_rights(url, member_path(self._group, self.member))
                queue_layout = found
        finally:
            if queue_layout is None:
                await cancel_and_wait(self._entering)
                await self._end()
        if queue_layout is None:
            return self
        self._credit = self._credit.at_most(max(1, queue_layout.max_unacked_per_flow))
        self._layout_watch = LayoutWatch(
            self._session, queue_layout, self._apply_layout, self._membership.stop
        )
        if self._max_processing_s:
            self._heartbeat = Heartbeat(
                self._session,
                lambda: list(self._flows),
                incarnation=self._membership.incarnation,
                max_processing_s=self._max_processing_s,
            )
        self._apply_layout(queue_layout)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Leave the group and close; raises as `close`, unless an exception leaves the block."""
        await self._close()
        if error is None:
            self._raise_untold()

    async def close(self) -> None:
        """Leave the group, wait for the handover (at most `leave_timeout_s`), and close.

        What was handed out and not acknowledged is given back at once, and delivered to another
        member.

        Raises:
            FencedError and others: an `ack` was refused and no call has reported it; it is closed.
            Exception: what a callback has raised, if iterating has not told it.
        """
        await self._close()
        self._raise_untold()

    def _raise_untold(self) -> None:
        self._membership.raise_failed_callback()
        self._acks.raise_error()

    async def _close(self) -> None:
        self._entered_loop.check()
        if self._layout_watch is None:
            return
        try:
            self.leave()
            if not stop_signals.is_interrupted():
                await self._answered(LAST_ACKS_S)
                # A caller that leaves the block acknowledges nothing more.
                await self._flows.give_back(LAST_ACKS_S, must=self._membership.fatal is not None)
            while not self._has_ended and not stop_signals.is_interrupted():
                await self._changed()
        finally:
            self._is_finished = True
            self._wake.set()
            await self._layout_watch.close()
            if self._heartbeat is not None:
                await self._heartbeat.close()
            await self._flows.close()
            last_s = 0 if stop_signals.is_interrupted() else self._leave_timeout_s
            await self._membership.callbacks.close(last_s)
            await self._end()

    def leave(self) -> None:
        """Have the partitions handed over, because the process is ending.

        Begun messages can be acknowledged, and what comes before each handover is handed out;
        iterating ends when every partition is taken over, after `leave_timeout_s` at the latest.
        Before the block is entered: entering waits for nothing, and iterating ends at once.

        Raises:
            RuntimeError: from another event loop or thread; nothing has begun.
        """
        self._entered_loop.check()
        if self._membership.is_leaving:
            return
        self._membership.is_leaving = True
        log.info("member %s leaves group %s", self.member, self._group)
        if not self._entered_loop.is_entered:
            return
        if self._entering is not None:
            self._entering.cancel()
        for flow in self._flows:
            flow.leave()
        self._leave_timer = asyncio.get_running_loop().call_later(
            self._leave_timeout_s, self._leave_timed_out
        )
        self._wake.set()

    def leave_on_signals(self) -> bool:
        """Let SIGTERM and Ctrl-C mean `leave`; False when the application handles both itself."""
        return stop_signals.add(self.leave)

    @property
    def partitions(self) -> frozenset[PartitionId]:
        """The partitions that this member holds now."""
        return self._membership.partitions

    # ---- take messages ----

    def __aiter__(self) -> Self:
        """Iterate over messages, until the consumer has left; a closed one returns no message."""
        return self

    async def __anext__(self) -> Delivery:
        """Return the next message. Raises what has stopped the consumer, or a partition."""
        if self._auto_ack and self._current is not None:
            self.ack_nowait(self._current)
        self._current = None
        delivery = await self._next(DeliveredWindow.take_one)
        if delivery is None:
            raise StopAsyncIteration
        self._current = delivery
        return delivery

    async def batches(self) -> AsyncIterator[Batch]:
        """Iterate over batches: faster, as no Python object is made for each message."""
        while (batch := await self._next(DeliveredWindow.take_all)) is not None:
            yield batch
            if self._auto_ack:
                self.ack_nowait(batch)

    async def run(
        self, callback: Callable[[Delivery], Awaitable[None] | None], *, in_thread: bool = False
    ) -> None:
        """Call `callback` with one message after another until the consumer has left.

        With `auto_ack` a message is acknowledged when the callback returns; without, by the
        callback. What it raises ends the run, and the message is not acknowledged.

        Args:
            callback: a function or a coroutine function.
            in_thread: call it in a separate thread, always the same one, so that it may block:
                for a function that is no coroutine. With it use `auto_ack`, or
                `asyncio.run_coroutine_threadsafe(consumer.ack(message), loop)`. When the run is
                cancelled, the call under way is waited for.

        Raises:
            TypeError: no function, no bool, or a coroutine function in a thread; nothing was taken.
        """
        with Caller(callback, in_thread=in_thread) as call:
            async for delivery in self:
                try:
                    await call(delivery)
                except BaseException:
                    self._current = None
                    raise

    # ---- inside ----

    async def _end(self) -> None:
        if self._leave_timer is not None:
            self._leave_timer.cancel()
        stop_signals.remove(self.leave)
        await self._session.__aexit__()

    @property
    def _has_ended(self) -> bool:
        membership = self._membership
        return (
            self._is_finished
            or membership.fatal is not None
            or (membership.is_leaving and not membership.partitions)
        )

    async def _next(self, take: Callable[[DeliveredWindow], T]) -> T | None:
        """Return the next message or batch; None when the consumer has left."""
        self._entered_loop.check()
        time = asyncio.get_running_loop().time
        if time() >= self._turn_ends_at:
            # Without it an application that waits for nothing would send no ack and no ping.
            await asyncio.sleep(0)
            self._turn_ends_at = time() + MAX_TURN_S
        while True:
            self._membership.raise_error()
            taken = self._flows.take(take)
            if taken is not None:
                return taken
            if self._has_ended:
                return None
            if self._layout_watch is None:
                raise RuntimeError("the consumer is not open; use it inside `async with`")
            await self._changed()

    async def _changed(self) -> None:
        """Wait for a change. Each caller looks at everything again, so one event serves all."""
        self._wake.clear()
        await self._wake.wait()

    def _apply_layout(self, queue_layout: QueueLayout) -> None:
        if self._layout_watch is not None and not self._membership.is_leaving:
            self._flows.follow(set(queue_layout.urls.values()))

    def _open_flow(self, url: str) -> ConsumerFlow:
        assert self._layout_watch is not None  # noqa: S101  flows are opened by its layouts
        return ConsumerFlow(
            self._membership,
            self._session,
            url=url,
            group=self._group,
            credit=self._credit,
            clock=self._clock,
            look_around=self._layout_watch.hurry,
            name_timeout_s=self._connect_timeout_s,
        )

    def _leave_timed_out(self) -> None:
        if self._membership.partitions:
            log.warning(
                "member %s: %s not taken over in time; that happens when the flow ends",
                self.member,
                counted(len(self._membership.partitions), "partition"),
            )
        self._is_finished = True
        self._wake.set()
