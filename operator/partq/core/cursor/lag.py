"""The one definition of a group's lag, for status, states, metrics and resources alike."""

from collections.abc import Iterable


def lag_of(end: int, cursor: int, acked: Iterable[tuple[int, int]]) -> int:
    """Return how many messages of a partition a group has not acknowledged; at least 0.

    Those below `end` that are neither below the cursor nor acknowledged above it. A dead letter, an
    expired message and one that a reset has passed over count as acknowledged. Cursor and end may
    be of two moments: a cursor that has passed the end means a lag of 0.
    """
    done = sum(max(0, min(stop, end) - max(start, cursor)) for start, stop in acked)
    return max(0, end - cursor - done)
