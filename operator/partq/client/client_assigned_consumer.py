"""A consumer whose application chooses its partitions, in a group with `assignment: Client`."""

import asyncio
import logging
from collections.abc import Mapping
from importlib.metadata import version
from typing import Self

from partq.aio import TaskSet
from partq.client import arguments
from partq.client.consume.assignment.delivered_window import DeliveredWindow
from partq.client.consume.deliveries import Batch, Delivery
from partq.client.consumer import Consumer
from partq.client.partition_key import PartitionKey
from partq.client.registration.registration_calls import (
    ConfiguredPartitionInfo,
    Registration,
    RegistrationCalls,
    configured_partition_info,
    registration_of,
)
from partq.client.registration.registrations import CALL_TIMEOUT_S, HAS_LEFT, Registrations
from partq.core.model import PartitionId
from partq.core.slot_table import MAX_PARTITION_COUNT
from partq.errors import FencedError, PartqError, SettingsError
from partq.excerpts import excerpt
from partq.wire.calls.bodies import MAX_NATURAL

log = logging.getLogger("partq.client")


class ClientAssignedConsumer(Consumer):
    """A member of a group with `assignment: Client`: the application says which partitions.

    ```python
    async with ClientAssignedConsumer(url, queue="orders", group="workers", token=token) as c:
        await c.start(source_count=3, node_id=0)
        for place, key in enumerate(sorted(await c.query_partitions())):
            if place % 3 == 0:
                await c.register(key)
        async for batch in c.batches():
            handle(batch)
            await c.confirm(batch)
    ```

    Its arguments, and everything about messages, are those of `Consumer`. Nothing is registered or
    given back but by the application's calls, and by the end: `leave` and `close` give everything
    back. Calls may be repeated, and may come late: one that is over changes nothing.

    A lost connection keeps registrations: it is opened again, for at most the group's rebalance
    delay; afterwards the partition is nobody's, and `registered` has it no more. So does a process
    that restarts under its `member` name within the delay.
    """

    _source_count: int | None = None
    _node_id: int | None = None
    _registers = True
    _was_opened_here = False
    _has_given_back = False

    # ---- what it is ----

    @property
    def client_version(self) -> str:
        """Name and version of this library."""
        return f"partq {version('partq')}"

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or has begun to leave."""
        return self._is_finished or self._membership.is_leaving

    @property
    def is_filtering(self) -> bool:
        """Whether brokers filter messages for it: they never do."""
        return False

    @property
    def settings(self) -> Mapping[str, object]:
        """What it was made with, without the token."""
        return {
            "url": ",".join(self._session.seeds),
            "queue": self._queue,
            "group": self._group,
            "member": self.member,
            "credit": self._credit.message_count,
            "credit_bytes": self._credit.batch_bytes,
            "auto_ack": self._auto_ack,
            "leave_timeout_s": self._leave_timeout_s,
            "connect_timeout_s": self._connect_timeout_s,
            "max_processing_s": self._max_processing_s,
        }

    @property
    def source_count(self) -> int | None:
        """How many nodes the group has, as `start` said; None: not started."""
        return self._source_count

    @property
    def node_id(self) -> int | None:
        """The number of this node, as `start` said; None: not started."""
        return self._node_id

    @property
    def registered(self) -> frozenset[PartitionKey]:
        """What it has registered and nobody has taken back, connected to its broker or not."""
        return frozenset(PartitionKey(self._queue, each) for each in self._registrations.held)

    # ---- start ----

    async def __aenter__(self) -> Self:
        """Open the consumer as `Consumer` does; the block closes what `start` has opened, too.

        Raises: as entering a `Consumer`.
        """
        if self._was_opened_here:
            self._entered_loop.check()
            self._was_opened_here = False
            return self
        return await super().__aenter__()

    async def start(
        self,
        source_count: int = -1,
        node_id: int = -1,
        *,
        filters: Mapping[str, object] | None = None,
    ) -> None:
        """Open the consumer, unless its block was entered, and say which node it is.

        What it has opened and what then raises is closed again. `close()` closes the rest, or a
        block that is entered afterwards.

        Args:
            source_count: how many nodes the group has, from 1; -1: nothing is compared.
            node_id: the number of this one, 0 to `source_count` - 1.
            filters: conditions per queue; any are refused, as brokers do not filter.

        Raises:
            SettingsError: there are filters, or a number is out of range; nothing has begun.
            BadRequestError: `node_id` is not one of the nodes' numbers.
            SourceCountError: another node has said another `source_count`; the error names it.
            NodeInUseError: another node has this number; the error names it.
            MemberInUseError: another process of the member has been connected for
                `connect_timeout_s`; after a restart, `start` waits until the earlier one is lost.
            ServerAssignedError: the coordinator assigns the partitions of this group.
            UnavailableError, and what entering the block raises: nobody has answered.
            RuntimeError: the consumer has left, or was closed.
        """
        self._entered_loop.check()
        if filters:
            raise SettingsError(
                f"start: filters: got conditions for {excerpt(', '.join(map(str, filters)))}, "
                "expected none: brokers deliver every message of a partition, in order; filter in "
                "the application, and confirm what it passes over"
            )
        source_count = arguments.whole("source_count", source_count, -1, MAX_PARTITION_COUNT)
        node_id = arguments.whole("node_id", node_id, -1, MAX_PARTITION_COUNT)
        opens = not self._entered_loop.is_entered
        if opens:
            await self.__aenter__()
        try:
            if self._membership.is_leaving:
                raise RuntimeError(HAS_LEFT)
            await self._registrations.set_node(source_count, node_id, self._connect_timeout_s)
        except BaseException:
            if opens:  # nobody has a block that would close it
                await self._close()
            raise
        self._was_opened_here = opens or self._was_opened_here
        self._source_count, self._node_id = source_count, node_id

    async def wait_ready(self, timeout_s: float = 10.0) -> bool:
        """Wait until a broker delivers to every registered partition; False: not within the time.

        `timeout_s`: seconds, from 0 to 86,400.
        """
        arguments.check_range("timeout_s", timeout_s, 0, arguments.MAX_TIME_S)
        self._check_opened()
        return await self._changes_until(
            lambda: {key.partition for key in self.registered} <= self.partitions, timeout_s
        )

    # ---- partitions ----

    async def query_partitions(self) -> dict[PartitionKey, ConfiguredPartitionInfo]:
        """Return every configured partition of the queue, with its holder and its lag.

        The set changes with the queue alone: not when brokers or partitions cannot be subscribed
        for a while. A share that is computed from the sorted keys moves no other partition then.
        What this consumer had registered and has lost meanwhile is in `registered` no more.

        Raises:
            UnavailableError: no broker has answered within 10 s.
            SourceCountError, NodeInUseError: this node was forgotten while it was not connected,
                and another one has taken its number since.
        """
        self._check_opened()
        answer = await self._registrations.query()
        return {
            PartitionKey(self._queue, PartitionId.parse(name)): configured_partition_info(each)
            for name, each in answer.partitions.items()
        }

    async def register(
        self, partition: PartitionKey | PartitionId, offset: int = -1
    ) -> Registration:
        """Take a partition that nobody holds. What it holds already is answered as it is.

        Args:
            partition: of this queue.
            offset: from 0 to 2^53: the group begins there, in place of its cursor; one that the log
                does not hold becomes the nearest that it holds. -1: it continues at its cursor.

        Raises:
            PartitionInUseError: another member holds it; the error names it.
            NotSubscribableError: an administrator has marked it, or its broker; says the reason.
            ConflictError: the consumer holds it and is connected, and wants another offset.
            UnknownPartitionError: the queue has no such partition.
            UnavailableError: no broker has judged it within 10 s; it may be registered: a repeat,
                or `query_partitions`, finds out.
            RuntimeError: the consumer is not open, has left, or was closed. If it leaves before the
                answer, it gives back what was registered.
        """
        place = self._place(partition)
        offset = arguments.whole("offset", offset, -1, MAX_NATURAL)
        self._check_opened()
        answer = await self._registrations.register(
            place, offset, give_back_s=self._leave_timeout_s
        )
        return registration_of(PartitionKey(self._queue, place), answer)

    async def unregister(
        self, partition: PartitionKey | PartitionId, *, timeout_s: float = 5.0
    ) -> bool:
        """Give a partition back; False: it was not registered, and nothing has happened.

        That is what the brokers say: a process that restarts under its `member` name can give back
        what an earlier one had registered. Nothing more of it is handed out. What the application
        is processing can be confirmed meanwhile; what is not when the time is over is redelivered
        to the next holder.

        Args:
            partition: of this queue.
            timeout_s: seconds to wait for what is in flight, from 0 to 86,400.

        Raises:
            UnavailableError: no broker has judged it within 10 s; a repeat finds out.
            FencedError: another process of the member is connected; it has the partition.
            ConflictError: a handoff of the partition has not ended within 10 s; repeat the call.
        """
        place = self._place(partition)
        arguments.check_range("timeout_s", timeout_s, 0, arguments.MAX_TIME_S)
        self._check_opened()
        return await self._registrations.unregister(place, timeout_s)

    async def offsets(self) -> dict[PartitionKey, ConfiguredPartitionInfo]:
        """Return cursor, end and lag of what is registered; raises as `query_partitions`."""
        found = await self.query_partitions()
        return {key: found[key] for key in sorted(self.registered) if key in found}

    # ---- messages ----

    async def get(
        self, partition: PartitionKey | PartitionId, *, timeout_s: float = 1.0
    ) -> Batch | None:
        """Return the next batch of one partition; None: none came within the time.

        Iterating hands out what comes of all registered partitions; both may be mixed.

        Args:
            partition: one that is registered.
            timeout_s: seconds to wait, from 0 to 86,400.

        Raises:
            FencedError: it is not registered by this consumer, or not any more.
            RuntimeError: a `run` is under way, or the consumer is not open.
            Exception: as iterating, what has stopped the consumer or a part.
        """
        place = self._place(partition)
        arguments.check_range("timeout_s", timeout_s, 0, arguments.MAX_TIME_S)
        self._check_opened()
        taken: list[Batch] = []

        def has_taken() -> bool:
            batch = self._held_or(place, lambda: self.take_ready(DeliveredWindow.take_all, place))
            if batch is not None:
                taken.append(batch)
            elif not self.has_ended and tuple(place) not in self._membership.held:
                raise FencedError(
                    f"partition {place}: not registered by this consumer, or not any more; "
                    "register it, or look again"
                )
            return batch is not None or self.has_ended

        with self._uses.get:
            await self._yield_turn()
            await self._changes_until(has_taken, timeout_s)
        if not taken:
            return None
        if self._interceptors:
            self._interceptors.consumed(taken[0].deliveries())
        return taken[0]

    async def confirm(self, done: Batch | Delivery, *, ok: bool = True) -> None:
        """Say that a batch or message is done, and return when that is stored; or give it back.

        `ok`: False: it is redelivered at once, with everything behind it in its partition unless
        the group's nacks are `Free`. That counts towards `ack.maxRedeliveries`, as each nack.

        Raises: as `ack`, and as `nack`.
        """
        arguments.check_flag("confirm: ok", ok)
        self._check("confirm", done)
        if ok:
            await self.ack(done, confirmed=True)
        else:
            await self.nack(done, delay_s=0)

    # ---- the end ----

    def leave(self) -> None:
        """Give every partition back, because the process is ending; as `Consumer.leave`.

        Each is free as soon as what is in flight is acknowledged; then a member can register it.
        """
        super().leave()

    def _say_leave(self) -> None:
        self._ending.start(self._give_all_back())

    async def _give_all_back(self) -> None:
        """Give back, then leave: a flow that has said so is not opened again."""
        try:
            await self._registrations.give_all_back(self._leave_timeout_s)
        finally:
            super()._say_leave()
            self._has_given_back = True
            self._wake.set()

    def _leave_timed_out(self) -> None:
        super()._say_leave()
        super()._leave_timed_out()

    @property
    def _has_ended(self) -> bool:
        is_giving_back = self._membership.is_leaving and not self._has_given_back
        must_end = self._is_finished or self._membership.fatal is not None
        return super()._has_ended and (must_end or not is_giving_back)

    async def _end(self) -> None:
        """Wait for what is given back, and free the number of the node."""
        try:
            if self._ending:
                await asyncio.wait([*self._ending], timeout=CALL_TIMEOUT_S)
            await self._registrations.clear_node(1.0)
        except PartqError as error:
            log.warning(
                "the number of the node is free later, once the member is not listed: %s",
                error,
            )
        finally:
            await self._ending.close()
            await super()._end()

    # ---- inside ----

    def _set_up(self) -> None:
        if self._membership.priority:
            raise SettingsError(
                f"priority: got {self._membership.priority}, expected 0: members that choose their "
                "partitions have no priorities, as nobody stands by; leave it out"
            )
        self._ending = TaskSet()
        calls = RegistrationCalls(
            self._session,
            lambda: [flow.url for flow in self._flows] or list(self._session.seeds),
            group=self._group,
            member=self.member,
            incarnation=self._membership.incarnation,
        )
        self._registrations = Registrations(calls, self._membership)

    def _check_opened(self) -> None:
        self._entered_loop.check_not_closed()
        if self._layout_watch is None:
            raise RuntimeError("the consumer is not open; call start(), or use `async with`")

    def _place(self, partition: object) -> PartitionId:
        if isinstance(partition, PartitionKey):
            if partition.queue != self._queue:
                raise SettingsError(
                    f"partition {partition}: got one of another queue, expected {self._queue}"
                )
            return partition.partition
        if not isinstance(partition, PartitionId):
            raise SettingsError(
                f"partition: got {excerpt(partition)!r}, expected a PartitionKey, as "
                "query_partitions() returns them, or PartitionKey.parse('orders:1.3')"
            )
        return partition
