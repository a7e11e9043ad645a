"""When the batches of a partition were stored, as far as its record tells."""

from collections.abc import Sequence
from typing import NamedTuple

from partq.pipeline.audit.judge.outcome import RecordedBatch

OLD_CLOCK_MS = 60_000
"""How far the time of an older record may be from that of its messages: a script read both."""


class RecordedTime(NamedTuple):
    """The publish time of a batch."""

    at_ms: int
    """The latest time of the recorded batches up to this one."""
    stretch: int
    """Batches that follow each other in the record without a gap have the same number."""
    is_exact: bool
    """The stretch begins at offset 0, so no batch before it can have had a later time."""


class PublishTimes:
    """The publish times of the batches of one partition.

    It is Redis's time when the batch was stored, unless that had gone back: then the time of the
    batch before counts on. So times in a log never fall.
    """

    def __init__(self, batches: Sequence[RecordedBatch]) -> None:
        self._times: dict[tuple[int, int], RecordedTime] = {}
        self._last: tuple[int, int] | None = None
        """The stretch and the publish time, in us, of the last rows that were right."""
        at_ms, end, stretch, is_exact = 0, 0, 0, True
        for each in sorted(batches):
            if each.first != end:
                at_ms, stretch, is_exact = 0, stretch + 1, False
            at_ms, end = max(at_ms, each.at_ms), each.stop
            self._times[each.first, each.sequence] = RecordedTime(at_ms, stretch, is_exact)
            if each.content_crc < 0:
                at_ms, stretch, is_exact = 0, stretch + 1, False

    def may_be(self, batch: RecordedBatch, time_us: int) -> bool:
        """Return whether rows of a batch can have this publish time."""
        if batch.content_crc < 0 and abs(time_us - batch.at_ms * 1000) <= OLD_CLOCK_MS * 1000:
            return True
        recorded = self._times[batch.first, batch.sequence]
        least_us = recorded.at_ms * 1000
        if recorded.is_exact:
            return time_us == least_us
        if self._last is None:
            # What was stored before it is not known, and may have had a later time.
            return time_us == least_us if batch.first == 0 else time_us >= least_us
        stretch, last_us = self._last
        least_us = max(least_us, last_us)
        return time_us == least_us if stretch == recorded.stretch else time_us >= least_us

    def note(self, batch: RecordedBatch, time_us: int) -> None:
        """Note the publish time of rows that were right; batches come in the order of offsets."""
        self._last = (self._times[batch.first, batch.sequence].stretch, time_us)
