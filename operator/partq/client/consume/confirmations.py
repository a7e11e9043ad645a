"""Acks that nobody waits for one by one: whether all of them were stored."""

import asyncio
import logging

from partq.errors import PartqError
from partq.excerpts import counted

log = logging.getLogger("partq.client")

MAX_OPEN = 10_000
"""Unanswered acks; above this number a further ack waits."""


class Confirmations:
    """The acks without an answer, and the first refusal that was not told yet."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Future[None], int] = {}
        self._open_count = 0
        self._refused_count = 0
        self._first: PartqError | None = None

    @property
    def has_refusals(self) -> bool:
        """Whether there is a refusal that was not told."""
        return self._first is not None

    @property
    def is_full(self) -> bool:
        """Whether so many acks wait for an answer that another one has to wait."""
        return self._open_count >= MAX_OPEN

    def add(self, future: asyncio.Future[None]) -> None:
        """Watch an ack; one future may stand for many."""
        self._open_count += 1
        if future in self._open:
            self._open[future] += 1
        else:
            self._open[future] = 1
            future.add_done_callback(self._done)

    async def room(self) -> None:
        """Wait until another ack may be given."""
        while self.is_full:
            await asyncio.wait(tuple(self._open), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # what is done is counted by its callback

    async def wait(self, timeout_s: float | None = None) -> None:
        """Wait until every ack has its answer; with a time-out, at most that many seconds."""
        if self._open:
            await asyncio.wait(tuple(self._open), timeout=timeout_s)
            await asyncio.sleep(0)

    def raise_error(self) -> None:
        """Raise the first refusal since this was asked for last."""
        first, self._first = self._first, None
        count, self._refused_count = self._refused_count, 0
        if first is not None:
            raise type(first)(
                f"{counted(count, 'earlier ack was', 'earlier acks were')} refused, and what "
                f"they named is redelivered; the first: {first.message}",
                retry_after_s=first.retry_after_s,
            ) from first

    def _done(self, future: asyncio.Future[None]) -> None:
        count = self._open.pop(future)
        self._open_count -= count
        if not future.cancelled() and (error := future.exception()) is not None:
            if isinstance(error, PartqError):
                self._first = self._first or error
                self._refused_count += count
            log.info("%s could not be stored: %s", counted(count, "ack"), error)
