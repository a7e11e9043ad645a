"""How long a connection counts, on the client's own clock."""

import time
from collections.abc import Callable
from math import inf

Clock = Callable[[], float]
"""Seconds on a clock that never goes back. The client's default is `boot_time`."""

MAX_PINGS_OUTSTANDING = 64


def boot_time() -> float:
    """Return seconds since boot, the time asleep included where the system can tell."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class PeerLease:
    """Until when the other side of a connection is known to hold its promise.

    A broker answers a ping only after it has renewed its own lease, so an answer proves that the
    lease holds until the *sending* of that ping + its length. Counting from the answer's arrival
    would count the way back twice.

    Whether the lease holds, and whether the connection is lost, are two questions. While this side
    stands still the lease runs out, and nothing may be handed out; but the other side was asked
    nothing, and its answers are not read. So that time is no silence of the other side.
    """

    def __init__(self, length_s: float, now: float) -> None:
        """Begin with a welcome: it proves nothing yet, but the other side was there.

        Args:
            length_s: length of the lease, as the other side says.
            now: when the welcome arrived, not when it was asked for: a broker may take longer for
                it than its lease is, as it waits for the store and until the member is listed.
        """
        self.length_s = length_s
        self.is_proven = False
        """Whether any ping was answered; before that nothing may be handed to the application."""
        self._until = -inf
        self._lost_at = now + length_s
        """As `_until`, and later by the time in which this side has stood still since."""
        self._still_s = 0.0
        self._sent: dict[int, tuple[float, float]] = {}
        """When, and how long this side had stood still before in all."""
        self._next_nonce = 1

    @property
    def lost_at(self) -> float:
        """When the connection is lost unless another ping is answered."""
        return self._lost_at

    def ping(self, now: float) -> int:
        """Return the nonce of a ping that is sent now."""
        nonce = self._next_nonce
        self._next_nonce += 1
        self._sent[nonce] = now, self._still_s
        if len(self._sent) > MAX_PINGS_OUTSTANDING:
            del self._sent[next(iter(self._sent))]
        return nonce

    def answered(self, nonce: int) -> None:
        """Extend the lease by the answer to a ping; one that nobody sent changes nothing."""
        sent = self._sent.pop(nonce, None)
        if sent is None:
            return
        sent_at, still_s = sent
        self._until = max(self._until, sent_at + self.length_s)
        self._lost_at = max(self._lost_at, sent_at + self.length_s + self._still_s - still_s)
        self.is_proven = True

    def stood_still(self, for_s: float) -> None:
        """Note that this side has asked and read nothing for this long, up to now.

        The other side may have kept its part, or not. What it has sent meanwhile says so: it comes
        before the answer to the next ping.
        """
        self._still_s += for_s
        self._lost_at += for_s

    def is_valid(self, now: float) -> bool:
        """Say whether the broker is proven to be alive, and what it has sent is read."""
        return now < self._until

    def is_over(self, now: float) -> bool:
        """Say whether the connection must be treated as lost."""
        return now >= self._lost_at
