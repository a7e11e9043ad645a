"""Record since when the application of a member has been processing which messages.

Members tell what their application has begun, a stretch of offsets at a time, so this costs
nothing per message. Instants are seconds of the caller's clock.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Sequence
from math import inf

MAX_EXTENDED_S = 12 * 3600.0
"""How long after a message was begun its time can be extended, in seconds."""


class ProcessingTimes:
    """What was begun under one token, the oldest first."""

    __slots__ = ("_again", "_end", "_first", "_stretches")

    def __init__(self) -> None:
        self._stretches: deque[tuple[float, int, int]] = deque()
        """When, from, to: rising in all three, without what was sent out of turn since."""
        self._end = 0
        """Everything below was begun, or needs no watching."""
        self._again: dict[int, float] = {}
        """Offset that was sent out of turn, or extended → since when its time runs; infinity: it
        was not begun yet."""
        self._first: dict[int, float] = {}
        """Offset that was extended → when it was begun."""

    def report(self, start: int, stop: int, now: float) -> None:
        """Note that [start, stop) has begun."""
        again = within(self._again, start, stop)
        for offset in again:
            self._again[offset] = min(self._again[offset], now)
        if len(again) == stop - start:
            return  # out of turn: what is below may not have been reported yet
        start = max(start, self._end)
        if start < stop:
            self._stretches.append((now, start, stop))
            self._end = stop

    def resend(self, start: int, stop: int) -> None:
        """Note that [start, stop), which was begun once, is sent out of turn."""
        for offset in within(self._first, start, stop):
            del self._first[offset]
        self._again.update(dict.fromkeys(range(start, stop), inf))

    def extend(self, offsets: Sequence[int], now: float) -> list[int]:
        """Let the time of offsets, which rise, run from `now` on; return those left as they are.

        These were begun more than `MAX_EXTENDED_S` ago. One that was not reported begins now.
        """
        late: list[int] = []
        stops = [stop for _, _, stop in self._stretches]
        for offset in offsets:
            first = self._first.get(offset)
            if first is None:
                first = min(self._again.get(offset, self._reported_at(stops, offset)), now)
            if now - first > MAX_EXTENDED_S:
                late.append(offset)
            else:
                self._first[offset], self._again[offset] = first, now
        return late

    def _reported_at(self, stops: list[int], offset: int) -> float:
        at = bisect_right(stops, offset)
        if at == len(stops) or offset < self._stretches[at][1]:
            return inf
        return self._stretches[at][0]

    def expire(self, since: float) -> list[int]:
        """Return, rising, what was begun at `since` or before; it is not watched any more."""
        offsets: list[int] = []
        while self._stretches and self._stretches[0][0] <= since:
            _, start, stop = self._stretches.popleft()
            offsets += [offset for offset in range(start, stop) if offset not in self._again]
        late = [offset for offset, at in self._again.items() if at <= since]
        for offset in late:
            self.forget(offset)
        return sorted(offsets + late) if late else offsets

    def forget(self, offset: int) -> None:
        """Note that an offset which may be watched by itself is not in process any more."""
        self._again.pop(offset, None)
        self._first.pop(offset, None)

    def drop_below(self, cursor: int) -> None:
        """Forget what is below the cursor."""
        while self._stretches and self._stretches[0][2] <= cursor:
            self._stretches.popleft()
        if self._stretches and self._stretches[0][1] < cursor:
            at, _, stop = self._stretches[0]
            self._stretches[0] = (at, cursor, stop)
        for offset in within(self._again, 0, cursor):
            self.forget(offset)

    def go_back(self, position: int) -> None:
        """Note that all from `position` on is sent again."""
        while self._stretches and self._stretches[-1][1] >= position:
            self._stretches.pop()
        if self._stretches and self._stretches[-1][2] > position:
            at, start, _ = self._stretches[-1]
            self._stretches[-1] = (at, start, position)
        self._end = min(self._end, position)
        for offset in [offset for offset in self._again if offset >= position]:
            self.forget(offset)


def within(numbers: Collection[int], start: int, stop: int) -> list[int]:
    """Return the numbers in [start, stop), looking at whichever is fewer: they or the range."""
    if not numbers:
        return []
    if stop - start <= len(numbers):
        return [offset for offset in range(start, stop) if offset in numbers]
    return [offset for offset in numbers if start <= offset < stop]
