"""The shell around the partition senders of a producer: connections, routes, timers."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count

from partq.aio import TaskSet, cancel_and_wait
from partq.client.produce.batching import BatchLimits, ReadyBatch, cuts
from partq.client.produce.buffer_pool import BufferPool
from partq.client.produce.deterministic.crossing import FixedCrossing
from partq.client.produce.partition_sender import PartitionSender
from partq.client.produce.publish_connection import PublishConnection
from partq.client.produce.results import MessageResult
from partq.client.produce.slot_routes import SlotRoutes
from partq.client.producer_state import ProducerState
from partq.client.producer_stats import ProducerTally
from partq.client.transport import tasks
from partq.client.transport.layout import QueueLayout
from partq.client.transport.layout_watch import LayoutWatch
from partq.client.transport.liveness import Clock
from partq.client.transport.retries import retry_backoff
from partq.client.transport.session import ProducerProgress, Session
from partq.core.model import PartitionId
from partq.core.numbering.message_ids import id_digest
from partq.core.numbering.scheduled_ids import AT_ONCE, DueTime
from partq.errors import ConflictError, PartqError
from partq.wire import batch as wire
from partq.wire.frame import MESSAGE_IDS, SCHEDULED

log = logging.getLogger("partq.client")

MAX_SWEEP_S = 0.5


class Sender:
    """Brings what the partition senders hold to the brokers that own their partitions."""

    def __init__(
        self,
        session: Session,
        queue_layout: QueueLayout,
        *,
        limits: BatchLimits,
        buffer_pool: BufferPool,
        tally: ProducerTally,
        next_producer: Callable[[str], str | None],
        on_layout: Callable[[QueueLayout], None],
        on_routes: Callable[[SlotRoutes], None],
        linger_s: float,
        delivery_timeout_s: float,
        clock: Clock,
        are_numbers_fixed: bool = False,
        crossing: FixedCrossing | None = None,
    ) -> None:
        self.error: PartqError | None = None
        """Why nothing can be published any more."""
        self._session = session
        self._limits = limits
        self._buffer_pool = buffer_pool
        self._tally = tally
        self._next_producer = next_producer
        self._on_layout = on_layout
        self._on_routes = on_routes
        self._linger_s = linger_s
        self._delivery_timeout_s = delivery_timeout_s
        self._clock = clock
        self._are_numbers_fixed = are_numbers_fixed
        self._crossing = crossing
        """How a producer with fixed numbers gets over a change; None: it ends there."""
        self._crosser: asyncio.Task[None] | None = None
        self._producer = ""
        self._slot_routes = SlotRoutes.of(queue_layout.layout.table)
        self._partition_senders: dict[PartitionId, PartitionSender] = {}
        self._leaving: dict[PartitionSender, None] = {}
        self._routes: dict[PartitionId, str | None] = {}
        self._connections: dict[tuple[str, str, int], PublishConnection] = {}
        self._connection_of: dict[PartitionId, PublishConnection] = {}
        self._requests = count(1)
        self._linger: asyncio.Handle | None = None
        self._gathering: dict[PartitionSender, None] = {}
        self._holds: dict[PartitionId, asyncio.TimerHandle] = {}
        self._closing = TaskSet()
        self._watch = LayoutWatch(session, queue_layout, self._apply_layout, self.fail)
        self._sweeper = tasks.start(self._sweep(), "watching deadlines", self.fail)

    def start(self, producer: str, progress: Mapping[PartitionId, ProducerProgress]) -> None:
        """Make a sender per partition, and connect; `progress`: of fixed numbers."""
        self._producer = producer
        for partition in self._slot_routes.ranges:
            self._add_sender(partition, progress.get(partition))
        self._apply_layout(self._watch.queue_layout)

    def add(
        self,
        partition: PartitionId,
        encoded: Sequence[bytes],
        slots: Sequence[int],
        result: MessageResult,
        ttl_ms: int,
        order: Sequence[int] = (),
    ) -> None:
        """Take messages of one partition, counted in the buffer pool before.

        They leave after the linger time, or with their batch when it is full.
        """
        partition_sender = self._partition_senders[partition]
        if partition_sender.broken is not None:
            self._buffer_pool.give_back(len(encoded), sum(map(len, encoded)))
            self._tally.failed(len(encoded))
            result.failed(partition, partition_sender.broken, len(encoded))
            return
        partition_sender.add(
            encoded, slots, result, self._clock() + self._delivery_timeout_s, ttl_ms, order
        )
        if partition_sender.has_work:
            self.pump(partition_sender)
        if not partition_sender.has_open:
            return
        self._gathering[partition_sender] = None
        if self._linger is None:
            loop = asyncio.get_running_loop()
            self._linger = (
                loop.call_later(self._linger_s, self.make_due)
                if self._linger_s
                else loop.call_soon(self.make_due)
            )

    def add_whole(
        self,
        partition: PartitionId,
        encoded: Sequence[bytes],
        slots: Sequence[int],
        result: MessageResult,
        ttl_ms: int,
        order: Sequence[int] = (),
        message_id: str | None = None,
        due: DueTime = AT_ONCE,
    ) -> None:
        """Take messages that are stored all or none, as `add_batch`; one alone if it has an id."""
        needs = {MESSAGE_IDS} if message_id and self.knows_ids else set()
        if due != AT_ONCE:
            needs.add(SCHEDULED)
        ready = ReadyBatch(
            wire.encode(encoded, slots, self._limits.codec),
            len(encoded),
            sum(map(len, encoded)),
            ttl_ms,
            order=order,
            is_whole=True,
            needs=frozenset(needs),
            message_id=id_digest(message_id) if message_id else "",
            due=due,
        )
        self.add_batch(partition, ready, result)

    def cuts(self, encoded: Sequence[bytes]) -> Iterator[slice]:
        """Return which messages make a batch each, in their order."""
        return cuts(encoded, self._limits)

    @property
    def knows_ids(self) -> bool:
        """Whether the queue drops messages whose id is known."""
        return self._watch.queue_layout.knows_ids

    def add_batch(self, partition: PartitionId, ready: ReadyBatch, result: MessageResult) -> None:
        """Take a complete batch of one partition, counted in the buffer pool; it leaves now."""
        partition_sender = self._partition_senders[partition]
        if partition_sender.broken is not None:
            self._buffer_pool.give_back(ready.count, ready.size_bytes)
            self._tally.failed(ready.count)
            result.failed(partition, partition_sender.broken, ready.count)
            return
        partition_sender.add_batch(ready, result, self._clock() + self._delivery_timeout_s)
        self.pump(partition_sender)

    def make_due(self) -> None:
        """Let go whatever waits for its batch to be complete."""
        if self._linger is not None:
            self._linger.cancel()  # called before its time, by a flush
            self._linger = None
        gathering, self._gathering = self._gathering, {}
        for partition_sender in gathering:
            partition_sender.make_due()
            self.pump(partition_sender)

    def pump(self, partition_sender: PartitionSender) -> None:
        """Send what may be sent now."""
        partition = partition_sender.partition
        if not partition_sender.has_work:
            return
        connection = self._connection_for(partition_sender)
        if connection is None or not connection.broker.is_up:
            self._watch.hurry()
            return
        now = self._clock()
        partition_sender.max_in_flight = connection.max_in_flight
        partition_sender.features = connection.features
        while (batch := partition_sender.take(request := next(self._requests), now)) is not None:
            connection.publish(request, partition_sender, batch)
        if partition_sender.hold_until > now and partition not in self._holds:
            self._holds[partition] = asyncio.get_running_loop().call_later(
                partition_sender.hold_until - now, self._hold_over, partition_sender
            )

    def refused(
        self,
        partition_sender: PartitionSender,
        request: int,
        code: str,
        message: str,
        due: int,
        retry_after_s: float,
    ) -> None:
        """Take a broker's refusal."""
        partition_sender.refused(
            request, code, message, due=due, retry_after_s=retry_after_s, now=self._clock()
        )
        if partition_sender.is_leaving and partition_sender not in self._leaving:
            self._leaving[partition_sender] = None
            self._watch.hurry(self._routes.get(partition_sender.partition))
            self._start_crossing()
        self.answered(partition_sender)

    def answered(self, partition_sender: PartitionSender) -> None:
        """Continue after an answer, or when there will be none."""
        self._move_slots()
        self.pump(partition_sender)

    def moved(self, connection: PublishConnection, partition: PartitionId, url: str) -> None:
        """Take the news that `connection`'s broker does not own the partition."""
        partition_sender = self._partition_senders.get(partition)
        if partition_sender is None or self._connection_of.get(partition) is not connection:
            return  # another of several answers, to batches that were sent together
        is_elsewhere = bool(url) and url != connection.broker.url
        self._routes[partition] = url if is_elsewhere else None
        partition_sender.moved(self._clock(), is_elsewhere=is_elsewhere)
        self._attach(partition_sender, None)
        self.answered(partition_sender)

    def connection_lost(self) -> None:
        """Look for other owners at once: the broker may be gone."""
        self._move_slots()
        self._watch.hurry()
        self._on_layout(self._watch.queue_layout)

    def unavailable(self) -> frozenset[PartitionId]:
        """Return the partitions that have no broker, or one that does not answer."""
        return frozenset(
            partition
            for partition in self._partition_senders
            if self._routes.get(partition) is None or self._is_failing(partition)
        )

    def fail(self, error: PartqError) -> None:
        """End everything: no broker will take anything from this producer."""
        self.error = self.error or error
        for partition_sender in self._partition_senders.values():
            partition_sender.fail_all(error)
        self._buffer_pool.close(error)

    async def check_ended(self) -> None:
        """See that the store has lost nothing from before a change that fixed numbers got over.

        Raises:
            ConflictError: it has; nothing can be published any more.
            UnavailableError: no broker has said so in time.
        """
        if self._crossing is None:
            return
        try:
            await self._crossing.check_ended(self._watch.queue_layout.urls.values())
        except ConflictError as error:
            self.fail(error)
            raise

    async def close(self) -> None:
        """Close connections and stop timers; nothing may be pending any more."""
        for handle in (self._linger, *self._holds.values()):
            if handle is not None:
                handle.cancel()
        await cancel_and_wait(self._sweeper)
        if self._crosser is not None:
            await cancel_and_wait(self._crosser)
        await self._watch.close()
        connections = [connection.broker.close() for connection in self._connections.values()]
        await asyncio.gather(*connections, *self._closing)

    # ---- inside ----

    def _add_sender(self, partition: PartitionId, progress: ProducerProgress | None) -> None:
        self._partition_senders[partition] = PartitionSender(
            partition,
            producer=self._producer,
            first=0 if progress is None else progress.due,
            fixed_generation=0 if progress is None else progress.layout,
            limits=self._limits,
            next_producer=self._next_producer,
            give_back=self._buffer_pool.give_back,
            tally=self._tally,
            are_numbers_fixed=self._are_numbers_fixed,
            ends_at_change=self._are_numbers_fixed and self._crossing is None,
        )
        self._routes[partition] = self._watch.queue_layout.owners.get(partition)

    def _draw_producer(self) -> None:
        """Begin new partitions under an id that none knows.

        Slots go back to partitions of before, as the store has forgotten a change: they may know
        each id that was used by now, with numbers of other messages.
        """
        used = self._next_producer(self._producer)
        self._producer = (used and self._next_producer(used)) or self._producer

    def _end_sender(self, partition_sender: PartitionSender) -> None:
        """Forget a partition that gets no more messages, and has none."""
        partition = partition_sender.partition
        del self._partition_senders[partition]
        self._routes.pop(partition, None)
        self._gathering.pop(partition_sender, None)
        if (hold := self._holds.pop(partition, None)) is not None:
            hold.cancel()
        self._attach(partition_sender, None)

    def _note_leaving(self, queue_layout: QueueLayout) -> None:
        """See which partitions have lost slots by a new layout."""
        if self._are_numbers_fixed and self._crossing is None:
            return  # a number stands for its message there: the broker's refusal ends it
        table = queue_layout.layout.table
        self._leaving.clear()
        for partition, partition_sender in self._partition_senders.items():
            has_lost = self._slot_routes.slots(partition) != table.slots.get(partition, ())
            partition_sender.is_leaving = has_lost
            if has_lost:
                self._leaving[partition_sender] = None
        self._start_crossing()

    def _move_slots(self) -> None:
        """Let slots follow the layout, with what waits for them, where that can be done now."""
        if not self._leaving or self._crossing is not None:
            return
        table = self._watch.queue_layout.layout.table
        settled = {
            each.partition: each
            for each in self._leaving
            if each.may_give_away
            and self._slot_routes.slots(each.partition) != table.slots.get(each.partition, ())
        }
        if not settled:
            return
        self._slot_routes = routes = self._slot_routes.switched(settled, table)
        self._on_routes(routes)
        new = [each for each in routes.ranges if each not in self._partition_senders]
        if any(each.generation < max(settled).generation for each in new):
            self._draw_producer()
        for partition in new:
            self._add_sender(partition, None)
        changed = dict.fromkeys(settled.values())
        for partition_sender in settled.values():
            del self._leaving[partition_sender]
            parts = partition_sender.give_away(routes.partition_of)
            for partition, batches in parts.items():
                successor = self._partition_senders[partition]
                successor.adopt(batches)
                changed[successor] = None
        for partition_sender in changed:
            if routes.slots(partition_sender.partition):
                self.pump(partition_sender)
            else:
                self._end_sender(partition_sender)

    def _start_crossing(self) -> None:
        """Let fixed numbers get over a change, if there is one and that is not under way."""
        crossing, crosser = self._crossing, self._crosser
        if self._leaving and crossing is not None and (crosser is None or crosser.done()):
            self._crosser = tasks.start(self._cross(crossing), "following a change", self.fail)

    async def _cross(self, crossing: FixedCrossing) -> None:
        backoff = retry_backoff()
        while self._leaving and self.error is None:
            try:
                self._follow_state(crossing, await crossing.state())
            except PartqError as error:
                if not error.is_retryable:
                    self.fail(error)
                    return
                log.info("the change of the partition count has not come to its end: %s", error)
            await asyncio.sleep(backoff.next_s(None))

    def _follow_state(self, crossing: FixedCrossing, state: ProducerState) -> None:
        """Go on in the series that a change has begun; raises as `FixedCrossing.over`."""
        layout = state.queue_layout.layout
        known = self._watch.queue_layout.layout
        if layout.generation < known.generation:
            return  # of a broker that has not read the last change
        if layout.generation > known.generation:
            self._watch.queue_layout = state.queue_layout
        ended = {
            each: had
            for partition, each in self._partition_senders.items()
            if (had := self._slot_routes.slots(partition)) != layout.table.slots.get(partition, ())
        }
        if not ended:
            # Something else was refused, or the layout of another broker was read.
            self._note_leaving(state.queue_layout)
            for partition_sender in self._partition_senders.values():
                self.pump(partition_sender)
            return
        found = crossing.over(state, self._partition_senders.values(), ended, self._limits)
        self._slot_routes = SlotRoutes.of(layout.table)
        self._on_routes(self._slot_routes)
        for partition_sender in ended:
            self._end_sender(partition_sender)
        self._leaving.clear()
        for partition in layout.table.slots:
            if partition not in self._partition_senders:
                at = state.progress[partition].layout
                self._add_sender(partition, ProducerProgress(0, None, at))
                partition_sender = self._partition_senders[partition]
                partition_sender.broken = found.broken.get(partition)
                partition_sender.adopt(found.batches.get(partition, ()))
                self.pump(partition_sender)
        self._note_leaving(self._watch.queue_layout)

    def _is_failing(self, partition: PartitionId) -> bool:
        attached = self._connection_of.get(partition)
        return attached is not None and attached.broker.is_failing

    def _hold_over(self, partition_sender: PartitionSender) -> None:
        self._holds.pop(partition_sender.partition, None)
        self.pump(partition_sender)

    def _connection_for(self, partition_sender: PartitionSender) -> PublishConnection | None:
        """Return the connection for a sender's producer id at its partition's broker."""
        url = self._routes.get(partition_sender.partition)
        attached = self._connection_of.get(partition_sender.partition)
        if url is None:
            return None
        if (
            attached
            and attached.broker.url == url
            and attached.producer == partition_sender.producer
        ):
            return attached
        key = url, partition_sender.producer, partition_sender.fixed_generation
        connection = self._connections.get(key)
        if connection is None:
            connection = PublishConnection(self, self._session, *key, self._clock)
            self._connections[key] = connection
        self._attach(partition_sender, connection)
        return connection

    def _attach(
        self, partition_sender: PartitionSender, connection: PublishConnection | None
    ) -> None:
        before = self._connection_of.pop(partition_sender.partition, None)
        if before is not None:
            before.partition_senders.pop(partition_sender, None)
        if connection is not None:
            connection.partition_senders[partition_sender] = None
            self._connection_of[partition_sender.partition] = connection

    def _apply_layout(self, queue_layout: QueueLayout) -> None:
        """Follow a new layout where the current route does not work; close what is left over."""
        self._note_leaving(queue_layout)
        self._move_slots()
        for partition_sender in self._partition_senders.values():
            attached = self._connection_of.get(partition_sender.partition)
            # A working connection knows better than a layout that may be a second old. But a
            # broker that is back may have no route any more: it was missing meanwhile.
            is_lost = attached is None or not attached.broker.is_up
            if is_lost or self._routes.get(partition_sender.partition) is None:
                self._routes[partition_sender.partition] = queue_layout.owners.get(
                    partition_sender.partition
                )
            self._connection_for(partition_sender)
            self.pump(partition_sender)
        for key, connection in tuple(self._connections.items()):
            if not connection.partition_senders:
                del self._connections[key]
                self._closing.start(connection.broker.close())
        self._on_layout(queue_layout)

    async def _sweep(self) -> None:
        """Fail what is too late, and keep looking for owners that are missing."""
        while True:
            await asyncio.sleep(min(MAX_SWEEP_S, self._delivery_timeout_s / 4))
            now = self._clock()
            for partition_sender in self._partition_senders.values():
                partition_sender.expire(now)
                self.pump(partition_sender)
            self._move_slots()
            # A broker may have gone or come back meanwhile.
            self._on_layout(self._watch.queue_layout)
