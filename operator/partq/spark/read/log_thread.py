"""Reads a queue's logs for Spark, whose calls are not asynchronous."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import suppress
from typing import Any, Self

from partq.client.log_reader import LogPosition, StoredBatch, Where
from partq.client.transport.log_ends import LogEnds
from partq.client.transport.loop_thread import LoopThread
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.errors import ConflictError, PartqError, QuotaExceededError
from partq.spark.connection import ClientOptions
from partq.spark.read.offsets import QueueLife
from partq.spark.read.query_reader import GroupLease, QueryReader
from partq.wire.calls.browse import PIN_RENEW_S

log = logging.getLogger("partq.spark")

TAKE_BYTES = 1024 * 1024
"""How much is handed over at once; the rest of what was fetched waits for the next time."""


class LogThread:
    """A `LogReader` on a separate thread, where fetching continues while the caller decodes.

    Every call raises what `LogReader` raises. Use it in `with`, or close it.
    """

    def __init__(self, connection: ClientOptions) -> None:
        options = connection.options()
        self._reader = QueryReader(**options.arguments(), timeout_s=connection.timeout_s)
        self._life: QueueLife | None = None
        self._lease: GroupLease | None = None
        self._pin: asyncio.Task[None] | None = None
        self._thread = LoopThread("partq reading")
        try:
            self._thread.run(self._reader.__aenter__())
        except BaseException:
            self._thread.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread; a second time does nothing."""
        if self._thread.has_ended:
            return
        try:
            if self._pin is not None:
                self._thread.call_soon(self._pin.cancel)
            if self._lease is not None:
                self._release(self._lease)
            self._thread.run(self._reader.__aexit__())
        finally:
            self._thread.end()

    def life(self) -> QueueLife:
        """Return which queue this is, as of the first time that it was asked."""
        if self._life is None:
            self._life = self._thread.run(self._reader.life())
        return self._life

    def layout(self) -> Layout:
        """Return the queue's layout as it is now."""
        return self._thread.run(self._reader.layout())

    def ends(self) -> LogEnds:
        """Return the layout, and the ends of all logs."""
        return self._thread.run(self._reader.ends())

    def positions(
        self, where: Where, partitions: list[PartitionId] | None = None
    ) -> dict[PartitionId, LogPosition]:
        """Return a position in each partition."""
        return self._thread.run(self._reader.positions(where, partitions))

    def commit(self, group: str, positions: Mapping[PartitionId, LogPosition]) -> None:
        """Move the cursors of a group forward."""
        self._thread.run(self._reader.commit(group, positions))

    def entries(
        self, partition: PartitionId, start: LogPosition, stop: LogPosition
    ) -> Iterator[StoredBatch]:
        """Yield the stored batches between two positions."""
        source = self._reader.entries(partition, start, stop)
        try:
            while batches := self._thread.run(_take(source)):
                yield from batches
        finally:
            if not self._thread.has_ended:
                self._thread.run(_close(source))

    def hold(self, name: str, offsets: Mapping[PartitionId, int]) -> None:
        """Pin what is stored from these offsets on, until this is closed and ten minutes longer.

        That is a help and no promise: what is trimmed is noticed when it is read. A pin's name
        belongs to these offsets, or to one query: another task that sets it sets the same.
        """
        if self._pin is not None:
            self._thread.call_soon(self._pin.cancel)
            self._pin = None
        try:
            with suppress(ConflictError):
                self._thread.run(self._reader.pin(name, offsets))
        except QuotaExceededError as error:
            log.warning("reading continues without a pin: %s", error)
            return
        self._pin = self._thread.run(self._start_renewing(name, dict(offsets)))

    def check_group(self, group: str, query: str, first: PartitionId) -> None:
        """See that no other query has the group; `first`: of those that take messages.

        Raises:
            ConflictError: one has.
        """
        self._leased(group, lambda lease: lease.check(first, {query}))

    def hold_group(self, group: str, query: str, *, earlier: Collection[str] = ()) -> None:
        """Keep other queries out of a group until this is closed, or its lease is over.

        Args:
            group: whose cursors this query moves.
            query: its name in the checkpoint.
            earlier: the names that the checkpoint had for it before.

        Raises:
            ConflictError: another query has the group.
        """
        first = self.layout().current_partitions[0]
        self._leased(group, lambda lease: lease.hold(first, query, earlier=earlier))

    def _leased(
        self, group: str, call: Callable[[GroupLease], Coroutine[object, object, None]]
    ) -> None:
        if self._lease is None:
            self._lease = GroupLease(self._reader, group)
        try:
            self._thread.run(call(self._lease))
        except QuotaExceededError as error:
            log.warning("group %r: a second query in it would not be noticed: %s", group, error)

    def _release(self, lease: GroupLease) -> None:
        try:
            self._thread.run(lease.release())
        except PartqError as error:
            log.warning("the group is not given up, and its lease ends by itself: %s", error)

    def let_go(self, name: str) -> None:
        """Remove a pin, if that is possible: else it ends by itself."""
        try:
            self._thread.run(self._reader.unpin(name))
        except PartqError as error:
            log.warning("pin %s is not removed, and ends by itself: %s", name, error)

    async def _start_renewing(
        self, name: str, offsets: Mapping[PartitionId, int]
    ) -> asyncio.Task[None]:
        return asyncio.create_task(self._renew(name, offsets), name=f"renewing pin {name}")

    async def _renew(self, name: str, offsets: Mapping[PartitionId, int]) -> None:
        while True:
            await asyncio.sleep(PIN_RENEW_S)
            try:
                with suppress(ConflictError):
                    await self._reader.pin(name, offsets)
            except PartqError as error:
                # Four more tries fit into the time that it lasts.
                log.warning("pin %s is not renewed: %s", name, error)


async def _take(source: AsyncIterator[StoredBatch]) -> list[StoredBatch]:
    """Return the next batches, none at the end: each time costs a change of threads."""
    taken: list[StoredBatch] = []
    size = 0
    async for batch in source:
        taken.append(batch)
        size += len(batch.data)
        if size >= TAKE_BYTES:
            break
    return taken


async def _close(source: Any) -> None:
    await source.aclose()
