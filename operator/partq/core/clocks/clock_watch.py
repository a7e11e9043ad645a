"""Whether the store's clock can be trusted to judge the age of messages.

Times of the store in milliseconds, of the observer's own steady clock in seconds. The first look
has nothing to compare with but the observer's wall clock, which serves for nothing else.
"""

import math
from typing import Final

MAX_JUMP_S = 60.0
"""A clock may be set right by as much; a larger jump might expire messages that are young. Smaller
steps count together."""
MAX_SLEW = 0.0005
"""How much of the time that passes is taken off the sum of the steps: NTP slews a clock no faster,
so a clock that is right never adds up to a jump."""
SUSPENDED_S = 3600.0
"""Nothing expires for this long after a jump, unless somebody confirms the clock."""
NO_DRIFTS: Final = (0.0, 0.0)


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

    __slots__ = ("_drifts_s", "_last", "_suspended_until")

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None
        self._drifts_s = NO_DRIFTS
        """The lowest and the highest sum of the steps since the last jump or confirmation, less
        what may be slewed: they are two where partitions came here from other clocks."""
        self._suspended_until = float("-inf")

    def observe(self, store_ms: int, now: float, *, wall_s: float) -> float:
        """Take note of the store's time; return by how many seconds it has jumped, or 0.

        Steps that are too small for a jump count together, so that many of them are one.
        `wall_s`: the observer's wall clock, in unix seconds. A first look that finds the store's
        elsewhere takes that for a jump.
        """
        last, self._last = self._last, (store_ms, now)
        if last is None:
            step_s = store_ms / 1000 - wall_s
            return 0.0 if abs(step_s) <= MAX_JUMP_S else self._jump(step_s, now)
        passed_s = now - last[1]
        step_s = (store_ms - last[0]) / 1000 - passed_s
        low_s, high_s = (_slewed(drift_s, passed_s) + step_s for drift_s in self._drifts_s)
        return self._drift(low_s, high_s, now)

    def follow(self, other: "ClockWatch", now: float) -> float:
        """Go on with what was judged by another store's clock; both were observed before.

        Return by how many seconds this clock is ahead of that, or 0 if it is not far: more than a
        clock may be set right by counts as a jump. The difference counts together with the steps of
        both, and with those of further clocks: each takeover may add as much. A suspension goes
        over with what was judged.
        """
        self._suspended_until = max(self._suspended_until, other._suspended_until)
        ahead_s = ((self.estimate_ms(now) or 0.0) - (other.estimate_ms(now) or 0.0)) / 1000
        low_s, high_s = (ahead_s + drift_s for drift_s in other._drifts_s)
        # Partitions may have come to this clock from others, ahead of it and behind it.
        return self._drift(min(low_s, self._drifts_s[0]), max(high_s, self._drifts_s[1]), now)

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
        self._drifts_s = NO_DRIFTS
        self._suspended_until = float("-inf")

    def _drift(self, low_s: float, high_s: float, now: float) -> float:
        """Keep the lowest and the highest drift; return the larger one if it is a jump, or 0."""
        largest_s = max(low_s, high_s, key=abs)
        if abs(largest_s) > MAX_JUMP_S:
            return self._jump(largest_s, now)
        self._drifts_s = (low_s, high_s)
        return 0.0

    def _jump(self, jump_s: float, now: float) -> float:
        self._drifts_s = NO_DRIFTS
        self._suspended_until = now + SUSPENDED_S
        return jump_s


def _slewed(drift_s: float, passed_s: float) -> float:
    """Take off a drift what a clock may have been slewed by since."""
    return math.copysign(max(0.0, abs(drift_s) - MAX_SLEW * passed_s), drift_s)
