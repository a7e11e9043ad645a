"""A partition in order of offsets: what is given back is redelivered with all behind it, or alone.

Only what has not begun can be given back, and is given back as a whole: everything from the first
such message on.
"""

import asyncio
from collections import deque
from typing import NamedTuple

from partq.client.consume.assignment.assigned_partition import AssignedPartition, PartitionHolder
from partq.client.consume.assignment.delivered_window import (
    DeliveredWindow,
    FreedCredit,
    forget_windows,
)
from partq.client.consume.assignment.finished_messages import FinishedMessages
from partq.client.hooks.serializers import ValueDeserializer
from partq.core.model import PartitionId
from partq.core.ranges import Ranges
from partq.wire.frames import Deliver, Frame, Range, Release, Rewound


class SequentialPartition(AssignedPartition):
    """A partition whose messages are in order of their offsets, but for single ones sent again."""

    def __init__(
        self,
        holder: PartitionHolder,
        partition: PartitionId,
        token: tuple[int, int],
        cursor: int,
        value_deserializer: ValueDeserializer | None = None,
    ) -> None:
        super().__init__(holder, partition, token, cursor, value_deserializer)
        self._rewound_from: int | None = None
        """The lowest offset that it stepped back to since `pop_rewound` was called last."""
        self._void_upto = -1
        """Deliveries up to this number were given back, also those that are still on their way."""
        self._void_from = cursor
        """From this offset on; what comes out of turn is below."""
        self._begun_end = cursor
        """The broker knows that everything below has begun."""
        self._windows: deque[DeliveredWindow] = deque()
        self._out_of_turn: list[DeliveredWindow] = []
        self._kept: dict[int, _Kept] = {}
        """What was dropped by a nack and is redelivered without its bytes, by its first offset."""
        self._finished = FinishedMessages(cursor)

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

    def accept(self, frame: Deliver, payload: bytes) -> DeliveredWindow | None:
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

    def hold_back(self, window: DeliveredWindow) -> None:
        """Leave a window as it is: slots are not told apart."""

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
        return forget_windows((*self._windows, *self._out_of_turn), frame.start)

    def pop_rewound(self) -> int | None:
        """Return the lowest offset that it stepped back to since the last call; None: to none."""
        start, self._rewound_from = self._rewound_from, None
        return start

    def forget(self) -> FreedCredit:
        """Forget what has not begun; return the room that it had."""
        self._kept.clear()
        return forget_windows((*self._windows, *self._out_of_turn), 0)

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
        freed = forget_windows(self._windows, 0)
        self._windows.clear()
        if start is None or start >= self._delivered_end:
            return None, freed
        self._kept.clear()  # the broker learns of it by the frame alone
        self._delivered_end = start
        self._void_upto, self._void_from = self.delivery, start
        generation, index = self.partition
        return Release(generation, index, *self.token, self.delivery, start), freed

    def release_last(self) -> Frame | None:
        """Give back what has not begun before the connection is closed."""
        return self.release()[0]

    def add_cumulative_ack(self, delivery: int, upto: int) -> asyncio.Future[None]:
        """Have the holder acknowledge all that was handed out below an offset; for batches."""
        return self.holder.add_ack(self, delivery, upto, self.begun_again(upto))

    def note_refused(self, offset: int) -> None:
        """Note that the ack of a message was refused: the application still has it."""
        self._finished.deliver_again(offset, offset + 1)
        self._finished.redeliver(offset, offset + 1)

    def _note_acked(self, upto: int, ranges: list[Range]) -> int:
        return self._finished.ack(upto, ranges)

    def _note_nacked(self, ranges: list[Range]) -> int:
        return self._finished.add(-1, ranges)

    def _are_acked(self, ranges: list[Range]) -> bool:
        return self._finished.are_acked(ranges)

    def _kept_from(self) -> int:
        return self._begun_upto()

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


class _Kept(NamedTuple):
    """A stored batch whose messages are redelivered, all below `stop`."""

    payload: bytes
    stop: int
