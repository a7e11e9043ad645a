"""Which messages of a partition the application has acknowledged, within a bound."""

from collections.abc import Sequence

from partq.core.ranges import Ranges
from partq.wire.frames import Range

MAX_ACKED_RANGES = 1000
"""What is given back splits what was acknowledged; of more ranges the lowest are forgotten."""


class AckedMessages:
    """What was acknowledged, and not redelivered since; what is forgotten counts as neither."""

    def __init__(self) -> None:
        self._ranges = Ranges()

    def add(self, ranges: Sequence[Range]) -> None:
        """Note what is acknowledged."""
        self._ranges.add_all(ranges)
        if len(self._ranges) > MAX_ACKED_RANGES:
            self._ranges.drop_below(self._ranges.pairs()[-(MAX_ACKED_RANGES // 2)][0])

    def remove(self, start: int, stop: int) -> None:
        """Note what is redelivered, or whose ack was refused."""
        self._ranges.remove(start, stop)

    def remove_all(self, ranges: Sequence[Range]) -> None:
        """Note what came, which may be redelivered."""
        self._ranges.remove_all(ranges)

    def has_all(self, ranges: Sequence[Range]) -> bool:
        """Say whether each message of `ranges` was acknowledged."""
        return all(self._ranges.count(start, stop) == stop - start for start, stop in ranges)
