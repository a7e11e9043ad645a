"""Whether the store's clock can be trusted to judge the age of messages.

Times of the store in milliseconds, of the observer's own steady clock in seconds. The first look
has nothing to compare with but the observer's wall clock, which serves for nothing else.
"""

import math

MAX_JUMP_S = 60.0
"""A clock may be set right by as much; a larger jump might expire messages that are young. Smaller
steps count together."""
MAX_SLEW = 0.0005
"""How much of the time that passes is taken off the sum of the steps: NTP slews a clock no faster,
so a clock that is right never adds up to a jump."""
SUSPENDED_S = 3600.0
"""Nothing expires for so long after a jump, unless somebody confirms the clock."""


def ahead_ms(stored_ms: int, store_ms: int) -> int:
    """Return by how many ms the time of a partition's last message is ahead of the store's clock.

    0: by no more than a clock may be set right by, `MAX_JUMP_S`. Times of stored messages never
    fall: until the store's clock is there, nothing of the partition ages.
    """
    ahead = stored_ms - store_ms
    return ahead if ahead > MAX_JUMP_S * 1000 else 0


class ClockWatch:
    """Compares the time that has passed on the store's clock with that on the observer's own.

    The first look compares the store's clock with the observer's wall clock: the store may have
    been started with a wrong clock, and then nobody has seen a jump.
    """

    __slots__ = ("_drift_s", "_last", "_suspended_until")

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None
        self._drift_s = 0.0
        """The sum of the steps since the last jump or confirmation, less what may be slewed."""
        self._suspended_until = float("-inf")

    def observe(self, store_ms: int, now: float, *, wall_s: float) -> float:
        """Take note of the store's time; return by how many seconds it has jumped, or 0.

        Steps that are too small for a jump count together, so that many of them are one.
        `wall_s`: the observer's wall clock, in unix seconds. A first look that finds the store's
        elsewhere takes that for a jump.
        """
        last, self._last = self._last, (store_ms, now)
        if last is None:
            jump_s = store_ms / 1000 - wall_s
        else:
            passed_s = now - last[1]
            before_s = max(0.0, abs(self._drift_s) - MAX_SLEW * passed_s)
            jump_s = math.copysign(before_s, self._drift_s)
            jump_s += (store_ms - last[0]) / 1000 - passed_s
        if abs(jump_s) <= MAX_JUMP_S:
            self._drift_s = 0.0 if last is None else jump_s
            return 0.0
        self._drift_s = 0.0
        self._suspended_until = now + SUSPENDED_S
        return jump_s

    def follow(self, other: "ClockWatch", now: float) -> float:
        """Go on with what was judged by another store's clock; both were observed before.

        Return by how many seconds this clock is ahead of that, or 0 if it is not far: more than a
        clock may be set right by counts as a jump. A suspension goes over with what was judged.
        """
        self._suspended_until = max(self._suspended_until, other._suspended_until)
        ahead_s = ((self.estimate_ms(now) or 0.0) - (other.estimate_ms(now) or 0.0)) / 1000
        if abs(ahead_s) <= MAX_JUMP_S:
            return 0.0
        self._suspended_until = now + SUSPENDED_S
        return ahead_s

    def estimate_ms(self, now: float) -> float | None:
        """Return the store's time, by what has passed since it was last observed; None: never."""
        if self._last is None:
            return None
        store_ms, observed_at = self._last
        return store_ms + (now - observed_at) * 1000

    def is_suspended(self, now: float) -> bool:
        """Whether nothing may expire."""
        return now < self._suspended_until

    def confirm(self) -> None:
        """Trust the clock as it is."""
        self._drift_s = 0.0
        self._suspended_until = float("-inf")
