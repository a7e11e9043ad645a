"""Wakes those who wait for drains, whenever something may have drained."""

import asyncio


class ProgressSignal:
    """An event that can be noticed again and again; nobody who waits misses one."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def notice(self) -> None:
        """Wake everybody who waits now."""
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self, timeout_s: float) -> None:
        """Wait for the next notice, or the time-out."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._next.wait()
        except TimeoutError:
            return
