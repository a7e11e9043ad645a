"""The right of one flow to one session: its lock, its token, and what came of it."""

import asyncio
from collections import deque
from typing import Protocol

from partq.aio import Pulse
from partq.client.consume.assignment.assigned_partition import PartitionHolder
from partq.client.consume.assignment.delivered_window import DeliveredWindow
from partq.client.consume.assignment.keyed_partition import KeyedPartition
from partq.client.consume.deliveries import Delivery
from partq.client.hooks.serializers import ValueDeserializer
from partq.core.model import PartitionId
from partq.wire.frames import SessionAccepted

SessionPlace = tuple[int, int, int]
"""What a broker calls a session of a flow: generation and index of its partition, and epoch."""


class SessionKeeper(PartitionHolder, Protocol):
    """The flow that has a session."""

    def next_message(self, assigned: "SessionAssignment") -> Delivery | None:
        """Return the next message of a session; None: nothing is ready."""

    def renew(self, assigned: "SessionAssignment") -> asyncio.Future[None]:
        """Have the lock of a session last longer; the future is done when it does."""

    def close_session(self, assigned: "SessionAssignment") -> asyncio.Future[None]:
        """End a session; the future is done once it is unlocked."""


class SessionAssignment(KeyedPartition):
    """A session from the broker's answer to the end of its lock, or of the flow."""

    def __init__(
        self,
        flow: SessionKeeper,
        frame: SessionAccepted,
        locked_until: float,
        value_deserializer: ValueDeserializer | None,
    ) -> None:
        partition = PartitionId(frame.generation, frame.partition)
        token = (frame.broker_epoch, frame.epoch)
        super().__init__(flow, partition, token, 0, value_deserializer)
        self.flow = flow
        self.session = frame.session
        self.lock = frame.lock
        self.locked_until = locked_until
        """When the lock ends, by the client's clock, unless it is renewed."""
        self.changes = Pulse()
        """Beats when something of it may be handed out, or it has ended."""
        self.ready: deque[DeliveredWindow] = deque()
        """What came, in order; some may be done."""

    @property
    def place(self) -> SessionPlace:
        """What the broker calls it."""
        return (self.partition.generation, self.partition.index, self.token[1])

    def next_window(self) -> DeliveredWindow | None:
        """Return the first window that has messages left, if they may be handed out."""
        while self.ready and self.ready[0].is_done:
            self.ready.popleft()
        return self.ready[0] if self.ready and self.may_hand_out else None

    def is_in_hand(self, offset: int) -> bool:
        """Say whether a message that was handed out has neither an ack nor a nack."""
        return self._unfinished.count(offset, offset + 1) > 0

    def __str__(self) -> str:
        return f"session {self.session!r}, partition {self.partition}, epoch {self.token[1]}"
