"""When too few messages are worth a micro-batch all the same."""

import time

from partq.client.transport.liveness import Clock


class TriggerDelay:
    """Puts a micro-batch off while there are few messages, up to a time after the last one.

    The first one of a process is not put off.

    Args:
        least: how many messages are enough; None: any.
        delay_s: for how long fewer are put off, in seconds.
        clock: counts that.
    """

    def __init__(self, least: int | None, delay_s: float, clock: Clock = time.monotonic) -> None:
        self._least = least or 0
        self._delay_s = delay_s
        self._clock = clock
        self._last_at: float | None = None

    def is_due(self, count: int) -> bool:
        """Say whether `count` messages are read now; then the time begins again."""
        now = self._clock()
        is_late = self._last_at is None or now - self._last_at >= self._delay_s
        if count < self._least and not is_late:
            return False
        self._last_at = now
        return True
