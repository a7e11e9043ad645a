"""A sorted set of offsets, kept as half-open ranges."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain, starmap

_MANY = 8
_SPREAD = 16
"""So many ranges, and no further apart than so many offsets on average, are changed as sets."""


class Ranges:
    """Offsets as sorted, disjoint ranges that do not touch: [start, stop)."""

    __slots__ = ("_starts", "_stops")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in ranges:
            self.add(start, stop)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __len__(self) -> int:
        """How many ranges there are."""
        return len(self._starts)

    @property
    def stop(self) -> int:
        """The end of the last range; 0 without ranges."""
        return self._stops[-1] if self._stops else 0

    def pairs(self) -> list[tuple[int, int]]:
        """Return the ranges in ascending order."""
        return list(zip(self._starts, self._stops, strict=True))

    def count(self, start: int, stop: int) -> int:
        """Return how many offsets of [start, stop) are in the set."""
        total = 0
        for at in self._places(start, stop):
            total += min(self._stops[at], stop) - max(self._starts[at], start)
        return total

    def within(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the parts of the set that lie in [start, stop)."""
        return [
            (max(self._starts[at], start), min(self._stops[at], stop))
            for at in self._places(start, stop)
        ]

    def outside(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the parts of [start, stop) that are not in the set."""
        found = []
        for low, high in self.within(start, stop):
            if start < low:
                found.append((start, low))
            start = high
        if start < stop:
            found.append((start, stop))
        return found

    def end_of_run(self, offset: int) -> int:
        """Return the first offset from `offset` on that is not in the set."""
        at = bisect_right(self._starts, offset) - 1
        return self._stops[at] if at >= 0 and self._stops[at] > offset else offset

    def end_of_window(self, start: int, stop: int, count: int) -> int:
        """Return the highest end up to `stop` of a window from `start`.

        At most `count` offsets of [start, end) are not in the set.
        """
        end = start
        for at in self._places(start, stop):
            gap = max(0, self._starts[at] - end)
            if gap > count:
                break
            count -= gap
            end = self._stops[at]
        return min(stop, end + count)

    def add(self, start: int, stop: int) -> None:
        """Put [start, stop) into the set; an empty range changes nothing."""
        if start >= stop:
            return
        # All ranges that overlap or touch the new one melt into it.
        low = bisect_left(self._stops, start)
        high = bisect_right(self._starts, stop)
        if low < high:
            start = min(start, self._starts[low])
            stop = max(stop, self._stops[high - 1])
        self._starts[low:high] = [start]
        self._stops[low:high] = [stop]

    def drop_below(self, offset: int) -> None:
        """Take all offsets below `offset` out of the set."""
        at = bisect_right(self._stops, offset)
        del self._starts[:at], self._stops[:at]
        if self._starts and self._starts[0] < offset:
            self._starts[0] = offset

    def remove(self, start: int, stop: int) -> None:
        """Take [start, stop) out of the set."""
        places = self._places(start, stop)
        if places:
            at = slice(places.start, places.stop)
            ends = (self._starts[places[0]], start), (stop, self._stops[places[-1]])
            left = [(low, high) for low, high in ends if low < high]
            self._starts[at] = [low for low, _ in left]
            self._stops[at] = [high for _, high in left]

    def add_all(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Put sorted, disjoint ranges into the set."""
        low, high = _bounds(ranges)
        if not low < high:
            for start, stop in ranges:
                self.add(start, stop)
            return
        self._replace(low, high, _offsets(self.within(low, high)) | _offsets(ranges))

    def remove_all(self, ranges: Sequence[tuple[int, int]]) -> int:
        """Take sorted, disjoint ranges out of the set; return how many offsets were in it."""
        low, high = _bounds(ranges)
        if not low < high:
            count = 0
            for start, stop in ranges:
                count += self.count(start, stop)
                self.remove(start, stop)
            return count
        before = _offsets(self.within(low, high))
        after = before - _offsets(ranges)
        self._replace(low, high, after)
        return len(before) - len(after)

    def _replace(self, low: int, high: int, offsets: set[int]) -> None:
        """Let the set have these offsets of [low, high) and no others."""
        self.remove(low, high)
        at = bisect_left(self._starts, low)
        starts = sorted(offset for offset in offsets if offset - 1 not in offsets)
        stops = sorted(offset + 1 for offset in offsets if offset + 1 not in offsets)
        if starts and at and self._stops[at - 1] == starts[0]:
            at -= 1
            starts[0] = self._starts[at]
            del self._starts[at], self._stops[at]
        if stops and at < len(self._starts) and self._starts[at] == stops[-1]:
            stops[-1] = self._stops[at]
            del self._starts[at], self._stops[at]
        self._starts[at:at] = starts
        self._stops[at:at] = stops

    def _places(self, start: int, stop: int) -> range:
        """Return where the ranges stand that share offsets with [start, stop)."""
        if start >= stop:
            return range(0)
        return range(bisect_right(self._stops, start), bisect_left(self._starts, stop))


def _offsets(ranges: Iterable[tuple[int, int]]) -> set[int]:
    return set(chain.from_iterable(starmap(range, ranges)))


def _bounds(ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return from where to where ranges lie that are worth a change as sets; else nothing."""
    if len(ranges) < _MANY:
        return 0, 0
    low, high = ranges[0][0], ranges[-1][1]
    return (low, high) if high - low <= _SPREAD * len(ranges) else (0, 0)
