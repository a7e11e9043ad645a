"""Whose turn it is, where any member of a group may get any message of a partition."""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Generic, TypeVar

from partq.core.model import MAX_PRIORITY

S = TypeVar("S")


class Turns(Generic[S]):
    """Those that wait for the next window, in the order in which they began to wait.

    Of several priorities the lowest number comes first, and the next one only when nobody above it
    waits that can take something. A share that has taken a window waits again behind the others.
    """

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: list[dict[S, None]] = [{} for _ in range(MAX_PRIORITY + 1)]

    def __len__(self) -> int:
        return sum(map(len, self._levels))

    def __iter__(self) -> Iterator[S]:
        return chain.from_iterable(self._levels)

    def ask(self, share: S, priority: int) -> None:
        """Have a share wait; one that waits already keeps its place."""
        self._levels[priority].setdefault(share)

    def leave(self, share: S, priority: int) -> bool:
        """Have a share wait no more; return whether it did."""
        level = self._levels[priority]
        did_wait = share in level
        level.pop(share, None)
        return did_wait

    def first(self, can_take: Callable[[S], bool]) -> tuple[S | None, list[S]]:
        """Return whose turn it is, None: nobody's; and those that were passed over for it.

        Passed over are those that cannot take anything now. They keep their places.
        """
        passed: list[S] = []
        for level in self._levels:
            for share in level:
                if can_take(share):
                    return share, passed
                passed.append(share)
        return None, passed


def largest_window(open_messages: int, flows: int) -> int:
    """Return how many messages one of some flows is sent at once, so that all get some."""
    return max(1, -(-open_messages // max(1, flows)))
