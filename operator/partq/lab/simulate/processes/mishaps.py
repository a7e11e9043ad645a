"""What goes wrong in applications: messages that they give back, or process for too long."""

from collections.abc import Callable, Mapping
from typing import Final

FEW: Final = 2
"""How often a group without a limit gives a bad message back, until it is done with."""


class Mishaps:
    """Says of each message that an application works on what becomes of it."""

    def __init__(self, limits: Mapping[str, int | None]) -> None:
        """Prepare it; `limits`: after how many redeliveries each group has a dead letter."""
        self.nack_count = 0
        """How many of the next messages are given back."""
        self.hang_count = 0
        """How many of the next messages take `hang_s` to process."""
        self.hang_s = 0.0
        self.bad: set[int] = set()
        """Messages that no application gets done."""
        self.after_nack: list[Callable[[str, int], None]] = []
        """Told of the next message that is given back, and of its group."""
        self._limits = limits
        self._left: dict[tuple[str, int], int] = {}

    def must_nack(self, group: str, message: int) -> bool:
        """Say whether a message is given back."""
        is_bad = message in self.bad
        if is_bad:
            limit = self._limits.get(group)
            left = self._left.get((group, message), FEW)
            self._left[group, message] = left - 1
            is_bad = limit is not None or left > 0
        elif self.nack_count:
            self.nack_count -= 1
            is_bad = True
        while is_bad and self.after_nack:
            self.after_nack.pop()(group, message)
        return is_bad

    def hang(self) -> float:
        """Return how long the next message takes beyond the work on it, in seconds."""
        if not self.hang_count:
            return 0.0
        self.hang_count -= 1
        return self.hang_s

    def end(self) -> None:
        """Let nothing more go wrong, but with bad messages."""
        self.nack_count = self.hang_count = 0
