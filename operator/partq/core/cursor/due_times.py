"""When each of some numbers is due: offsets or lanes that wait for their time.

Instants are seconds of the caller's clock.
"""

from heapq import heapify, heappop, heappush
from math import inf

_SPARE = 64
"""So many entries of the heap may be over beside as many as there are numbers."""


class DueTimes:
    """A due for each number; memory grows with the numbers that wait, not with those that did."""

    __slots__ = ("_heap", "by_number")

    def __init__(self) -> None:
        self.by_number: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []
        """All that will be due; what has another due now, or none, stays until it comes up."""

    def __len__(self) -> int:
        return len(self.by_number)

    def __contains__(self, number: int) -> bool:
        return number in self.by_number

    @property
    def next_due(self) -> float:
        """When the next number is due; infinity: none ever is."""
        heap = self._heap
        while heap:
            due, number = heap[0]
            if self.by_number.get(number) == due:
                return due
            heappop(heap)
        return inf

    def put(self, number: int, due: float) -> None:
        """Have a number be due at `due`, in the place of its due before; infinity: never."""
        self.by_number[number] = due
        if due == inf:
            return
        heappush(self._heap, (due, number))
        if len(self._heap) > 2 * len(self.by_number) + _SPARE:
            # What is far from due would stay for long, however short a time its number waited.
            self._heap = [(at, each) for each, at in self.by_number.items() if at < inf]
            heapify(self._heap)

    def remove(self, number: int) -> bool:
        """Forget a number; return whether it had a due."""
        return self.by_number.pop(number, None) is not None

    def pop(self, now: float) -> list[int]:
        """Forget the numbers that are due by `now`, and return them by rising dues."""
        due: list[int] = []
        while self.next_due <= now:
            _, number = heappop(self._heap)
            del self.by_number[number]
            due.append(number)
        return due
