"""One partition while a flow holds it: its token, and the messages that have not begun.

A message has *begun* when it was handed to the application. Only what has not begun can be given
back, and is given back as a whole: everything from the first such message on.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from partq.client.consume.deliveries import Batch, Delivery, delivered_offsets
from partq.client.consume.finished_messages import FinishedMessages
from partq.client.hooks.serializers import ValueDeserializer
from partq.client.transport.positions import SeekPlace
from partq.core.dead_letters import LetterNote
from partq.core.model import Cause, PartitionId
from partq.core.ranges import Ranges
from partq.errors import ConflictError
from partq.wire import batch as wire
from partq.wire.frames import Ack, Deliver, InProgress, Nack, Range, Release, Rewound


class FreedCredit(NamedTuple):
    """What a client has room for again."""

    message_count: int
    batch_bytes: int
    """Of deliveries that have nothing left to take."""


class PartitionHolder(Protocol):
    """The flow that holds an assigned partition."""

    @property
    def queue(self) -> str:
        """The queue that it is of."""

    def add_ack(
        self, assigned: "AssignedPartition", delivery: int, upto: int, ranges: Sequence[Range]
    ) -> asyncio.Future[None]:
        """Acknowledge messages below `upto` (unless -1) and in `ranges`."""

    def nack(
        self,
        assigned: "AssignedPartition",
        delivery: int,
        ranges: list[Range],
        delay_ms: int,
        note: LetterNote,
    ) -> asyncio.Future[None]:
        """Give messages back that the application has begun."""

    def extend(
        self, assigned: "AssignedPartition", delivery: int, ranges: list[Range]
    ) -> asyncio.Future[None]:
        """Have the time for the acks of messages start again."""

    def is_valid(self) -> bool:
        """Say whether the broker is proven to be alive."""

    def go_on(self, assigned: "AssignedPartition") -> None:
        """Note that one of the partition's `waits` is over."""

    def give_up(self, assigned: "AssignedPartition", cause: Cause) -> None:
        """End the assignment: another flow has got the partition under a newer token."""

    def pause(self, assigned: "AssignedPartition") -> None:
        """Hand out nothing of the partition until `resume`."""

    def resume(self, assigned: "AssignedPartition") -> None:
        """Hand out messages of the partition again."""

    def check_seeks(self) -> None:
        """Raise `UnavailableError` if the broker does not know seeks."""

    def seek(self, assigned: "AssignedPartition", place: SeekPlace) -> asyncio.Future[int]:
        """Have the group's cursor moved; the future says where it is."""


