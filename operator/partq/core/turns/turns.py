"""Whose turn it is, where any member of a group may get any message of a partition."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from partq.core.model import MAX_PRIORITY

M = TypeVar("M")
SPARSE = 16
"""If fewer than one member in so many waits, those are sorted; else all are gone through."""


class TurnOrder(Generic[M]):
    """The members of a group in the order of their turns, and how much is open in all partitions.

    A member that has just been sent something comes last, in whichever partition it was. Of several
    priorities the lowest number comes first.
    """

    __slots__ = ("__weakref__", "_count", "_levels", "open_messages", "places")

    def __init__(self) -> None:
        self._count = 0
        self.places: dict[M, tuple[int, int]] = {}
        """The priority of each member, and a number that is higher for those who come later."""
        self._levels: list[dict[M, int]] = [{} for _ in range(MAX_PRIORITY + 1)]
        self.open_messages = 0
        """Of all partitions, as each of them has counted last."""

    def __iter__(self) -> Iterator[M]:
        for level in self._levels:
            yield from level

    def join(self, member: M, priority: int) -> None:
        """Have a member take part in a further partition; a new one comes last."""
        level = self._levels[priority]
        if member not in level:
            self._place_last(member, priority)
        level[member] = level.get(member, 0) + 1

    def leave(self, member: M, priority: int) -> None:
        """Have a member take part in a partition less; with the last one its place is forgotten."""
        level = self._levels[priority]
        if level[member] == 1:
            del level[member], self.places[member]
        else:
            level[member] -= 1

    def put_last(self, member: M, priority: int) -> None:
        """Have a member come last: it was just sent something."""
        level = self._levels[priority]
        if member in level:
            level[member] = level.pop(member)
            self._place_last(member, priority)

    def _place_last(self, member: M, priority: int) -> None:
        self._count += 1
        self.places[member] = (priority, self._count)


class Turns(Generic[M]):
    """Those that wait for the next window of one partition.

    Of several priorities the next one comes only when nobody above it waits that can take
    something. A member that has taken a window waits again behind the others.
    """

    __slots__ = ("_order", "_waiting")

    def __init__(self, order: TurnOrder[M]) -> None:
        self._order = order
        self._waiting: set[M] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[M]:
        places = self._order.places
        if len(self._waiting) * SPARSE < len(places):
            return iter(sorted(filter(places.__contains__, self._waiting), key=places.__getitem__))
        return (member for member in self._order if member in self._waiting)

    def ask(self, member: M) -> None:
        """Have a member wait."""
        self._waiting.add(member)

    def leave(self, member: M) -> bool:
        """Have a member wait no more; return whether it did."""
        did_wait = member in self._waiting
        self._waiting.discard(member)
        return did_wait

    def first(self, can_take: Callable[[M], bool]) -> tuple[M | None, list[M]]:
        """Return whose turn it is, None: nobody's; and those that were passed over for it.

        Passed over are those that cannot take anything now. They keep their places.
        """
        passed: list[M] = []
        for member in self:
            if can_take(member):
                return member, passed
            passed.append(member)
        return None, passed


def largest_window(batch: int, open_messages: int, members: int) -> int:
    """Return how many messages of a batch one of some members is sent, so that all get some.

    A batch is sent whole where there is as much for each. Else it is cut into even pieces, and in
    as few as give each of them its share: it is sent again with each piece.

    Args:
        batch: how many messages the batch has.
        open_messages: of all partitions, the batch among them.
        members: how many wait for something.
    """
    pieces = -(-batch * members // max(open_messages, batch, 1))
    return max(1, -(-batch // max(1, pieces)))
