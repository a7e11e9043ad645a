"""Acks that nobody waits for one by one: whether all of them were stored."""

import asyncio
import logging

log = logging.getLogger("partq.client")


class Confirmations:
    """The acks without an answer, and the first refusal that was not told yet."""

    def __init__(self) -> None:
        self._open: set[asyncio.Future[None]] = set()
        self._error: BaseException | None = None

    def add(self, future: asyncio.Future[None]) -> None:
        """Watch an ack; one future may stand for many."""
        if future not in self._open:
            self._open.add(future)
            future.add_done_callback(self._done)

    async def wait(self, timeout_s: float | None = None) -> None:
        """Wait until every ack has its answer; with a time-out, for so long at most."""
        if self._open:
            await asyncio.wait(tuple(self._open), timeout=timeout_s)

    def raise_error(self) -> None:
        """Raise the first refusal since this was asked for last."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _done(self, future: asyncio.Future[None]) -> None:
        self._open.discard(future)
        if not future.cancelled() and (error := future.exception()) is not None:
            self._error = self._error or error
            log.info("ack not stored: %s", error)
