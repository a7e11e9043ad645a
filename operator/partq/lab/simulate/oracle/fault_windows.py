"""Record which members a fault has touched, and until when: no other may notice it."""

from collections.abc import Callable
from typing import Final

from partq.lab.simulate.machine.stored import NAME as REDIS

EVERYBODY: Final = "*"
SILENCE_S: Final = 4.0
"""How long after a fault a connection may still end by it: silence is noticed after 3 s."""


def road(one: str, other: str) -> str:
    """Return the name of what connects two processes, in both directions."""
    return " - ".join(sorted((one, other)))


class FaultWindows:
    """Remembers the end of the last fault of each process and each path."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._until: dict[str, float] = {}
        self._felt_until: dict[str, float] = {}

    def hit(self, what: str, for_s: float = 0.0, *, linger_s: float = 0.0) -> None:
        """Note that a process, or a path, is touched by a fault for this long from now.

        Args:
            what: a process, a path, or everybody.
            for_s: how long the fault lasts.
            linger_s: how long after that a connection may still end by it.
        """
        until = self._now() + for_s
        self._until[what] = max(self._until.get(what, 0.0), until)
        self._felt_until[what] = max(self._felt_until.get(what, 0.0), until + linger_s)

    def until(self, member: str, broker: str) -> float:
        """Return when the last fault ended, or will end, that concerns a broker's deliveries."""
        return _last(self._until, member, broker)

    def felt_until(self, member: str, broker: str) -> float:
        """Return until when the last of those may end the connection of the two."""
        return _last(self._felt_until, member, broker)


def _last(until: dict[str, float], member: str, broker: str) -> float:
    concerned = (EVERYBODY, REDIS, member, broker, road(member, broker), road(broker, REDIS))
    return max(until.get(each, 0.0) for each in concerned)
