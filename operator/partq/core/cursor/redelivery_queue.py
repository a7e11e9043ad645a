"""Offsets that were given back and are sent again, each when its time has come.

Instants are seconds of the caller's clock.
"""

from bisect import bisect_left, insort
from math import inf
from typing import NamedTuple

from partq.core.cursor.due_times import DueTimes
from partq.core.cursor.processing_times import within
from partq.core.model import Cause
from partq.core.ranges import Ranges


class QueuedOffset(NamedTuple):
    """How one offset waits."""

    due: float
    cause: Cause
    holds: bool
    """Nothing behind it is sent before it."""


_HIDDEN = QueuedOffset(inf, Cause.NACK, holds=False)


class RedeliveryQueue:
    """The offsets of one book that wait; no acknowledged one is among them."""

    __slots__ = ("_again", "_causes", "_dues", "_numbers", "_offsets", "_sent", "_waits")

    def __init__(self) -> None:
        self._waits: dict[int, QueuedOffset] = {}
        self._offsets: list[int] = []
        """The keys of `_waits`, sorted."""
        self._dues = DueTimes()
        """Of those that wait for their time."""
        self._again: list[int] = []
        """Offsets whose time has come and that lie behind the position, sorted."""
        self._causes: dict[int, Cause] = {}
        """Of the offsets in `_again`."""
        self._sent: dict[int, int] = {}
        """What was sent out of turn under the current token, and is in flight → where that was in
        between: everything below was sent before it, everything from there on after it."""
        self._numbers: dict[int, int] = {}
        """What was given back under the current token → the lowest delivery number under which it
        is sent again."""

    def __bool__(self) -> bool:
        return bool(self._offsets or self._again)

    def __contains__(self, offset: int) -> bool:
        return offset in self._waits or offset in self._causes

    @property
    def next_due(self) -> float:
        """When the next offset has waited long enough; infinity: none waits for its time."""
        return self._dues.next_due

    @property
    def delayed(self) -> int:
        """How many offsets wait for their time."""
        return len(self._dues)

    @property
    def next_again(self) -> int | None:
        """The lowest offset that is to be sent out of its turn."""
        return self._again[0] if self._again else None

    def add(self, offset: int, wait: QueuedOffset, number: int) -> None:
        """Have an offset wait; it is sent again under the delivery number `number`, or later."""
        self._numbers[offset] = number
        self._sent.pop(offset, None)
        self._waits[offset] = wait
        insort(self._offsets, offset)
        self._dues.put(offset, wait.due)

    def was_given_back(self, offset: int, number: int) -> bool:
        """Say whether what was sent under a delivery number of the token was given back since."""
        return number < self._numbers.get(offset, 0)

    def start_token(self) -> None:
        """Forget the delivery numbers: they begin again."""
        self._numbers.clear()

    def hide(self, start: int, stop: int) -> None:
        """Have [start, stop) wait for good: it is passed over, and nothing waits for it."""
        self.discard(start, stop)
        self._waits.update(dict.fromkeys(range(start, stop), _HIDDEN))
        at = bisect_left(self._offsets, start)
        self._offsets[at:at] = range(start, stop)

    def end_waits(self, now: float, position: int) -> list[tuple[int, Cause]]:
        """End the waiting of those whose time has come.

        Those below `position` are sent out of turn; the others, which are returned, in their turn.
        """
        in_turn: list[tuple[int, Cause]] = []
        for offset in self._dues.pop(now):
            cause = self._waits.pop(offset).cause
            del self._offsets[bisect_left(self._offsets, offset)]
            if offset < position:
                insort(self._again, offset)
                self._causes[offset] = cause
            else:
                in_turn.append((offset, cause))
        return in_turn

    def take_again(self, stop: int, most: int, position: int) -> tuple[int, int, Cause]:
        """Take the lowest offsets that are to be sent out of turn: from, to (excluded), cause.

        There is one, `next_again`; those that follow it directly below `stop` come along, `most`
        in all. All below `position` was sent before them.
        """
        start = end = self._again[0]
        cause = self._causes[start]
        stop = min(stop, start + most)
        while end < stop and self._causes.get(end) is cause:
            del self._causes[end]
            self._sent[end] = position
            end += 1
        del self._again[: end - start]
        return start, end, cause

    def hidden(self, start: int, stop: int) -> tuple[int, list[int]]:
        """Return where sending from `start` must end, and what is passed over before that.

        It ends at the first offset that holds, else at `stop`.
        """
        passed: list[int] = []
        for at in range(bisect_left(self._offsets, start), bisect_left(self._offsets, stop)):
            offset = self._offsets[at]
            if self._waits[offset].holds:
                return offset, passed
            passed.append(offset)
        return stop, passed

    def count(self, start: int, stop: int) -> int:
        """Return how many offsets of [start, stop) wait, or are to be sent out of turn."""
        return sum(
            bisect_left(offsets, stop) - bisect_left(offsets, start)
            for offsets in (self._offsets, self._again)
        )

    def outside(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the parts of [start, stop) that a cumulative ack up to `stop` speaks of.

        It names the message below `stop`. Left out is what a consumer may have got after that
        message or not yet: what waits, and what was sent out of turn later than it.
        """
        if not (self._offsets or self._again or self._sent):  # the usual case
            return [(start, stop)] if start < stop else []
        left_out = Ranges()
        for offsets in (self._offsets, self._again):
            for offset in offsets[bisect_left(offsets, start) : bisect_left(offsets, stop)]:
                left_out.add(offset, offset + 1)
        for offset in within(self._sent, start, stop):
            if stop <= self._sent[offset]:
                left_out.add(offset, offset + 1)
        left_out.remove(stop - 1, stop)
        return left_out.outside(start, stop)

    def discard(self, start: int, stop: int) -> None:
        """Forget the offsets of [start, stop)."""
        for offset in within(self._sent, start, stop):
            del self._sent[offset]
        for offset in within(self._numbers, start, stop):
            del self._numbers[offset]
        low, high = bisect_left(self._offsets, start), bisect_left(self._offsets, stop)
        for offset in self._offsets[low:high]:
            del self._waits[offset]
            self._dues.remove(offset)
        del self._offsets[low:high]
        low, high = bisect_left(self._again, start), bisect_left(self._again, stop)
        for offset in self._again[low:high]:
            del self._causes[offset]
        del self._again[low:high]

    def go_back(self, position: int) -> list[tuple[int, Cause]]:
        """Take out those that are sent in turn now, as all from `position` on is."""
        sent = self._sent.items()
        self._sent = {offset: min(at, position) for offset, at in sent if offset < position}
        at = bisect_left(self._again, position)
        in_turn = [(offset, self._causes.pop(offset)) for offset in self._again[at:]]
        del self._again[at:]
        return in_turn
