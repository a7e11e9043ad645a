"""Which offsets may have been processed before, and why."""

from partq.core.model import Cause


class CauseRanges:
    """Disjoint ranges of offsets, rising, each with a cause."""

    __slots__ = ("ranges",)

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int, Cause]] = []
        """From, to, cause."""

    @property
    def stop(self) -> int:
        """The end of the last range; 0 without ranges."""
        return self.ranges[-1][1] if self.ranges else 0

    def mark(self, start: int, stop: int, cause: Cause) -> None:
        """Give [start, stop) a cause, in the place of those that it had; empty: no change."""
        if stop <= start:
            return
        earlier = [(a, min(b, start), why) for a, b, why in self.ranges if a < start]
        later = [(max(a, stop), b, why) for a, b, why in self.ranges if b > stop]
        # One range: windows are not cut where nothing changes.
        if earlier and earlier[-1][1:] == (start, cause):
            start = earlier.pop()[0]
        if later and later[0][0] == stop and later[0][2] is cause:
            stop = later.pop(0)[1]
        self.ranges = [*earlier, (start, stop, cause), *later]

    def at(self, offset: int, stop: int) -> tuple[Cause, int]:
        """Return the cause of an offset, and up to where it holds, at most `stop`."""
        cause = Cause.NONE
        for low, high, why in self.ranges:
            if low <= offset < high:
                cause, stop = why, min(stop, high)
            elif low > offset:
                stop = min(stop, low)
        return cause, stop

    def drop_below(self, cursor: int) -> None:
        """Forget what is below the cursor."""
        self.ranges = [
            (max(start, cursor), stop, why) for start, stop, why in self.ranges if stop > cursor
        ]
