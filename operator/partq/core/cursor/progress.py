"""How far a group has come: its cursor and the acknowledged ranges above it."""

from collections.abc import Iterable

from partq.core.ranges import Ranges

Range = tuple[int, int]
"""Offsets from the first to the second, the second excluded."""

MAX_OFFSET = 1 << 62
"""Beyond every offset of a log."""


class CursorProgress:
    """What a group has done with, and what not."""

    __slots__ = ("acked", "cursor")

    position: int
    """The next offset to send in turn."""

    def __init__(self, cursor: int, acked: Iterable[Range] = ()) -> None:
        self.cursor = cursor
        """Everything below is acknowledged."""
        self.acked = Ranges(acked)

    def is_done(self, offset: int) -> bool:
        """Whether the group has done with an offset."""
        return offset < self.cursor or self.acked.end_of_run(offset) != offset

    def undone(self, start: int, stop: int) -> list[Range]:
        """Return the parts of [start, stop) that the group has not done with."""
        return self.acked.outside(max(start, self.cursor), stop)

    def unsent(self, start: int, stop: int) -> list[Range]:
        """Return the parts of [start, stop) that are still to be sent in their turn."""
        return self.acked.outside(max(start, self.position), stop)

    def delivered(self, start: int, stop: int) -> list[Range]:
        """Return the parts of [start, stop) that were sent under this token and are not done."""
        return self.undone(start, min(stop, self.position))

    def acked_pairs(self) -> list[Range]:
        """Return the acknowledged ranges above the cursor, rising."""
        return self.acked.pairs()

    stored_acks = acked_pairs

    @property
    def reach(self) -> int:
        """Beyond every offset: ranges of acks may be as long as they like."""
        return MAX_OFFSET

    @property
    def parked(self) -> dict[int, float]:
        """Empty: no lane waits alone."""
        return {}

    @property
    def stands_still(self) -> str:
        """Empty: `is_scattered` alone tells that nothing new is sent."""
        return ""
