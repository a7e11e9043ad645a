"""Ranges of offsets with a value each: disjoint, in order, joined where values are the same."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

V = TypeVar("V")

ValuedRange = tuple[int, int, V | None]
"""First, stop, value; None: nothing is known of these offsets."""


class IntervalMap(Generic[V]):
    """Values of offsets. Neighbours of equal value are one entry, however many they are."""

    __slots__ = ("_firsts", "_stops", "_values")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._stops: list[int] = []
        self._values: list[V] = []

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int, V]]:
        return iter(zip(self._firsts, self._stops, self._values, strict=True))

    def parts(self, first: int, stop: int) -> list[ValuedRange[V]]:
        """Return all of [first, stop) in order, cut where the value changes."""
        firsts, stops, values = self._firsts, self._stops, self._values
        at = bisect_right(stops, first)
        parts: list[ValuedRange[V]] = []
        here = first
        while at < len(firsts) and firsts[at] < stop:
            if firsts[at] > here:
                parts.append((here, firsts[at], None))
                here = firsts[at]
            end = min(stops[at], stop)
            parts.append((here, end, values[at]))
            here = end
            at += 1
        if here < stop:
            parts.append((here, stop, None))
        return parts

    def get(self, offset: int) -> V | None:
        """Return the value of one offset."""
        at = bisect_right(self._stops, offset)
        is_there = at < len(self._firsts) and self._firsts[at] <= offset
        return self._values[at] if is_there else None

    def put(self, first: int, stop: int, parts: Sequence[ValuedRange[V]]) -> None:
        """Replace what stands in [first, stop) by `parts`, which lie in it in order."""
        if first >= stop:
            return
        firsts, stops, values = self._firsts, self._stops, self._values
        low, high = bisect_left(stops, first), bisect_right(firsts, stop)
        new: list[tuple[int, int, V]] = []
        if low < high and firsts[low] < first:
            new.append((firsts[low], first, values[low]))
        for begin, end, value in parts:
            if value is not None:
                _join(new, begin, end, value)
        if low < high and stops[high - 1] > stop:
            _join(new, max(stop, firsts[high - 1]), stops[high - 1], values[high - 1])
        firsts[low:high] = [each[0] for each in new]
        stops[low:high] = [each[1] for each in new]
        values[low:high] = [each[2] for each in new]

    def set(self, first: int, stop: int, value: V | None) -> None:
        """Give all of [first, stop) one value; None: forget it."""
        self.put(first, stop, [(first, stop, value)])

    def update(
        self, first: int, stop: int, change: Callable[[int, int, V | None], V | None]
    ) -> None:
        """Give each part of [first, stop) the value that `change` returns for it."""
        if first < stop:
            parts = self.parts(first, stop)
            self.put(first, stop, [(a, b, change(a, b, value)) for a, b, value in parts])


def _join(new: list[tuple[int, int, V]], first: int, stop: int, value: V) -> None:
    if new and new[-1][1] == first and new[-1][2] == value:
        new[-1] = (new[-1][0], stop, value)
    else:
        new.append((first, stop, value))
