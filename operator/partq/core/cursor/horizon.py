"""How far ahead of its cursor a group is sent messages: what bounds the size of its stored book."""

from collections.abc import Mapping

from partq.core.ranges import Ranges

ACK_SPAN = 100_000
"""Offsets above the cursor that may be delivered: bounds the acknowledged ranges."""
MAX_PIECES = 1000
"""Acknowledged ranges, and counts of redeliveries; with more of either nothing new is delivered."""


def is_scattered(acked: Ranges, counts: Mapping[int, int]) -> bool:
    """Whether a book is in more pieces than may become still more."""
    return len(acked) > MAX_PIECES or len(counts) > MAX_PIECES


def horizon(cursor: int, acked: Ranges, counts: Mapping[int, int]) -> int:
    """Return the offset that no delivery may reach.

    With too many pieces that is their end: what lies between them is delivered, however often, so
    that they can always be closed.
    """
    if is_scattered(acked, counts):
        return max(acked.stop, 1 + max(counts, default=-1))
    return cursor + ACK_SPAN
