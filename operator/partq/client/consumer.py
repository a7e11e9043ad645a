"""Consuming messages: in order per partition, each under a token, acknowledged when done."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar

from partq.aio import cancel_and_wait
from partq.client import arguments
from partq.client.consume.assignment.delivered_window import DeliveredWindow
from partq.client.consume.credit import CREDIT_BYTES, checked_credit
from partq.client.consume.flow import ConsumerFlow
from partq.client.consume.flow_set import FlowSet
from partq.client.consume.membership import (
    Membership,
    OnAssigned,
    OnError,
    OnLanes,
    OnRevoked,
    OnStanding,
)
from partq.client.consume.naming import member_name, member_path
from partq.client.consume.process import stop_signals
from partq.client.consume.process.heartbeat import Heartbeat
from partq.client.consume.seeks import ConsumerSeeks
from partq.client.consumer_stats import ConsumerStats, Tally
from partq.client.handout.interceptors import ConsumerInterceptor
from partq.client.hooks.serializers import ValueDeserializer, check_serializer
from partq.client.message_iterator import LEFT_BEFORE_ENTERING
from partq.client.partition_calls import PartitionCalls
from partq.client.transport.layout import QueueLayout
from partq.client.transport.layout_watch import LayoutWatch
from partq.client.transport.liveness import Clock, boot_time
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session
from partq.core.model import MAX_PRIORITY, PartitionId
from partq.excerpts import counted

log = logging.getLogger("partq.client")

LAST_ACKS_S = 1.0
"""How long closing waits for the answers to acks that are under way."""

T = TypeVar("T")


class Consumer(PartitionCalls):
    """One member of a consumer group; its partitions come and go as the group changes.

    ```python
    async with Consumer("http://127.0.0.1:7411", queue="orders", group="workers",
                        token=token) as consumer:
        async for message in consumer:
            handle(message.key, message.value)
            await consumer.ack(message)
    ```

    Messages of a partition come in order; in a group with `nack.order: Key` those of each key do.
    Leaving the block hands the partitions over.

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
        on_active: called with a partition that this member has, in groups of the types Failover and
            Exclusive: when the member binds, and at each change. Messages may come before a
            coroutine has ended.
        on_inactive: called with a partition that this member stands by for, in the same groups and
            at the same times, also by members that have no partition.
        on_lanes: called with a partition and the slots that this member has of it, as pairs (first,
            stop), in groups of type KeyShared: after `on_assigned`, and at each change.
        priority: in groups of the types Failover and Exclusive, 0 (the highest) to 9: partitions go
            to members of the highest priority that is there; in groups of the type Shared messages
            do. Groups of another type refuse all but 0. An annotation at its pod comes before it.
        ranges: where `keyShared.hashRange` is `Sticky`, the slots that this member wants, as pairs
            (first, stop) of 0 to 65,536, of whole parts; other groups refuse them.
        value_deserializer: called with the bytes of a message when its `value` is read, and
            returns that value. What it raises is raised there as `DeserializationError`. None:
            values are bytes.
        interceptors: see messages that are handed out, acknowledged and given back.
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

    _registers = False
    """Whether it registers partitions in groups whose members choose theirs."""

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
        on_active: OnStanding | None = None,
        on_inactive: OnStanding | None = None,
        on_lanes: OnLanes | None = None,
        priority: int = 0,
        ranges: Sequence[tuple[int, int]] = (),
        value_deserializer: ValueDeserializer | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
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
            {
                "on_assigned": on_assigned,
                "on_revoked": on_revoked,
                "on_error": on_error,
                "on_active": on_active,
                "on_inactive": on_inactive,
                "on_lanes": on_lanes,
            }
        )
        check_serializer("value_deserializer", value_deserializer)
        super().__init__(auto_ack=auto_ack, interceptors=interceptors)
        self.member = member = member_name(member)
        self._queue = queue
        self._group = group
        options = ConnectionOptions(url, queue, token=token, namespace=namespace, ca_file=ca_file)
        self._session = Session(options)
        self._membership = Membership(
            member,
            secrets.token_hex(8),
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_error=on_error,
            on_active=on_active,
            on_inactive=on_inactive,
            on_lanes=on_lanes,
            priority=arguments.whole("priority", priority, 0, MAX_PRIORITY),
            ranges=arguments.slot_ranges(ranges),
            value_deserializer=value_deserializer,
            wake=lambda: self._wake.set(),
        )
        self._credit = room
        self._handle_signals = handle_signals
        self._leave_timeout_s = leave_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._max_processing_s = max_processing_s
        self._clock = clock
        self._tally = Tally(clock)
        self._flows = FlowSet(self._open_flow, self._membership.raise_error)
        self._seeks = ConsumerSeeks(self._membership, self._flows)
        self._entering: asyncio.Task[QueueLayout] | None = None
        self._layout_watch: LayoutWatch | None = None
        """None until the consumer is open; it stays when the consumer closes."""
        self._heartbeat: Heartbeat | None = None
        self._is_finished = False
        """Nothing is handed out or waited for any more: it closes, or leaving has timed out."""
        self._leave_timer: asyncio.TimerHandle | None = None
        self._set_up()

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
            self._entered_loop.close()
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
            self._entered_loop.close()
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
        Before the block is entered the log warns: entering opens nothing, iterating ends at once.

        Raises:
            RuntimeError: from another event loop or thread; nothing has begun.
        """
        self._entered_loop.check()
        if self._membership.is_leaving:
            return
        self._membership.is_leaving = True
        if not self._entered_loop.is_entered:
            log.warning("member %s of group %s %s", self.member, self._group, LEFT_BEFORE_ENTERING)
            return
        log.info("member %s leaves group %s", self.member, self._group)
        if self._entering is not None:
            self._entering.cancel()
        self._say_leave()
        self._leave_timer = asyncio.get_running_loop().call_later(
            self._leave_timeout_s, self._leave_timed_out
        )
        self._wake.set()

    def _say_leave(self) -> None:
        """Tell each broker that the process is ending."""
        for flow in self._flows:
            flow.leave()

    async def unsubscribe(self, *, token: str | None = None) -> None:
        """Close, and remove the group for good: its place in every partition is forgotten.

        Only the last consumer of a group can, and only where the group is no ConsumerGroup on
        Kubernetes. Messages that only this group had not acknowledged are freed. What is refused
        leaves the consumer as it is.

        Args:
            token: of the role `admin`; None: the consumer's is one.

        Raises:
            ForbiddenError, UnauthorizedError: the token has not that role; nothing has happened.
            ConflictError: other members are connected, or the group belongs to a ConsumerGroup;
                nothing has happened. Where another member came meanwhile: the consumer is closed.
            UnavailableError, StoreUnavailableError: no answer, at first or within
                `leave_timeout_s` of closing; then `partq groups remove` does the rest.
            RuntimeError: the consumer is not open.
        """
        self._check_open()
        arguments.check_token(token)
        async with self._session.twin(token) as session:
            from partq.client.group_removal import GroupRemoval

            removal = GroupRemoval(session, self._group, self.member)
            await removal.check()
            await self._close()
            await removal.remove(max(1.0, self._leave_timeout_s))
        log.info("group %s is removed: member %s has unsubscribed", self._group, self.member)
        self._raise_untold()

    @property
    def queue(self) -> str:
        """The queue that it consumes."""
        return self._queue

    @property
    def group(self) -> str:
        """The consumer group that it is a member of."""
        return self._group

    def leave_on_signals(self) -> bool:
        """Let SIGTERM and Ctrl-C mean `leave`; False when the application handles both itself."""
        return stop_signals.add(self.leave)

    def stats(self) -> ConsumerStats:
        """Return what the consumer has received and acknowledged so far, and its rates.

        It costs about a microsecond per batch that is held ready: ask as often as once a second.
        Any thread may ask. From another one than the event loop's it waits for a turn of the loop.

        Raises:
            TimeoutError: the event loop has stood still for a second.
            RuntimeError: it was entered before this process was forked.
        """
        return self._entered_loop.make(self._snapshot)

    def _snapshot(self) -> ConsumerStats:
        held = self._membership.assigned
        return self._tally.snapshot(
            buffered=sum(each.buffered_count for each in held),
            in_hand=sum(each.in_hand_count for each in held),
        )

    # ---- inside ----

    def _check_open(self) -> None:
        self._entered_loop.check_not_closed()
        if self._layout_watch is None or self._is_finished:
            raise RuntimeError("the consumer is not open; use it inside `async with`")

    def share_wake(self, wake: asyncio.Event) -> None:
        """Have another event set with each change: one that several consumers share."""
        self._wake = wake

    def take_ready(
        self, take: Callable[[DeliveredWindow], T], partition: PartitionId | None = None
    ) -> T | None:
        """Return the next message or batch that is here, of one partition or of any.

        None: there is nothing. Raises as iterating.
        """
        self._membership.raise_error()
        return self._flows.take(take, partition)

    @property
    def has_ended(self) -> bool:
        """Whether it has left, or stopped with an error: nothing more is handed out."""
        return self._has_ended

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

    def _take(self, take: Callable[[DeliveredWindow], T]) -> T | None:
        return self.take_ready(take)

    async def _until(self, attempt: Callable[[], T | None]) -> T | None:
        self._entered_loop.check()
        await self._yield_turn()
        while True:
            result = attempt()
            if result is not None:
                return result
            if self._has_ended:
                return None
            self._check_open()
            await self._changed()

    async def _changes_until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is so; False: it is not within the time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not is_so():
                    await self._changed()
        except TimeoutError:
            return is_so()
        return True

    def _set_up(self) -> None:
        """Make what a subclass keeps."""

    async def _changed(self) -> None:
        """Wait for a change. Each caller looks at everything again, so one event serves all."""
        self._wake.clear()
        await self._wake.wait()

    def _apply_layout(self, queue_layout: QueueLayout) -> None:
        if self._group in queue_layout.client_assigned and not self._registers:
            self._membership.warn_that_it_registers_nothing(self._group)
        if self._layout_watch is not None and not self._membership.is_leaving:
            self._flows.follow(set(queue_layout.urls.values()))

    def _open_flow(self, url: str) -> ConsumerFlow:
        assert self._layout_watch is not None  # noqa: S101  flows are opened by its layouts
        return ConsumerFlow(
            self._membership,
            self._session,
            url=url,
            queue=self._queue,
            group=self._group,
            credit=self._credit,
            clock=self._clock,
            tally=self._tally,
            look_around=self._layout_watch.hurry,
            name_timeout_s=self._connect_timeout_s,
        )

    def _leave_timed_out(self) -> None:
        if self._membership.partitions:
            log.warning(
                "member %s: %s could not be handed over in time; that happens when the flow ends",
                self.member,
                counted(len(self._membership.partitions), "partition"),
            )
        self._is_finished = True
        self._wake.set()
