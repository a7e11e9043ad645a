"""The shell around the pipelines of a producer: connections, routes, timers."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import count

from partq.client.produce.batching import BatchLimits, ReadyBatch, SealedBatch
from partq.client.produce.buffer_pool import BufferPool
from partq.client.produce.partition_sender import PartitionSender
from partq.client.produce.receipts import Receipt
from partq.client.transport import tasks
from partq.client.transport.broker_connection import BrokerConnection
from partq.client.transport.layout import QueueLayout
from partq.client.transport.liveness import Clock
from partq.client.transport.metadata import LayoutWatch
from partq.client.transport.session import Session
from partq.core.model import PartitionId
from partq.errors import InternalError, PartqError
from partq.wire import frames

log = logging.getLogger("partq.client")

MAX_SWEEP_S = 0.5
LEAST_IN_FLIGHT, MOST_IN_FLIGHT = 1, 64


class ProducerLink:
    """One producer id at one broker."""

    def __init__(
        self, publisher: "Sender", session: Session, url: str, producer: str, clock: Clock
    ) -> None:
        self.producer = producer
        self.max_in_flight = LEAST_IN_FLIGHT
        self.pipelines: dict[PartitionSender, None] = {}
        self._publisher = publisher
        self._requests: dict[int, PartitionSender] = {}
        self.link = BrokerConnection(session, url, "/publish", self, clock)

    def publish(self, request: int, pipeline: PartitionSender, batch: SealedBatch) -> None:
        """Send a batch."""
        self._requests[request] = pipeline
        partition = pipeline.partition
        frame = frames.Publish(
            request,
            partition.generation,
            partition.index,
            batch.first,
            batch.ttl_ms,
            batch.age_ms,
        )
        self.link.send(frame, batch.data)

    def hello(self) -> frames.Frame:
        """Introduce the producer."""
        return frames.ProducerHello(self.producer)

    def welcomed(self, frame: frames.AnyFrame) -> float:
        """Take the broker's terms and send what waits."""
        if not isinstance(frame, frames.ProducerWelcome):
            raise InternalError(f"{self.link.url}: expected a welcome, got {type(frame).__name__}")
        self.max_in_flight = min(max(frame.max_in_flight, LEAST_IN_FLIGHT), MOST_IN_FLIGHT)
        asyncio.get_running_loop().call_soon(self._pump_all)
        return frame.lease_ms / 1000

    def _pump_all(self) -> None:
        for pipeline in tuple(self.pipelines):
            self._publisher.pump(pipeline)

    def received(self, frame: frames.AnyFrame, payload: bytes) -> None:
        """Take an answer. The frames of this path have no payload."""
        match frame:
            case frames.Published(request, offset):
                if (pipeline := self._requests.pop(request, None)) is not None:
                    pipeline.stored(request, offset)
                    self._publisher.pump(pipeline)
            case frames.PublishRefused(request, code, message, retry_after_ms, due):
                if (pipeline := self._requests.pop(request, None)) is not None:
                    log.info("partition %s: %s: %s", pipeline.partition, code, message)
                    self._publisher.refused(
                        pipeline, request, code, message, due, retry_after_ms / 1000
                    )
            case frames.Moved(generation, index, _, url):
                self._publisher.moved(self, PartitionId(generation, index), url)
            case _:
                pass  # a pong, or news that a later version adds

    def lost(self, error: PartqError) -> None:
        """Let everything unanswered be sent again."""
        self._requests.clear()
        for pipeline in tuple(self.pipelines):
            pipeline.lost()
        self._publisher.link_lost()

    def failing(self, error: PartqError, for_s: float) -> None:
        """Go on: the messages have their own time-out."""

    def refused(self, error: PartqError) -> None:
        """Give up: the broker takes nothing from this producer."""
        self._publisher.fail(error)