class AssignedPartition:
    """The right of one flow to one partition, from `Assigned` to its end."""

    def __init__(
        self,
        holder: PartitionHolder,
        partition: PartitionId,
        token: tuple[int, int],
        cursor: int,
        value_deserializer: ValueDeserializer | None = None,
    ) -> None:
        self.holder = holder
        self.partition = partition
        self.value_deserializer = value_deserializer
        self.token = token
        """(broker epoch, epoch)"""
        self.delivery = 0
        """Highest delivery number seen."""
        self.is_ended = False
        self.is_sought = False
        """A seek of the consumer has ended it."""
        self.is_paused = False
        """The application has paused it."""
        self.waits = 0
        """Nacks without an answer, an `on_assigned` under way, and a pause: nothing goes out."""
        self.is_full = False
        """Another wait, in which what was taken goes out."""
        self.set_aside: list[DeliveredWindow] = []
        """Windows whose turn came meanwhile."""
        self._rewound_from: int | None = None
        """The lowest offset that it stepped back to since `pop_rewound` was called last."""
        self._void_upto = -1
        """Deliveries up to this number were given back, also those that are still on their way."""
        self._void_from = cursor
        """From this offset on; what comes out of turn is below."""
        self._delivered_end = cursor
        self._begun_end = cursor
        """The broker knows that everything below has begun."""
        self._windows: deque[DeliveredWindow] = deque()
        self._out_of_turn: list[DeliveredWindow] = []
        self._kept: dict[int, _Kept] = {}
        """What was dropped by a nack and is redelivered without its bytes, by its first offset."""
        self._finished = FinishedMessages(cursor)

    @property
    def queue(self) -> str:
        """The queue that the partition is of."""
        return self.holder.queue

    @property
    def may_hand_out(self) -> bool:
        """Whether its messages may be handed out now: the same for all that came."""
        return not self.is_ended and self.waits == int(self.is_full) and self.holder.is_valid()

    def set_full(self, is_full: bool) -> None:
        """Have no further message taken while this is so."""
        if is_full and not self.is_full:
            self.waits += 1
        elif self.is_full and not is_full:
            self.holder.go_on(self)
        self.is_full = is_full

    @property
    def begun_upto(self) -> int:
        """The next offset, in turn, that is handed out."""
        return self._begun_upto()

    @property
    def has_in_hand(self) -> bool:
        """Whether the application has begun something, and said nothing of it yet.

        What came out of turn counts from then on: it cannot be released.
        """
        return self._finished.leaves_below(self._begun_upto())

    @property
    def in_hand_count(self) -> int:
        """How many messages the application has begun and said nothing of."""
        again = self.begun_again(self._finished.again_stop)
        in_turn = self._finished.count_left_below(self._begun_upto())
        return in_turn + sum(stop - start for start, stop in again)

    @property
    def buffered_count(self) -> int:
        """How many messages came and were neither handed out nor dropped."""
        return sum(window.left for window in (*self._windows, *self._out_of_turn))

    def accept(self, frame: Deliver, payload: bytes) -> "DeliveredWindow | None":
        """Take a delivery; return the window to hand out.

        None: the delivery is older than one seen before, or belongs to what was given back (it was
        on its way then, and is redelivered in its turn).
        """
        is_void = frame.delivery <= self._void_upto and frame.start >= self._void_from
        if self.is_ended or frame.delivery < self.delivery or is_void:
            return None
        self.delivery = frame.delivery
        if self._kept:
            kept = self._take_kept(frame)  # also if it comes with its bytes: it was redelivered
            payload = payload or kept
        window = DeliveredWindow(
            self, frame, payload, is_in_turn=frame.start >= self._delivered_end
        )
        if frame.cause:
            for start, stop in Ranges(frame.skip).outside(frame.start, frame.stop):
                self._finished.deliver_again(start, stop)
        if not window.is_in_turn:
            if not window.is_missing:
                self._out_of_turn.append(window)
            for start, stop in Ranges(frame.skip).outside(frame.start, frame.stop):
                self._finished.redeliver(start, stop)
            return window
        # What the broker passes over has expired, or was acknowledged under an older token.
        self._finished.add(-1, [(self._delivered_end, frame.start), *frame.skip])
        self._delivered_end = frame.stop
        while self._windows and self._windows[0].is_done:
            self._windows.popleft()
        self._windows.append(window)
        return window

    @property
    def kept_bytes(self) -> int:
        """The size of what is kept to be handed out when its turn returns."""
        return sum(len(kept.payload) for kept in self._kept.values())

    def rewind(self, frame: Rewound, keep_bytes: int = 0) -> FreedCredit:
        """Step back: forget what has not begun of what is redelivered; return the room it had.

        Of its batches so many bytes are kept, the first ones: most are redelivered without theirs.
        """
        for window in self._windows:
            if window.stop > frame.start and keep_bytes >= len(window.payload) > 0:
                keep_bytes -= len(window.payload)
                before = self._kept.get(window.first_offset)
                stop = max(window.stop, before.stop if before else 0)
                self._kept[window.first_offset] = _Kept(window.payload, stop)
        self.delivery = frame.delivery
        seen = self._rewound_from
        self._rewound_from = frame.start if seen is None else min(seen, frame.start)
        self._delivered_end = min(self._delivered_end, frame.start)
        self._begun_end = min(self._begun_end, frame.start)
        self._finished.rewind(frame.start)
        return _drop((*self._windows, *self._out_of_turn), frame.start)

    def pop_rewound(self) -> int | None:
        """Return the lowest offset that it stepped back to since the last call; None: to none."""
        start, self._rewound_from = self._rewound_from, None
        return start

    def drop(self) -> FreedCredit:
        """Forget what has not begun; return the room that it had."""
        self._kept.clear()
        return _drop((*self._windows, *self._out_of_turn), 0)

    def _take_kept(self, frame: Deliver) -> bytes:
        """Return the bytes that were kept of a delivery; empty: none were.

        Forgets them with the last of their messages, and what comes before them.
        """
        for first in [first for first in self._kept if first < frame.first_offset]:
            del self._kept[first]
        kept = self._kept.get(frame.first_offset)
        if kept is None:
            return b""
        if frame.stop >= kept.stop:
            del self._kept[frame.first_offset]
        return kept.payload

    def begun(self) -> list[Range]:
        """Return what was handed out since this was asked for last."""
        ranges = [window.begun for window in self._out_of_turn if window.begun is not None]
        self._out_of_turn = [window for window in self._out_of_turn if not window.is_done]
        end = self._begun_upto()
        if end > self._begun_end:
            ranges.append((self._begun_end, end))
            self._begun_end = end
        return ranges

    def release(self) -> tuple[Release | None, FreedCredit]:
        """Give back what has not begun; return the frame to send, and the room that is free.

        No frame: everything that came has begun.
        """
        start = self._first_left()
        freed = _drop(self._windows, 0)
        self._windows.clear()
        if start is None or start >= self._delivered_end:
            return None, freed
        self._kept.clear()  # the broker learns of it by the frame alone
        self._delivered_end = start
        self._void_upto, self._void_from = self.delivery, start
        generation, index = self.partition
        return Release(generation, index, *self.token, self.delivery, start), freed

    def add_ack(self, delivery: int, upto: int, ranges: Sequence[Range]) -> asyncio.Future[None]:
        """Have the holder acknowledge messages; for batches."""
        return self.holder.add_ack(self, delivery, upto, ranges)

    def add_nack(
        self, delivery: int, ranges: list[Range], delay_ms: int, note: LetterNote
    ) -> asyncio.Future[None]:
        """Have the holder give messages back; for batches."""
        return self.holder.nack(self, delivery, ranges, delay_ms, note)

    def add_progress(self, delivery: int, ranges: list[Range]) -> asyncio.Future[None]:
        """Have the holder extend the time of messages; for batches."""
        return self.holder.extend(self, delivery, ranges)

    def progress(self, request: int, delivery: int, ranges: list[Range]) -> InProgress:
        """Return the frame that says of messages that they are in progress."""
        return InProgress(request, *self.partition, *self.token, delivery, ranges)

    def ack(self, request: int, delivery: int, upto: int, ranges: list[Range]) -> tuple[Ack, int]:
        """Return the frame of an ack under this token, and how many messages it finishes."""
        count = self._finished.ack(upto, ranges)
        generation, index = self.partition
        return Ack(request, generation, index, *self.token, delivery, upto, ranges), count

    def check_unacknowledged(self, call: str, ranges: list[Range]) -> None:
        """Refuse to give back what the application has acknowledged, each message of it.

        Raises:
            ConflictError: it has; `call` is named.
        """
        if not self._finished.are_acked(ranges):
            return
        first, stop = ranges[0][0], ranges[-1][1]
        offsets = f"offset {first}" if stop - first == 1 else f"offsets {first} to {stop - 1}"
        raise ConflictError(
            f"{call}: {self}, {offsets}: got what was acknowledged before, expected a message "
            "without an ack; nothing has happened, and it is not redelivered: call one of ack, "
            "nack and dead_letter for a message"
        )

    def nack(
        self, request: int, delivery: int, ranges: list[Range], delay_ms: int, note: LetterNote
    ) -> tuple[Nack, int]:
        """Return the frame of a nack under this token, and how many messages it gives back."""
        count = self._finished.add(-1, ranges)
        place = (*self.partition, *self.token)
        frame = Nack(
            request,
            *place,
            delivery,
            ranges,
            delay_ms,
            note.reason,
            self._begun_upto(),
            keeps=True,
            makes_dead_letters=note.is_asked_for,
            description=note.description,
        )
        return frame, count

    def begun_again(self, upto: int) -> list[Range]:
        """Return what the application is processing, below `upto`, of what came out of turn.

        A cumulative ack names it: for the broker, what it has sent so late may still be on its way.
        """
        in_hand = self._finished.again_below(upto)
        for window in self._out_of_turn:
            if not window.is_done:
                in_hand.remove(window.next_offset, window.stop)
        return in_hand.pairs()

    def _begun_upto(self) -> int:
        """Return where, in turn, that begins which was not handed out, come or to come."""
        first = self._first_left()
        return self._delivered_end if first is None else first

    def _first_left(self) -> int | None:
        """Return the first offset, in turn, that came and was not handed out; None: all was."""
        return next((w.next_offset for w in self._windows if not w.is_done), None)

    def __str__(self) -> str:
        return f"partition {self.partition}, epoch {self.token[1]}"


