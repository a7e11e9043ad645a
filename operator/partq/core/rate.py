"""How fast a running count grows."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

RATE_WINDOW_S: Final = 3.0


@dataclass(slots=True)
class Rate:
    """Messages per second over the last seconds."""

    samples: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, now: float, count: int) -> float:
        """Note a running count at an instant in seconds; return the rate."""
        self.samples.append((now, count))
        while self.samples[0][0] < now - RATE_WINDOW_S:
            self.samples.popleft()
        began, first = self.samples[0]
        return (count - first) / (now - began) if now > began else 0.0
