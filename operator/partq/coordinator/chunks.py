"""Many calls of the store, so many at a time."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

CHUNK = 500
"""How many calls are under way at once."""


async def in_chunks(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Await calls: those of a chunk side by side, one chunk after the other."""
    waiting = list(calls)
    for start in range(0, len(waiting), CHUNK):
        await asyncio.gather(*waiting[start : start + CHUNK])
