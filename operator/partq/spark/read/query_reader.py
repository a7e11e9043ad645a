"""Reads a queue for one query of Spark, and keeps a second query out of its consumer group."""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime

from partq.aio import cancel_and_wait
from partq.client.log_reader import LogReader
from partq.client.transport.answers import given
from partq.client.transport.retries import retry_backoff
from partq.core.model import PartitionId
from partq.errors import ConflictError, PartqError
from partq.path_names import quoted
from partq.spark.read.offsets import QueueLife
from partq.wire.calls.answers import UNSET
from partq.wire.calls.bodies import MAX_NATURAL
from partq.wire.calls.browse import PinBody, PinResult

log = logging.getLogger("partq.spark")

TRIES = 4
SPREAD_MS = 1000
"""Two queries that draw a number in the same millisecond do not get the same one."""
STOP_S = 5.0
"""Spark starts the next query without waiting for the process of one that it stops."""
RENEW_S = 15.0
"""How often a query renews its lease of a group."""
LEASE_S = 60.0
"""A lease that is not renewed for as long is over: three renewals may fail before."""
LOOK_S = 2.0
"""So much of the time between two looks at another query's lease counts, at most."""


class QueryReader(LogReader):
    """A `LogReader` that knows which queue it reads, and sets pins under numbers of its caller."""

    async def life(self) -> QueueLife:
        """Return which queue the brokers serve.

        Raises:
            UnavailableError: no broker answers in time.
        """
        found = await self._router.queue_layout()
        return QueueLife(found.namespace, found.queue, found.uid)

    async def set_pin(self, name: str, partition: PartitionId, number: int) -> int:
        """Set a pin at the end of a log, and return the number of the call that has set it last.

        A number below that one changes nothing. 0 changes nothing either, and returns a number
        above those of all calls. Raises as `pin`.
        """
        body = PinBody(offsets={str(partition): MAX_NATURAL}, number=number)
        result = await self._one("PUT", name, partition, body)
        return given("pin", "number", result.number)

    async def remove_pin(self, name: str, partition: PartitionId, number: int) -> int | None:
        """Remove a pin; one that a higher number has set stays, and that number is returned."""
        body = PinBody([str(partition)], number=number)
        result = await self._one("DELETE", name, partition, body)
        return None if result.number is UNSET else result.number

    async def _one(
        self, method: str, name: str, partition: PartitionId, body: PinBody
    ) -> PinResult:
        def same(_: list[PartitionId]) -> PinBody:
            return body

        path = f"/pins/{quoted(name, 'pin')}"
        return (await self._router.ask_each(method, path, [partition], same, PinResult))[partition]


