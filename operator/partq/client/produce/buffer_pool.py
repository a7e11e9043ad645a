"""Back-pressure: how many messages and bytes a producer holds without an answer."""

import asyncio
from collections import deque
from typing import NamedTuple

from partq.errors import PartqError


class _WaitingCall(NamedTuple):
    turn: asyncio.Future[None]
    message_count: int
    size_bytes: int


class BufferPool:
    """Admits calls in the order in which they come, while less than the limits is pending.

    One list may go above a limit: it is the application's, and in memory already.
    """

    def __init__(self, *, max_count: int, max_bytes: int) -> None:
        self.pending_count = 0
        self.pending_bytes = 0
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._line: deque[_WaitingCall] = deque()
        self._on_empty: list[asyncio.Future[None]] = []

    def try_take(self, count: int, size_bytes: int) -> bool:
        """Count messages as pending; False, and nothing done, when the caller has to wait."""
        if self._line or not self._has_room:
            return False
        self._take(count, size_bytes)
        return True

    async def take(self, count: int, size_bytes: int) -> None:
        """Wait for one's turn and count messages as pending; raises what `close` was given."""
        if self.try_take(count, size_bytes):
            return
        waiting = _WaitingCall(asyncio.get_running_loop().create_future(), count, size_bytes)
        self._line.append(waiting)
        try:
            await waiting.turn
        except asyncio.CancelledError:
            if waiting.turn.done() and not waiting.turn.cancelled():
                self.give_back(count, size_bytes)  # admitted and cancelled in the same moment
            raise

    def give_back(self, count: int, size_bytes: int) -> None:
        """Count messages as answered."""
        self.pending_count -= count
        self.pending_bytes -= size_bytes
        while self._line and (self._has_room or self._line[0].turn.done()):
            waiting = self._line.popleft()
            if not waiting.turn.done():
                self._take(waiting.message_count, waiting.size_bytes)
                waiting.turn.set_result(None)
        if not self.pending_count:
            for waiter in self._on_empty:
                if not waiter.done():
                    waiter.set_result(None)
            self._on_empty.clear()

    async def empty(self) -> None:
        """Wait until nothing is pending."""
        if self.pending_count:
            waiter = asyncio.get_running_loop().create_future()
            self._on_empty.append(waiter)
            await waiter

    def close(self, error: PartqError) -> None:
        """Turn away everybody in line."""
        while self._line:
            waiting = self._line.popleft()
            if not waiting.turn.done():
                waiting.turn.set_exception(error)

    @property
    def _has_room(self) -> bool:
        return self.pending_count < self._max_count and self.pending_bytes < self._max_bytes

    def _take(self, count: int, size_bytes: int) -> None:
        self.pending_count += count
        self.pending_bytes += size_bytes