class Sender:
    """Brings what the pipelines hold to the brokers that own their partitions."""

    def __init__(
        self,
        session: Session,
        view: QueueLayout,
        *,
        limits: BatchLimits,
        budget: BufferPool,
        next_producer: Callable[[str], str | None],
        on_view: Callable[[QueueLayout], None],
        linger_s: float,
        delivery_timeout_s: float,
        clock: Clock,
        are_numbers_fixed: bool = False,
    ) -> None:
        self.error: PartqError | None = None
        """Why nothing can be published any more."""
        self._session = session
        self._limits = limits
        self._budget = budget
        self._next_producer = next_producer
        self._on_view = on_view
        self._linger_s = linger_s
        self._delivery_timeout_s = delivery_timeout_s
        self._clock = clock
        self._are_numbers_fixed = are_numbers_fixed
        self._pipelines: dict[PartitionId, PartitionSender] = {}
        self._routes: dict[PartitionId, str | None] = {}
        self._links: dict[tuple[str, str], ProducerLink] = {}
        self._link_of: dict[PartitionId, ProducerLink] = {}
        self._requests = count(1)
        self._linger: asyncio.Handle | None = None
        self._gathering: dict[PartitionSender, None] = {}
        self._holds: dict[PartitionId, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._watch = LayoutWatch(session, view, self._apply_view, self.fail)
        self._sweeper = tasks.start(self._sweep(), "watching deadlines", self.fail)

    def start(self, producer: str, due: Mapping[PartitionId, int]) -> None:
        """Make the pipelines and open the connections; `due` are the first numbers, 0 if none."""
        for partition in self._watch.view.layout.partitions():
            self._pipelines[partition] = PartitionSender(
                partition,
                producer=producer,
                first=due.get(partition, 0),
                limits=self._limits,
                next_producer=self._next_producer,
                give_back=self._budget.give_back,
                are_numbers_fixed=self._are_numbers_fixed,
            )
        self._apply_view(self._watch.view)

    def add(
        self,
        partition: PartitionId,
        encoded: Sequence[bytes],
        slots: Sequence[int],
        receipt: Receipt,
        ttl_ms: int,
    ) -> None:
        """Take messages of one partition, counted in the budget before.

        They leave after the linger time, or with their batch when it is full.
        """
        pipeline = self._pipelines[partition]
        if pipeline.broken is not None:
            self._budget.give_back(len(encoded), sum(map(len, encoded)))
            receipt.failed(partition, pipeline.broken, len(encoded))
            return
        pipeline.add(encoded, slots, receipt, self._clock() + self._delivery_timeout_s, ttl_ms)
        if pipeline.has_work:
            self.pump(pipeline)
        if not pipeline.has_open:
            return
        self._gathering[pipeline] = None
        if self._linger is None:
            loop = asyncio.get_running_loop()
            self._linger = (
                loop.call_later(self._linger_s, self.make_due)
                if self._linger_s
                else loop.call_soon(self.make_due)
            )

    def add_batch(self, partition: PartitionId, ready: ReadyBatch, receipt: Receipt) -> None:
        """Take a complete batch of one partition, counted in the budget before; it leaves now."""
        pipeline = self._pipelines[partition]
        if pipeline.broken is not None:
            self._budget.give_back(ready.count, ready.size_bytes)
            receipt.failed(partition, pipeline.broken, ready.count)
            return
        pipeline.add_batch(ready, receipt, self._clock() + self._delivery_timeout_s)
        self.pump(pipeline)

    def make_due(self) -> None:
        """Let go whatever waits for its batch to be complete."""
        if self._linger is not None:
            self._linger.cancel()  # called before its time, by a flush
            self._linger = None
        gathering, self._gathering = self._gathering, {}
        for pipeline in gathering:
            pipeline.make_due()
            self.pump(pipeline)

    def pump(self, pipeline: PartitionSender) -> None:
        """Send what may be sent now."""
        partition = pipeline.partition
        if not pipeline.has_work:
            return
        link = self._link_for(pipeline)
        if link is None or not link.link.is_up:
            self._watch.hurry()
            return
        now = self._clock()
        pipeline.max_in_flight = link.max_in_flight
        while (batch := pipeline.take(request := next(self._requests), now)) is not None:
            link.publish(request, pipeline, batch)
        if pipeline.hold_until > now and partition not in self._holds:
            self._holds[partition] = asyncio.get_running_loop().call_later(
                pipeline.hold_until - now, self._hold_over, pipeline
            )

    def refused(
        self,
        pipeline: PartitionSender,
        request: int,
        code: str,
        message: str,
        due: int,
        retry_after_s: float,
    ) -> None:
        """Take a broker's refusal."""
        pipeline.refused(
            request, code, message, due=due, retry_after_s=retry_after_s, now=self._clock()
        )
        self.pump(pipeline)

    def moved(self, link: ProducerLink, partition: PartitionId, url: str) -> None:
        """Take the news that `link`'s broker does not own the partition."""
        pipeline = self._pipelines.get(partition)
        if pipeline is None or self._link_of.get(partition) is not link:
            return  # another of several answers, to batches that were sent together
        is_elsewhere = bool(url) and url != link.link.url
        self._routes[partition] = url if is_elsewhere else None
        pipeline.moved(self._clock(), is_elsewhere=is_elsewhere)
        self._attach(pipeline, None)
        self.pump(pipeline)

    def link_lost(self) -> None:
        """Look for other owners at once: the broker may be gone."""
        self._watch.hurry()
        self._on_view(self._watch.view)

    def unavailable(self) -> frozenset[PartitionId]:
        """Return the partitions that have no broker, or one that does not answer."""
        return frozenset(
            partition
            for partition in self._pipelines
            if self._routes.get(partition) is None or self._is_failing(partition)
        )

    def fail(self, error: PartqError) -> None:
        """End everything: no broker will take anything from this producer."""
        self.error = self.error or error
        for pipeline in self._pipelines.values():
            pipeline.fail_all(error)
        self._budget.close(error)

    async def close(self) -> None:
        """Close connections and stop timers; nothing may be pending any more."""
        for handle in (self._linger, *self._holds.values()):
            if handle is not None:
                handle.cancel()
        await tasks.stop(self._sweeper)
        await self._watch.close()
        links = [link.link.close() for link in self._links.values()]
        await asyncio.gather(*links, *self._closing)

    # ---- inside ----

    def _is_failing(self, partition: PartitionId) -> bool:
        attached = self._link_of.get(partition)
        return attached is not None and attached.link.is_failing

    def _hold_over(self, pipeline: PartitionSender) -> None:
        self._holds.pop(pipeline.partition, None)
        self.pump(pipeline)

    def _link_for(self, pipeline: PartitionSender) -> ProducerLink | None:
        """Return the connection for a pipeline's producer id at its partition's broker."""
        url = self._routes.get(pipeline.partition)
        attached = self._link_of.get(pipeline.partition)
        if url is None:
            return None
        if attached and attached.link.url == url and attached.producer == pipeline.producer:
            return attached
        link = self._links.get((url, pipeline.producer))
        if link is None:
            link = ProducerLink(self, self._session, url, pipeline.producer, self._clock)
            self._links[url, pipeline.producer] = link
        self._attach(pipeline, link)
        return link

    def _attach(self, pipeline: PartitionSender, link: ProducerLink | None) -> None:
        before = self._link_of.pop(pipeline.partition, None)
        if before is not None:
            before.pipelines.pop(pipeline, None)
        if link is not None:
            link.pipelines[pipeline] = None
            self._link_of[pipeline.partition] = link

    def _apply_view(self, view: QueueLayout) -> None:
        """Follow a new layout where the current route does not work; close what is left over."""
        for pipeline in self._pipelines.values():
            attached = self._link_of.get(pipeline.partition)
            # A working connection knows better than a layout that may be a second old. But a
            # broker that is back may have no route any more: it was missing meanwhile.
            is_lost = attached is None or not attached.link.is_up
            if is_lost or self._routes.get(pipeline.partition) is None:
                self._routes[pipeline.partition] = view.owners.get(pipeline.partition)
            self._link_for(pipeline)
            self.pump(pipeline)
        for key, link in tuple(self._links.items()):
            if not link.pipelines:
                del self._links[key]
                task = asyncio.create_task(link.link.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        self._on_view(view)

    async def _sweep(self) -> None:
        """Fail what is too late, and keep looking for owners that are missing."""
        while True:
            await asyncio.sleep(min(MAX_SWEEP_S, self._delivery_timeout_s / 4))
            now = self._clock()
            for pipeline in self._pipelines.values():
                pipeline.expire(now)
                self.pump(pipeline)
            self._on_view(self._watch.view)  # a broker may have gone or come back meanwhile
