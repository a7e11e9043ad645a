"""How fast a publisher goes: evenly, and slowly while something is waited for."""

from collections.abc import Sequence
from typing import Final

SLOWER: Final = 20.0
"""How many times slower a publisher goes while it is held."""
SLOWEST_PER_S: Final = 1.0
"""Messages per second that a held publisher still begins, if it had that many at all."""


class Pace:
    """Says when the next message is due.

    `per_s`: messages per second. `holds`: ascending counts of messages. At each one the publisher
    is held until it is released from that one: it goes slowly, so that traffic neither stops nor
    runs out. Time that it loses otherwise, it makes up for. `now`: seconds, on `rest_s`'s clock.
    """

    def __init__(self, per_s: float, holds: Sequence[int], *, now: float) -> None:
        self._gap_s = 1 / per_s
        self._slow_gap_s = 1 / max(per_s / SLOWER, min(per_s, SLOWEST_PER_S))
        self._holds = holds
        self._released = 0
        self._due = now

    def release(self) -> None:
        """Release the publisher from its next hold, or from the one that it is at."""
        self._released += 1

    def rest_s(self, count: int, now: float) -> float:
        """Return how long to wait after `count` messages, in seconds; 0 or less: not at all.

        To be called once after each message.
        """
        is_held = self._released < len(self._holds) and count >= self._holds[self._released]
        self._due += self._slow_gap_s if is_held else self._gap_s
        return self._due - now
