"""Shares one status among callers that ask often, as each page in a browser does.

A status is read from the records of every partition. However many people watch, the store is read
once per the time for which they say that an answer may be old.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from partq.errors import PartqError
from partq.wire.calls.status import StatusAnswer


@dataclass(frozen=True, slots=True)
class _KeptStatus:
    began_at: float
    """On the loop's clock: the answer has everything that was stored before."""
    answer: StatusAnswer | PartqError


class SharedStatus:
    """Keeps the last status for those that may see the same: administrators, and all others."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[bool, _KeptStatus] = {}
        self._reading = {True: asyncio.Lock(), False: asyncio.Lock()}

    async def read(
        self, read: Callable[[], Awaitable[StatusAnswer]], *, max_age_s: float, is_admin: bool
    ) -> StatusAnswer:
        """Return a status whose reading began at most `max_age_s` before this call.

        One read is under way at a time; a caller that waits for it takes its answer or its error.
        With an age of 0 each call reads, and waits for nobody.

        Raises:
            PartqError: as `read` does.
        """
        if max_age_s == 0:
            return await read()
        oldest = self._clock() - max_age_s
        async with self._reading[is_admin]:
            kept = self._kept.get(is_admin)
            if kept is None or kept.began_at < oldest:
                kept = self._kept[is_admin] = await self._read(read)
        if isinstance(kept.answer, PartqError):
            raise kept.answer
        return kept.answer

    async def _read(self, read: Callable[[], Awaitable[StatusAnswer]]) -> _KeptStatus:
        began_at = self._clock()
        try:
            return _KeptStatus(began_at, await read())
        except PartqError as error:
            return _KeptStatus(began_at, error)
