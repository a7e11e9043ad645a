"""One partition while a flow holds it: its token, and the messages that have not begun.

A message has *begun* when it was handed to the application. Only what has not begun can be given
back, and is given back as a whole: everything from the first such message on.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from partq.client.deliveries import Batch, Delivery
from partq.core.model import Cause, PartitionId
from partq.wire import batch as wire
from partq.wire.frames import Ack, Deliver, Range, Release


class Holder(Protocol):
    """Who holds: a flow."""

    def add_ack(
        self, holding: "Holding", delivery: int, upto: int, ranges: Sequence[Range]
    ) -> asyncio.Future[None]:
        """Acknowledge messages below `upto` (unless -1) and in `ranges`."""

    def give_up(self, holding: "Holding", cause: Cause) -> None:
        """End the holding: another flow has got the partition under a newer token."""


class Holding:
    """The right of one flow to one partition, from `Assigned` to its end."""

    def __init__(
        self, holder: Holder, partition: PartitionId, token: tuple[int, int], cursor: int
    ) -> None:
        self.holder = holder
        self.partition = partition
        self.token = token
        """(broker epoch, epoch)"""
        self.delivery = 0
        """Highest delivery number seen."""
        self.is_ended = False
        self._void_upto = -1
        """Deliveries up to this number were given back, also those that are still on their way."""
        self._stopped_from: int | None = None
        self._delivered_end = cursor
        self._windows: deque[Window] = deque()

    def accept(self, frame: Deliver, payload: bytes) -> "tuple[Window | None, int]":
        """Take a delivery; return the window to hand out, and how much room became free.

        No window: the delivery is older than one seen before, or belongs to what was given back
        (it was on its way then, and comes again in its turn), or the partition is stopped.
        """
        size = window_size(frame)
        if self.is_ended or frame.delivery < self.delivery or frame.delivery <= self._void_upto:
            return None, size
        freed = 0
        if frame.delivery > self.delivery:
            # A rewind: what is buffered from there on comes again.
            self.delivery = frame.delivery
            freed = self.drop_from(frame.start)
        self._delivered_end = frame.stop
        if self._stopped_from is not None:
            return None, freed + size
        while self._windows and self._windows[0].is_done:
            self._windows.popleft()
        window = Window(self, frame, payload)
        self._windows.append(window)
        return window, freed

    def drop_from(self, offset: int = 0) -> int:
        """Forget what has not begun from `offset` on; return how much room became free."""
        return sum(window.drop_from(offset) for window in self._windows)

    def stop_at(self, window: "Window") -> int:
        """Hand out nothing from an unusable window on; return how much room became free."""
        self._stopped_from = window.next_offset
        freed = self.drop_from()
        self._windows.clear()
        return freed

    def release(self) -> tuple[Release | None, int]:
        """Give back what has not begun; return the frame to send, and the room that is free.

        No frame: everything that came has begun.
        """
        start = self._stopped_from
        if start is None:
            start = next((w.next_offset for w in self._windows if not w.is_done), None)
        freed = self.drop_from()
        self._windows.clear()
        if start is None or start >= self._delivered_end:
            return None, freed
        self._delivered_end = start
        self._void_upto = self.delivery
        generation, index = self.partition
        return Release(generation, index, *self.token, self.delivery, start), freed

    def ack(self, request: int, delivery: int, upto: int, ranges: list[Range]) -> Ack:
        """Return the frame of an ack under this token."""
        generation, index = self.partition
        return Ack(request, generation, index, *self.token, delivery, upto, ranges)

    def __str__(self) -> str:
        return f"partition {self.partition}, epoch {self.token[1]}"


class Window:
    """One delivery: decoded when its first message is taken."""

    __slots__ = ("_batch", "_end", "_frame", "_offsets", "_payload", "_taken", "holding")

    def __init__(self, holding: Holding, frame: Deliver, payload: bytes) -> None:
        self.holding = holding
        self._frame = frame
        self._payload = payload
        self._offsets = _offsets(frame)
        self._batch: Batch | None = None
        self._taken = 0
        self._end = len(self._offsets)

    @property
    def is_done(self) -> bool:
        """Whether every message was taken or dropped."""
        return self._taken >= self._end

    @property
    def next_offset(self) -> int:
        """The offset of the first message that was not taken."""
        return self._offsets[self._taken]

    def take_one(self) -> Delivery:
        """Hand out the next message; raises `UndecodableError`."""
        batch = self._decoded()
        self._taken += 1
        return Delivery(batch, self._taken - 1)

    def take_all(self) -> Batch:
        """Hand out every message that is left, at least one; raises `UndecodableError`."""
        batch = self._decoded()
        first, self._taken = self._taken, self._end
        if not first and self._end == len(batch):
            return batch
        kept = slice(first, self._end)
        return Batch(self.holding, self._frame, batch.messages[kept], batch.offsets[kept])

    def drop_from(self, offset: int) -> int:
        """Forget the messages from `offset` on that were not taken; return how many."""
        if self.is_done:
            return 0
        before = self._end
        self._end = max(self._taken, bisect_left(self._offsets, offset, hi=before))
        if self._end == self._taken:
            self._payload = b""
        return before - self._end

    def _decoded(self) -> Batch:
        if self._batch is None:
            frame = self._frame
            first = frame.first_offset
            messages = wire.decode(self._payload, frame.start - first, frame.stop - first)
            if frame.skip:
                messages = [messages[offset - frame.start] for offset in self._offsets]
            self._batch = Batch(self.holding, frame, messages, self._offsets)
            self._payload = b""
        return self._batch


def window_size(frame: Deliver) -> int:
    """Return how many messages a delivery counts for: those in the window that are not skipped."""
    return frame.stop - frame.start - sum(stop - first for first, stop in frame.skip)


def _offsets(frame: Deliver) -> Sequence[int]:
    if not frame.skip:
        return range(frame.start, frame.stop)
    skipped = {offset for first, stop in frame.skip for offset in range(first, stop)}
    return [offset for offset in range(frame.start, frame.stop) if offset not in skipped]
