"""Readers that wait at the end of a log: how many there may be, and what ends their waits."""

import asyncio
from collections import Counter

from partq.aio import Signal
from partq.broker.broker import Broker
from partq.core.model import PartitionId
from partq.server.connection import Connection
from partq.wire.calls.entries import EntriesQuery

MAX_WAITS = 1024
"""The most calls of a broker that wait for messages; those beyond are answered at once."""


class LogWaits:
    """The calls that wait for the next message of a partition. None of them asks Redis meanwhile.

    A call whose client has gone ends at once: it takes no place from others.
    """

    def __init__(self, most: int = MAX_WAITS) -> None:
        """Begin without waits; `most`: how many may wait side by side."""
        self._most = most
        self._waiting: Counter[Signal] = Counter()
        self._is_closed = False

    @property
    def count(self) -> int:
        """How many calls wait."""
        return self._waiting.total()

    async def wait(
        self,
        broker: Broker,
        partition: PartitionId,
        query: EntriesQuery,
        connection: Connection,
    ) -> None:
        """Return once the log has a message at the offset, or the wait is over for another reason.

        These are: `wait_ms` have passed, the partition was lost, the broker ends, or the client has
        gone. The owner's append wakes the call.

        Raises:
            NotOwnerError: another broker owns the partition, or none.
        """
        owned = broker.find(partition)
        until = broker.clock() + query.wait_ms / 1000
        while (
            query.from_ == owned.tail.end
            and (query.to is None or query.from_ < query.to)
            and broker.owned.get(partition) is owned
            and not (self._is_closed or owned.is_yielding or connection.transport is None)
            and (left := until - broker.clock()) > 0
            and self.count < self._most
        ):
            self._waiting[owned.news] += 1
            try:
                await _wait(owned.news, left, connection)
            finally:
                self._waiting[owned.news] -= 1
                if not self._waiting[owned.news]:
                    del self._waiting[owned.news]

    def close(self) -> None:
        """End every wait, for good: the calls are answered with what there is."""
        self._is_closed = True
        for news in list(self._waiting):
            news.pulse()


async def _wait(news: Signal, timeout_s: float, connection: Connection) -> None:
    """Wait for news, for a time, and as long as the client is there."""
    limit = asyncio.timeout(timeout_s)

    def end() -> None:
        if not limit.expired():
            limit.reschedule(asyncio.get_running_loop().time())

    try:
        async with limit:
            connection.on_lost = end
            await news.wait()
    except TimeoutError:
        pass  # the caller sees which of them it was
    finally:
        connection.on_lost = None
