"""How long a client waits between its tries."""

import asyncio

from partq.aio import Backoff
from partq.client.transport.liveness import Clock
from partq.errors import PartqError

FIRST_WAIT_S = 0.05
"""Between the first two tries of a client."""


def retry_backoff(most_s: float = 1.0) -> Backoff:
    """Return the waits of a client between its tries; `most_s` is their ceiling."""
    return Backoff(FIRST_WAIT_S, most_s, is_spread=True)


class RetryWindow:
    """Waits between the tries of one call, for this many seconds in all.

    Args:
        timeout_s: how long the tries continue.
        clock: counts that; None: the event loop's.
    """

    def __init__(self, timeout_s: float, clock: Clock | None = None) -> None:
        self._clock = clock or asyncio.get_running_loop().time
        self._end = self._clock() + timeout_s
        self._backoff = retry_backoff()

    async def wait(self, error: PartqError) -> None:
        """Wait until the next try makes sense; raise `error` when that is too late."""
        wait_s = self._backoff.next_s(error.retry_after_s)
        if self._clock() + wait_s > self._end:
            raise error
        await asyncio.sleep(wait_s)
