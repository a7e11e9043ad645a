"""Which messages of a stored batch are undecodable, and how a book passes them over."""

from collections.abc import Sequence
from typing import NamedTuple

from partq.core.cursor.book import Book

MAX_RUNS = 16
"""Stretches of a batch that are told apart; behind the last one all counts as undecodable.

Each costs a separate window, and each window the bytes of the whole batch.
"""


class Unreadable(NamedTuple):
    """The undecodable offsets of one stored batch."""

    first: int
    """Of the batch."""
    stop: int
    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of_batch(cls, first: int, count: int, places: Sequence[tuple[int, int]]) -> "Unreadable":
        """Return the offsets of the places in a batch that begins at `first`."""
        stop = first + count
        ranges = [(first + start, first + end) for start, end in places[:MAX_RUNS]]
        if len(places) > MAX_RUNS:
            ranges[-1] = (ranges[-1][0], stop)
        return cls(first, stop, tuple(ranges))

    def __contains__(self, offset: object) -> bool:
        """Whether an offset is one of them."""
        return any(start <= offset < stop for start, stop in self.ranges)  # type: ignore[operator]


NOTHING = Unreadable(0, 0)
"""Everything decodes, or nobody could look."""


def explains(found: Unreadable, told: Sequence[tuple[int, int]]) -> bool:
    """Say whether a client could not decode `told` because of what was found.

    Later windows leave that out, so a client is told so once for each that it has already.
    """
    if not found.ranges or not told:
        return False
    low, high = min(start for start, _ in told), max(stop for _, stop in told)
    return any(start < high and low < stop for start, stop in found.ranges)


def in_hand(book: Book, found: Unreadable) -> list[tuple[int, int]]:
    """Return those that are delivered and not done with."""
    return [part for start, stop in found.ranges for part in book.delivered(start, stop)]


def set_aside(book: Book, found: Unreadable) -> list[tuple[int, int]]:
    """Have a book pass over what is not done with, and return it; none of it is in flight."""
    return [part for start, stop in found.ranges for part in book.pass_over(start, stop)]