class _Kept(NamedTuple):
    """A stored batch whose messages are redelivered, all below `stop`."""

    payload: bytes
    stop: int


class DeliveredWindow:
    """One delivery: decoded when its first message is taken."""

    __slots__ = (
        "_batch",
        "_end",
        "_frame",
        "_offsets",
        "_size",
        "_taken",
        "assigned",
        "is_in_turn",
        "payload",
    )

    def __init__(
        self, assigned: AssignedPartition, frame: Deliver, payload: bytes, *, is_in_turn: bool
    ) -> None:
        self.assigned = assigned
        self.is_in_turn = is_in_turn
        """Whether it follows what came before it; else it is of messages that were nacked."""
        self._frame = frame
        self.payload = payload
        """The stored batch, while messages of it are left to take."""
        self._size = frame.kept_bytes or len(payload)
        self._offsets = delivered_offsets(frame)
        self._batch: Batch | None = None
        self._taken = 0
        self._end = len(self._offsets)

    @property
    def is_done(self) -> bool:
        """Whether every message was taken or dropped."""
        return self._taken >= self._end

    @property
    def left(self) -> int:
        """How many messages were neither taken nor dropped."""
        return self._end - self._taken

    @property
    def next_offset(self) -> int:
        """The offset of the first message that was not taken."""
        return self._offsets[self._taken]

    @property
    def begun(self) -> Range | None:
        """From the first message to the last that was taken; None: none was."""
        return (self._offsets[0], self._offsets[self._taken - 1] + 1) if self._taken else None

    @property
    def is_missing(self) -> bool:
        """Whether it came without its bytes, and they were not kept."""
        return not self.payload

    @property
    def first_offset(self) -> int:
        """The offset of the first message of its stored batch."""
        return self._frame.first_offset

    @property
    def stop(self) -> int:
        """The offset behind its last message."""
        return self._frame.stop

    @property
    def delivery(self) -> int:
        """The number of its delivery."""
        return self._frame.delivery

    def freed_bytes(self) -> int:
        """Return the size of the delivery, once, when no message of it is left to take; else 0."""
        if not self.is_done:
            return 0
        size, self._size = self._size, 0
        return size

    def pass_over(self) -> tuple[Range, int]:
        """Take every message that is left, unread; return from where to where, and how many."""
        first, self._taken = self._taken, self._end
        self.payload = b""
        return (self._offsets[first], self._offsets[self._end - 1] + 1), self._end - first

    def take_one(self) -> Delivery:
        """Hand out the next message; raises `UndecodableError`."""
        batch = self._decoded()
        self._taken += 1
        if self._taken == self._end:
            self.payload = b""
        return Delivery(batch, self._taken - 1)

    def take_all(self) -> Batch:
        """Hand out every message that is left, at least one; raises `UndecodableError`."""
        batch = self._decoded()
        first, self._taken = self._taken, self._end
        self.payload = b""
        if not first and self._end == len(batch):
            return batch
        return batch.part(slice(first, self._end))

    def drop_from(self, offset: int) -> int:
        """Forget the messages from `offset` on that were not taken; return how many."""
        if self.is_done:
            return 0
        before = self._end
        self._end = max(self._taken, bisect_left(self._offsets, offset, hi=before))
        if self._end == self._taken:
            self.payload = b""
        return before - self._end

    def _decoded(self) -> Batch:
        if self._batch is None:
            frame = self._frame
            first = frame.first_offset
            messages = wire.decode(self.payload, frame.start - first, frame.stop - first)
            if frame.skip:
                messages = [messages[offset - frame.start] for offset in self._offsets]
            self._batch = Batch(self.assigned, frame, messages, self._offsets)
        return self._batch


def _drop(windows: Iterable[DeliveredWindow], offset: int) -> FreedCredit:
    messages = size = 0
    for window in windows:
        messages += window.drop_from(offset)
        size += window.freed_bytes()
    return FreedCredit(messages, size)
