"""Batches read from Redis for consumers that are behind the memory tail: a cache with one bound."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf

from partq.aio import Signal
from partq.broker.log.buffers import memory_bytes
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.store.records.log import Entry

READ_BYTES = 1024 * 1024
"""The most that one read asks for; a larger batch is read alone."""
FRESH_S = 1.0
"""How long what nobody has looked at yet is kept from other reads."""


@dataclass(slots=True)
class _Stretch:
    """Cache entries of one consumed partition."""

    fresh_until: float
    entries: deque[Entry] = field(default_factory=deque)
    size_bytes: int = 0


class ReadAhead:
    """Cache of batches read for the groups of a broker, and the room of reads under way.

    Where a read needs the room, what was not used for longest is let go: it can be read again.
    What nobody has looked at yet stays for a moment, so that every reader gets on. Reads wait for
    room in the order of their asking; one that is larger than all of it waits until it is alone.
    """

    def __init__(self, max_bytes: int, *, clock: Callable[[], float]) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        """Read, and being read."""
        self._clock = clock
        self._stretches: dict[ConsumedPartition, _Stretch] = {}
        """By their last use, the oldest first."""
        self._reads = 0
        self._turn = asyncio.Lock()
        self._freed = Signal()

    @property
    def share_bytes(self) -> int:
        """Bytes that one read may request, so that all reads together have room."""
        readers = len(self._stretches) + self._reads
        return max(1, min(READ_BYTES, self.max_bytes // max(1, readers)))

    def find(self, consumed: ConsumedPartition, offset: int) -> Entry | None:
        """Return the batch that contains `offset`; what lies before it is let go."""
        stretch = self._stretches.pop(consumed, None)
        if stretch is None:
            return None
        entries = stretch.entries
        while entries and entries[0].first + entries[0].count <= offset:
            size = memory_bytes(entries.popleft().data)
            stretch.size_bytes -= size
            self._free(size)
        if not entries or offset < entries[0].first:
            self._free(stretch.size_bytes)
            return None
        stretch.fresh_until = -inf
        self._stretches[consumed] = stretch
        return entries[0]

    def keep(self, consumed: ConsumedPartition, entries: Iterable[Entry]) -> None:
        """Hold what was read, in the place of what was there: as much of it as there is room."""
        self.forget(consumed)
        kept = deque(entries)
        size = sum(memory_bytes(each.data) for each in kept)
        while len(kept) > 1 and self.used_bytes + size > self.max_bytes:
            size -= memory_bytes(kept.pop().data)
        self._stretches[consumed] = _Stretch(self._clock() + FRESH_S, kept, size)
        self.used_bytes += size

    def forget(self, consumed: ConsumedPartition) -> None:
        """Let go what was read for a consumed partition."""
        stretch = self._stretches.pop(consumed, None)
        if stretch is not None:
            self._free(stretch.size_bytes)

    @asynccontextmanager
    async def reserved(self, size_bytes: int) -> AsyncIterator[None]:
        """Have room for a read while it is under way; waits until there is."""
        self._reads += 1
        try:
            async with self._turn:
                while not self._make_room(size_bytes):
                    self._freed.clear()
                    await self._freed.wait_at_most(FRESH_S)  # then nothing is fresh any more
                self.used_bytes += size_bytes
            try:
                yield
            finally:
                self._free(size_bytes)
        finally:
            self._reads -= 1

    def _make_room(self, size_bytes: int) -> bool:
        now = self._clock()
        for consumed, stretch in list(self._stretches.items()):
            if self.used_bytes + size_bytes <= self.max_bytes:
                return True
            if stretch.fresh_until <= now:
                self.forget(consumed)
        return not self.used_bytes or self.used_bytes + size_bytes <= self.max_bytes

    def _free(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        self._freed.set()
