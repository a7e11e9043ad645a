"""One connection of a producer to a broker: batches go out, answers come in."""

import asyncio
import logging
from typing import Protocol

from partq.client.produce.batching import SealedBatch
from partq.client.produce.partition_sender import PartitionSender
from partq.client.produce.results import answered_offset
from partq.client.transport.broker_connection import BrokerConnection
from partq.client.transport.liveness import Clock
from partq.client.transport.session import Session
from partq.core.model import PartitionId
from partq.errors import InternalError, PartqError
from partq.wire import frames

log = logging.getLogger("partq.client")

LEAST_IN_FLIGHT, MOST_IN_FLIGHT = 1, 64


class BatchSender(Protocol):
    """Whose connection it is: `Sender`."""

    def pump(self, partition_sender: PartitionSender) -> None:
        """Send what may be sent now."""

    def answered(self, partition_sender: PartitionSender) -> None:
        """Continue after an answer."""

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

    def moved(self, connection: "PublishConnection", partition: PartitionId, url: str) -> None:
        """Take the news that the broker does not own a partition."""

    def connection_lost(self) -> None:
        """Look for other owners."""

    def fail(self, error: PartqError) -> None:
        """End everything."""


class PublishConnection:
    """One producer id, or one series of fixed numbers, at one broker."""

    def __init__(
        self,
        sender: BatchSender,
        session: Session,
        url: str,
        producer: str,
        fixed_generation: int,
        clock: Clock,
    ) -> None:
        self.producer = producer
        self.fixed_generation = fixed_generation
        self.max_in_flight = LEAST_IN_FLIGHT
        self.features: frozenset[str] = frozenset()
        """What the broker can do, as it said when it was connected last."""
        self.partition_senders: dict[PartitionSender, None] = {}
        self._sender = sender
        self._requests: dict[int, PartitionSender] = {}
        self.broker = BrokerConnection(session, url, "/publish", self, clock)

    def publish(self, request: int, partition_sender: PartitionSender, batch: SealedBatch) -> None:
        """Send a batch."""
        self._requests[request] = partition_sender
        partition = partition_sender.partition
        frame = frames.Publish(
            request,
            partition.generation,
            partition.index,
            batch.first,
            batch.ttl_ms,
            batch.age_ms,
            batch.message_id,
            batch.due.due_ms,
            batch.due.after_ms,
        )
        self.broker.send(frame, batch.data)

    def hello(self) -> frames.Frame:
        """Introduce the producer."""
        return frames.ProducerHello(self.producer, layout=self.fixed_generation)

    def welcomed(self, frame: frames.AnyFrame) -> float:
        """Take the broker's terms and send what waits."""
        if not isinstance(frame, frames.ProducerWelcome):
            raise InternalError(
                f"{self.broker.url}: expected a welcome, got {type(frame).__name__}"
            )
        self.max_in_flight = min(max(frame.max_in_flight, LEAST_IN_FLIGHT), MOST_IN_FLIGHT)
        self.features = frozenset(frame.features)
        asyncio.get_running_loop().call_soon(self._pump_all)
        return frame.lease_ms / 1000

    def _pump_all(self) -> None:
        for partition_sender in tuple(self.partition_senders):
            self._sender.pump(partition_sender)

    def received(self, frame: frames.AnyFrame, payload: bytes) -> None:
        """Take an answer. The frames of this path have no payload."""
        match frame:
            case frames.Published(request, offset, is_known=is_known, entry=entry):
                if (partition_sender := self._requests.pop(request, None)) is not None:
                    found = answered_offset(offset, is_known=is_known, entry=entry)
                    partition_sender.stored(request, found)
                    self._sender.answered(partition_sender)
            case frames.PublishRefused(request, code, message, retry_after_ms, due):
                if (partition_sender := self._requests.pop(request, None)) is not None:
                    log.info(
                        "partition %s refuses a batch: %s: %s",
                        *(partition_sender.partition, code, message),
                    )
                    self._sender.refused(
                        partition_sender, request, code, message, due, retry_after_ms / 1000
                    )
            case frames.Moved(generation, index, _, url):
                self._sender.moved(self, PartitionId(generation, index), url)
            case _:
                pass  # a pong, or news that a later version adds

    def lost(self, error: PartqError) -> None:
        """Let everything unanswered be sent again."""
        self._requests.clear()
        for partition_sender in tuple(self.partition_senders):
            partition_sender.lost()
        self._sender.connection_lost()

    def failing(self, error: PartqError, for_s: float) -> None:
        """Go on: the messages have their own time-out."""

    def refused(self, error: PartqError) -> None:
        """Give up: the broker takes nothing from this producer."""
        self._sender.fail(error)
