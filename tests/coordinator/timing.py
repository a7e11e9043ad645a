"""A clock that can be moved, and waiting for what others do."""

import asyncio
import time
from dataclasses import dataclass

WAIT_S = 60.0


@dataclass
class Clock:
    """Real seconds, and those that a test skips; once stopped, those alone."""

    skipped_s: float = 0.0
    stopped_at: float | None = None

    def __call__(self):
        return (self.stopped_at or time.monotonic()) + self.skipped_s

    def stop(self):
        self.stopped_at = time.monotonic()


async def looks(coordinator, count=3):
    """Look a few times by hand; the runner has its turn between."""
    for _ in range(count):
        await coordinator.look()
        await asyncio.sleep(0.01)
