"""What one consumer group has got, and has done with, in one partition.

The book that a broker keeps: cursor, acknowledged ranges above it, the next offset to send, which
offsets are sent again and why. No I/O and no clock; the broker's flows and flushes drive it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from partq.core.model import Cause
from partq.core.ranges import Ranges
from partq.errors import NotDeliveredError, RewoundError

ACK_SPAN = 100_000
"""Offsets above the cursor that may be delivered: bounds the acknowledged ranges."""

_COUNTED = frozenset({Cause.FLOW_LOST, Cause.FORCED_COMMIT})
"""Causes that may be the fault of the message in hand."""


@dataclass(frozen=True, slots=True)
class Window:
    """Offsets `start` to `stop` (excluded) to send, without the acknowledged ones in `skip`."""

    start: int
    stop: int
    skip: list[tuple[int, int]]
    cause: Cause
    redeliveries: list[tuple[int, int]]
    messages: int
    """How many messages the window holds: what it costs in credit."""


class Delivery:
    """The book of one group in one partition, for as long as one broker owns it."""

    __slots__ = (
        "_causes",
        "_redeliveries",
        "_releases",
        "acked",
        "cursor",
        "in_flight",
        "number",
        "position",
    )

    def __init__(
        self,
        cursor: int,
        acked: Iterable[tuple[int, int]] = (),
        redeliveries: Mapping[int, int] | None = None,
    ) -> None:
        self.cursor = cursor
        """Everything below is acknowledged."""
        self.acked = Ranges(acked)
        self.position = cursor
        """The next offset to send under the current token; all below it were sent under it."""
        self.in_flight = 0
        """Messages below `position` that are neither acknowledged nor released."""
        self.number = 0
        """Delivery number of the current token."""
        self._releases: list[tuple[int, int]] = []
        """Delivery number and start of each release that no later one has undercut: both grow."""
        self._causes: list[tuple[int, int, Cause]] = []
        self._redeliveries = dict(redeliveries or {})

    @property
    def redeliveries(self) -> dict[int, int]:
        """How often an offset was sent again through a fault of its own, where not 0."""
        return dict(self._redeliveries)

    def mark(self, stop: int, cause: Cause) -> None:
        """Note that [cursor, stop) may have been processed before, for `cause`.

        What has a cause further up keeps it: the last event explains the offsets that it concerns.
        """
        if stop <= self.cursor:
            return
        later = [(max(a, stop), b, why) for a, b, why in self._causes if b > stop]
        if later and later[0][0] == stop and later[0][2] is cause:
            stop = later.pop(0)[1]  # one stretch: windows are not cut where nothing changes
        self._causes = [(self.cursor, stop, cause), *later]

    def redeliveries_after_rewind(self) -> dict[int, int]:
        """Return the counts that a rewind leaves; they are stored before anything goes out again.

        Only the lowest unacknowledged offset can have been the one in hand when a process died:
        the others are innocent.
        """
        counts = dict(self._redeliveries)
        if self.in_flight:
            lowest = self.acked.end_of_run(self.cursor)
            counts[lowest] = counts.get(lowest, 0) + 1
        return counts

    def rewind(self, cause: Cause) -> None:
        """Start a new token at the cursor; what the old one had in flight goes out again."""
        if cause in _COUNTED:
            self._redeliveries = self.redeliveries_after_rewind()
        self.mark(self.position, cause)
        self.position = self.cursor
        self.in_flight = 0
        self.number = 0
        self._releases.clear()

    def take(self, start: int, stop: int, credit: int) -> Window | None:
        """Take the next window inside the stored batch of the offsets [start, stop).

        `position` must lie in the batch. At most `credit` messages. None when nothing of the
        batch is left to send, or nothing may be sent now; `position` tells which.
        """
        begin = self.acked.end_of_run(self.position)
        if begin >= stop:
            self.position = begin
            return None
        end = min(stop, self.cursor + ACK_SPAN)
        cause = Cause.NONE
        for low, high, why in self._causes:
            if low <= begin < high:
                cause, end = why, min(end, high)
            elif low > begin:
                end = min(end, low)
        if end <= begin or credit <= 0:
            return None
        end = self.acked.end_of_window(begin, end, credit)
        skip = self.acked.within(begin, end)
        messages = end - begin - sum(b - a for a, b in skip)
        counts = (
            sorted((o, n) for o, n in self._redeliveries.items() if begin <= o < end)
            if self._redeliveries
            else []
        )
        self.position = end
        self.in_flight += messages
        return Window(begin, end, skip, cause, counts, messages)

    def ack(self, upto: int, ranges: Iterable[tuple[int, int]], number: int) -> int:
        """Acknowledge all below `upto` (-1: none) and `ranges`; return how many were in flight.

        Raises:
            NotDeliveredError: an offset was not delivered under the current token.
            RewoundError: `upto` reaches what was released since the delivery number it names.
        """
        ranges = sorted(ranges)  # each is then cheap to add, in whatever order a client sends them
        is_older = number < self.number
        if number > self.number or (is_older and upto > self._released_from(number)):
            raise RewoundError(
                f"cumulative ack under delivery {number}; the current one is {self.number}: "
                "acknowledge what was delivered again"
            )
        highest = max([upto, *(stop for _, stop in ranges)])
        if highest > self.position or any(a < 0 or a >= b for a, b in ranges):
            raise NotDeliveredError(
                f"ack up to {highest}; delivered up to {self.position}: nothing was acknowledged"
            )
        before = self.in_flight
        if upto > self.cursor:
            self._count_down(self.cursor, upto)
            self.cursor = upto
        for start, stop in ranges:
            low = max(start, self.cursor)
            if low < stop:
                self._count_down(low, stop)
                self.acked.add(low, stop)
        if self.acked:
            self.cursor = self.acked.end_of_run(self.cursor)
            self.acked.drop_below(self.cursor)
            # What was acknowledged under an older token is not sent again, nor looked at.
            self.position = max(self.position, self.cursor)
        while len(self._releases) > 1 and self._releases[1][1] <= self.cursor:
            del self._releases[0]
        if self._redeliveries:
            self._redeliveries = {
                offset: count
                for offset, count in self._redeliveries.items()
                if offset >= self.cursor and self.acked.end_of_run(offset) == offset
            }
        if self._causes:
            self._causes = [
                (max(a, self.cursor), b, why) for a, b, why in self._causes if b > self.cursor
            ]
        return before - self.in_flight

    def release(self, start: int, number: int) -> int:
        """Take back all from `start` on, none of which was begun; return how many messages.

        Raises:
            NotDeliveredError: `start` lies beyond what was delivered.
            RewoundError: the delivery number is not the current one.
        """
        if number != self.number:
            raise RewoundError(f"release under delivery {number}; the current one is {self.number}")
        start = max(start, self.cursor)
        if start > self.position:
            raise NotDeliveredError(f"release from {start}; delivered up to {self.position}")
        released = self.position - start - self.acked.count(start, self.position)
        if released:
            self.position = start
            self.in_flight -= released
            while self._releases and self._releases[-1][1] >= start:
                self._releases.pop()
            self._releases.append((self.number, start))
            self.number += 1
        return released

    def _released_from(self, number: int) -> int:
        """Return the first offset that was released since an older delivery number."""
        at = bisect_left(self._releases, (number, 0))
        start = self._releases[at][1] if self._releases else 0
        return max(start, self.cursor)

    def _count_down(self, start: int, stop: int) -> None:
        stop = min(stop, self.position)
        if start < stop:
            self.in_flight -= stop - start - self.acked.count(start, stop)