class GroupLease:
    """The right of one query to move the cursors of a group, held by two pins of one partition.

    The pin `spark-group-GROUP` says that a query has the group; the number that it was set under
    tells one holder from the next, and grows by one with each renewal. Another query takes over
    when it has seen the same number for the length of a lease by its own clock. The pin
    `spark-group-GROUP-QUERY` says which query has the group: a process that continues its
    checkpoint finds it and takes over at once. The number of the earlier process is too low from
    then on. Both pins end by themselves ten minutes after the last renewal. Pins belong to a token,
    so queries with different tokens do not see each other.

    Args:
        reader: open; its owner closes it, after `release`.
        group: whose cursors are moved.
        stop_s: how long another query that has the group may take to stop, in seconds.
        renew_s: how often the lease is renewed, in seconds.
        lease_s: how long another query may take to renew its lease, in seconds.
    """

    def __init__(
        self,
        reader: QueryReader,
        group: str,
        *,
        stop_s: float = STOP_S,
        renew_s: float = RENEW_S,
        lease_s: float = LEASE_S,
    ) -> None:
        self._reader = reader
        self._group = group
        self._stop_s = stop_s
        self._renew_s = renew_s
        self._lease_s = lease_s
        self._name = f"spark-group-{hashlib.sha256(group.encode()).hexdigest()[:16]}"
        self._partition: PartitionId | None = None
        self._query = ""
        self._number = 0
        """Under which this process holds the group; 0: it does not."""
        self._own_number = 0
        """The same of the pin that names the query."""
        self._over: int | None = None
        """The number of another query's lease that was not renewed in time."""
        self._lost: ConflictError | None = None
        self._turn = asyncio.Lock()
        """One call at a time: an older number of this process must not follow a later one."""
        self._is_ending = asyncio.Event()
        """Set by `release`: a call that waits for another query ends its wait."""
        self._renewing: asyncio.Task[None] | None = None

    async def check(self, partition: PartitionId, queries: Collection[str]) -> None:
        """See that no other query has the group; renew what this one holds.

        Args:
            partition: the queue's first one.
            queries: the names that the checkpoint has for this query.

        Raises:
            ConflictError: another query has the group.
            UnavailableError: the partition had no broker in time.
        """
        async with self._turn:
            await self._check(partition, queries)

    async def _check(self, partition: PartitionId, queries: Collection[str]) -> None:
        if self._lost is not None:
            raise self._lost
        if self._partition != partition:
            self._partition, self._number = partition, 0
        if self._number:
            if await self._reader.set_pin(self._name, partition, self._number) == self._number:
                return
            self._number = 0
            if (holder := await self._holder(self._name)) is not None:
                # For good: a later process of this very query may have it, under the same name.
                self._lost = self._conflict(holder)
                raise self._lost
        elif (holder := await self._foreign_holder(queries)) is not None:
            raise self._conflict(holder)

    async def hold(
        self, partition: PartitionId, query: str, *, earlier: Collection[str] = ()
    ) -> None:
        """Hold the group for `query`, which the checkpoint names by now, and renew that.

        `earlier`: other names that the checkpoint has for the same query. Raises as `check`.
        """
        async with self._turn:
            await self._check(partition, {query, *earlier})
            if self._number and self._query == query:
                return
            self._number = await self._claim(self._name)
            self._query = query
            self._own_number = await self._claim(self._own(query))
            if self._renewing is None:
                self._renewing = asyncio.create_task(self._renew(), name=f"renewing {self._name}")

    async def release(self) -> None:
        """Give the group up, if this process still holds it; it is the last call.

        A call that is under way is waited for: its pins would stay otherwise.
        """
        self._is_ending.set()
        async with self._turn:
            if self._renewing is not None:
                await cancel_and_wait(self._renewing)
                self._renewing = None
            number, self._number = self._number, 0
            if number and self._partition is not None:
                later = await self._reader.remove_pin(self._name, self._partition, number)
                if later is None:
                    own = self._own(self._query)
                    await self._reader.remove_pin(own, self._partition, self._own_number)

    async def _foreign_holder(self, queries: Collection[str]) -> int | None:
        """Return under which number another query has the group; None: none has.

        That takes up to the length of a lease if the query was killed, and else until it renews its
        lease, or stops.
        """
        clock = asyncio.get_running_loop().time
        seen = await self._holder(self._name)
        holder, waits, last, waited_s = seen, retry_backoff(), clock(), 0.0
        while holder is not None and holder != self._over:
            for query in sorted(queries):
                if await self._holder(self._own(query)) is not None:
                    return None
            if self._is_ending.is_set() or (holder != seen and waited_s >= self._stop_s):
                return holder
            if holder == seen and waited_s >= self._lease_s:
                log.warning(
                    "group %r: the query that has had it since %s has not renewed its lease for "
                    "%g s; this query takes over",
                    self._group,
                    _since(holder),
                    waited_s,
                )
                self._over = holder
                return None
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_ending.wait(), waits.next_s())
            holder = await self._holder(self._name)
            # While no broker answers, nobody can renew a lease.
            waited_s += min(clock() - last, LOOK_S)
            last = clock()
        return None

    def _own(self, query: str) -> str:
        return f"{self._name}-{query}"

    async def _holder(self, name: str) -> int | None:
        """Return the number that a pin was set under; None: there is no pin that lasts.

        No call reads a pin. 1 is below every number that is drawn: to set it removes a pin whose
        time is over, and to remove it shows one that lasts.
        """
        assert self._partition is not None  # noqa: S101  for mypy: `check` has set it
        await self._reader.set_pin(name, self._partition, 1)
        return await self._reader.remove_pin(name, self._partition, 1)

    async def _claim(self, name: str) -> int:
        assert self._partition is not None  # noqa: S101  as in `_holder`
        number = await self._reader.set_pin(name, self._partition, 0)
        for _ in range(TRIES):
            # The holder may be setting its next number: this one is above that.
            number += 1 + secrets.randbelow(SPREAD_MS)
            last = await self._reader.set_pin(name, self._partition, number)
            if last == number:
                return number
            number = last + 1
        raise self._conflict(number)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._renew_s)
            with suppress(ConflictError):  # the next micro-batch finds out, too, and ends the query
                try:
                    await self._renew_once()
                except ConflictError:
                    raise
                except PartqError as error:
                    # Two more tries fit into the time that it lasts.
                    log.warning("group %r: its lease is not renewed: %s", self._group, error)

    async def _renew_once(self) -> None:
        async with self._turn:
            if self._partition is None or not self._number:
                return
            self._number += 1  # also if no answer comes: it may have been set
            await self._check(self._partition, {self._query})
            self._own_number = await self._claim(self._own(self._query))

    def _conflict(self, number: int) -> ConflictError:
        return ConflictError(
            f"group {self._group!r}: another query, or a later start of this one, has had it since "
            f"{_since(number)} (Redis's time), and renews its lease. Two queries in one group move "
            "the same cursors, and miss each other's messages: stop one of them, or give each a "
            f"separate group. A query that was killed loses its group after {self._lease_s:g} s"
        )


def _since(number: int) -> str:
    """Return when a query began to have a group; renewals add some milliseconds."""
    return f"{datetime.fromtimestamp(number / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
