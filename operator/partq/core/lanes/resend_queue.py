"""Offsets that may be sent again, the lowest first."""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

_FEW = 10
"""So many are pushed one by one."""


class ResendQueue:
    """Offsets, each a hint: a caller that takes one asks whether it may still be sent."""

    __slots__ = ("_heap", "_members")

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._members: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, offsets: Iterable[int]) -> None:
        """Add offsets; those that are in it already stay."""
        more = [offset for offset in offsets if offset not in self._members]
        self._members.update(more)
        if len(more) > _FEW:
            self._heap += more
            heapify(self._heap)
        else:
            for offset in more:
                heappush(self._heap, offset)

    def lowest(self, may_go: Callable[[int], bool]) -> int | None:
        """Return the lowest that may be sent; those below it are dropped."""
        while self._heap:
            if may_go(self._heap[0]):
                return self._heap[0]
            self._pop()
        return None

    def take(self, stop: int, most: int, may_go: Callable[[int], bool]) -> list[int]:
        """Take the lowest below `stop` that may be sent, at most `most`."""
        taken: list[int] = []
        while len(taken) < most and self._heap and self._heap[0] < stop:
            offset = self._pop()
            if may_go(offset):
                taken.append(offset)
        return taken

    def clear(self) -> None:
        """Drop all."""
        self._heap.clear()
        self._members.clear()

    def _pop(self) -> int:
        offset = heappop(self._heap)
        self._members.discard(offset)
        return offset
