"""Joins neighbouring offsets of which the same is to be said."""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Islands(Generic[K]):
    """Ranges by what is to be said of them; what comes is in the order of offsets."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: dict[K, list[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, key: K, first: int, stop: int) -> None:
        """Add a range; an empty one changes nothing."""
        if first >= stop:
            return
        ranges = self._ranges.setdefault(key, [])
        if ranges and ranges[-1][1] == first:
            ranges[-1] = (ranges[-1][0], stop)
        else:
            ranges.append((first, stop))

    def __iter__(self) -> Iterator[tuple[K, int, int]]:
        for key, ranges in self._ranges.items():
            for first, stop in ranges:
                yield key, first, stop
