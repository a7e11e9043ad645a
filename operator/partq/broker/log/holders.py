"""Says which groups keep the logs of this broker from being freed, for refusals without room."""

from collections.abc import Callable, Iterable

from partq.core.quota import Unacknowledged, describe_holders

KEPT_S = 1.0
"""How long a text is given out before it is rendered again, however many batches are refused."""


class Holders:
    """The groups that hold the oldest messages, in words; looked at only when it is asked for."""

    def __init__(
        self, look: Callable[[], Iterable[Unacknowledged]], clock: Callable[[], float]
    ) -> None:
        self._look = look
        self._clock = clock
        self._text = ""
        self._until = float("-inf")

    def describe(self) -> str:
        """Return one sentence that names them, and says what to do; at most a second old."""
        now = self._clock()
        if now >= self._until:
            self._text, self._until = describe_holders(self._look()), now + KEPT_S
        return self._text
