"""Reads a queue message by message without a consumer group: what was read is nowhere recorded."""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

from partq.aio import Signal, TaskSet, cancel_and_wait
from partq.client.arguments import (
    MAX_TIME_S,
    check_flags,
    check_partitions,
    check_range,
)
from partq.client.browser import REMOVE_TIMEOUT_S, Browsed
from partq.client.handout.reader_interceptor import ReaderInterceptor, ReaderInterceptors
from partq.client.hooks.interceptor_calls import checked_interceptors
from partq.client.hooks.serializers import ValueDeserializer, check_serializer
from partq.client.log_reader import LogPosition, LogReader
from partq.client.readers.followed_layout import LOOK_S, FollowedLayout
from partq.client.readers.starts import WHERE_KEYS, Start, check_start, clamped, opened
from partq.client.transport.positions import check_unit, log_position
from partq.client.transport.reader import FETCH_BYTES, TIMEOUT_S
from partq.client.transport.session import log
from partq.client.transport.tasks import EnteredLoop
from partq.core.model import PartitionId
from partq.errors import BadRequestError, DataLossError, PartqError, SettingsError
from partq.excerpts import excerpt
from partq.wire.calls.bodies import MAX_NATURAL
from partq.wire.calls.browse import PIN_RENEW_S

MAX_PARTITIONS = 64
"""The most partitions that a reader follows: each has a call that waits at a broker."""

MIN_TIMEOUT_S = 0.001
"""With less each call would fail before a broker can have answered."""


class _Follower:
    """What is fetched of one partition, and not handed out yet."""

    def __init__(self) -> None:
        self.messages: deque[Browsed] = deque()
        self.error: Exception | None = None
        self.is_wanted = Signal()
        """Set when nothing is left of the last batch."""
        self.is_left = False
        """Whether the reader has gone elsewhere in its partition."""


class ReadMessage(NamedTuple):
    """A message that was read, and how it is put back."""

    message: Browsed
    place: LogPosition
    """Of the reader before it."""
    follower: _Follower


class Reader:
    """Reads the messages of a queue, and waits for the next ones. Use it in `async with`.

    It belongs to no group: nothing is delivered or acknowledged, no cursor is stored, and other
    readers see the same messages. Its place ends with it; keep `positions()` to continue later.

    ```python
    async with Reader(url, queue="orders", start="latest") as reader:
        async for each in reader:
            print(each.partition, each.offset, each.message)
    ```

    Args:
        url: of a broker, or several with commas between them.
        queue: its name.
        start: where to begin, as of `seek`; partitions without a place begin at the oldest message.
        partitions: which to read, 1 to 64; None: all, if they are no more, also those that a
            change of the partition count makes. They are read and pinned from about a second after
            it, each behind what the partitions before it have of its keys.
        token: of a consumer of any group, or of an administrator.
        namespace: of the queue; None: it is not checked.
        ca_file: PEM of the CAs that may sign the brokers' certificates; None: the system's.
        is_pinned: whether what was not read yet is kept from being trimmed, whatever the groups
            acknowledge. A partition has room for 16 pins.
        timeout_s: how long to wait for a partition that no broker serves, in seconds, 0.001 to
            86,400.
        value_deserializer: makes the `value` of each message, as of `Consumer`.
        interceptors: learn of each message that is returned.
        fetch_bytes: bytes to fetch at once of a partition, 1 to 16 MiB. Up to twice as much of each
            partition is in memory.

    Raises:
        SettingsError: an argument is of a wrong type or out of range; names it.
    """

    def __init__(
        self,
        url: str,
        queue: str,
        *,
        start: Start = "earliest",
        partitions: Iterable[PartitionId] | None = None,
        token: str | None = None,
        namespace: str | None = None,
        ca_file: str | Path | None = None,
        is_pinned: bool = True,
        value_deserializer: ValueDeserializer | None = None,
        interceptors: Sequence[ReaderInterceptor] = (),
        timeout_s: float = TIMEOUT_S,
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        check_start(start)
        check_flags({"is_pinned": is_pinned})
        check_serializer("value_deserializer", value_deserializer)
        check_range("timeout_s", timeout_s, MIN_TIMEOUT_S, MAX_TIME_S)
        self._entered_loop = EnteredLoop("the reader")
        self._log = LogReader(
            url,
            queue=queue,
            token=token,
            namespace=namespace,
            ca_file=ca_file,
            timeout_s=timeout_s,
            fetch_bytes=fetch_bytes,
        )
        self._start = start
        self._value_deserializer = value_deserializer
        self._interceptors = ReaderInterceptors(
            checked_interceptors(interceptors, ReaderInterceptor)
        )
        self._wanted = None if partitions is None else check_partitions("partitions", partitions)
        self._reads_all = partitions is None
        self._layout = FollowedLayout(self._log)
        self._looking: asyncio.Task[None] | None = None
        self._seeking = asyncio.Lock()
        self._pin = f"reader-{secrets.token_hex(8)}" if is_pinned else None
        self._renewing: asyncio.Task[None] | None = None
        self._untold: Exception | None = None
        """Why the pin was not renewed, if that was no answer or silence of a broker."""
        self._tasks = TaskSet()
        self._next: dict[PartitionId, LogPosition] = {}
        self._followers: dict[PartitionId, _Follower] = {}
        self._turns: deque[PartitionId] = deque()
        """The partitions, with the one first that was served longest ago."""
        self._news = Signal()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        """Open the connections, find the start, and pin what is ahead of it.

        Raises:
            UnauthorizedError, ForbiddenError: the token may not read.
            PartqError: as of `seek`.
            RuntimeError: it was entered before.
        """
        self._entered_loop.enter()
        await self._log.__aenter__()
        try:
            layout = await self._layout.read()
            self._want(layout.partitions() if self._wanted is None else self._wanted)
            await self._go(self._start)
            self._looking = asyncio.create_task(
                self._follow_layout(), name="looking for partitions"
            )
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close; as `close`."""
        await self.close()

    async def close(self) -> None:
        """Stop, and let go of what the pin holds, if that is possible: else it ends by itself.

        It may be called again; before the reader is entered it does nothing.

        Raises:
            RuntimeError: from another event loop or thread.
        """
        self._entered_loop.check()
        if self._is_closed or not self._entered_loop.is_entered:
            return
        self._is_closed = True
        self._entered_loop.close()
        self._news.set()
        try:
            await cancel_and_wait(self._looking)
            await cancel_and_wait(self._renewing)
            await self._tasks.close()
            if self._pin is not None:
                async with asyncio.timeout(REMOVE_TIMEOUT_S):
                    await self._log.unpin(self._pin)
        except (TimeoutError, PartqError) as failure:
            log.warning("pin %s is not removed, and ends by itself: %s", self._pin, failure)
        finally:
            await self._log.__aexit__()

    def __aiter__(self) -> AsyncIterator[Browsed]:
        """Return the messages: those of a partition in their order, the partitions in turns."""
        return self

    async def __anext__(self) -> Browsed:
        """Return the next message, and wait until there is one.

        After an error the other partitions can be read on, and the one that failed is tried again
        from its place.

        Raises:
            DataLossError: the next message of a partition is no longer stored. `seek` continues.
            RolledBackError: the store has lost messages that were read. `seek` continues.
            UnavailableError: a partition had no broker in time.
            RuntimeError: the reader is not open, or was closed, also while the call waited.
        """
        return (await self.read_next()).message

    async def read_next(self) -> ReadMessage:
        """Return the next message, as `__anext__`, to a caller that may put it back."""
        while not self._is_closed and self._next:
            self._news.clear()
            for partition in self._wanted or ():
                if partition not in self._followers and self._is_due(partition):
                    self._follow(partition)
            for _ in range(len(self._turns)):
                partition = self._turns[0]
                self._turns.rotate(-1)
                follower = self._followers[partition]
                if follower.messages:
                    return self._advance(partition, follower)
                if follower.error is not None:
                    del self._followers[partition]
                    raise follower.error
            if self._untold is not None:
                error, self._untold = self._untold, None
                raise error
            await self._news.wait()
        self._entered_loop.check_not_closed()
        raise RuntimeError("the reader is not open; read inside of its `async with`")

    def put_back(self, read: ReadMessage) -> None:
        """Have a message returned again, before those behind it; not after a seek."""
        message, place, follower = read
        if follower.is_left or self._is_closed:
            return
        self._next[place.partition] = place
        if self._followers.get(place.partition) is follower:
            follower.messages.appendleft(message)
        else:  # it failed meanwhile, and is read on from the place
            self._leave([place.partition])
        self._news.set()

    def positions(self) -> dict[PartitionId, LogPosition]:
        """Return the place of the next message in each partition, behind the last one returned.

        Given as `start`, or to `seek`, it is checked: `RolledBackError` says that the store has
        other messages there by now.
        """
        return dict(self._next)

    async def seek(self, where: Start) -> None:
        """Go on at another place. Nothing that was fetched before is returned after it.

        Args:
            where: `earliest`, the first message that is stored; `latest`, what is stored from now
                on; {"at_ms": int}, the first message that was stored then or later, by Redis's
                clock; {"group": name}, the cursors of a group; or an offset or `LogPosition` per
                partition: the others stay where they are. An offset that the log does not hold
                becomes the nearest that it holds, which `positions` shows; a `LogPosition` is
                checked, and stays as it is.

        Raises:
            BadRequestError: `where` is something else, or names no partition or one that is not
                read.
            QuotaExceededError: a partition has 16 pins of others.
            UnavailableError: a partition had no broker in time; the place is as before.
        """
        self._entered_loop.check_not_closed()
        if not self._next:
            raise RuntimeError("the reader is not open; seek inside of its `async with`")
        await self._go(where)

    # ---- places ---------------------------------------------------------------------------------

    async def _found(self, where: Start) -> dict[PartitionId, LogPosition]:
        """Return where to go on, in the partitions that are meant."""
        wanted = self._wanted or []
        offsets: dict[PartitionId, int] = {}
        if not isinstance(where, Mapping) or where.keys() & WHERE_KEYS:
            if isinstance(where, Mapping):
                check_unit("reader", where.get("at_ms"))  # type: ignore[call-overload]
            return await self._log.positions(where, wanted)  # type: ignore[arg-type]
        if not where:
            raise BadRequestError(
                "reader: got a mapping without places, expected a place per PartitionId, "
                "'earliest', 'latest', {'at_ms': milliseconds} or {'group': name}"
            )
        places: dict[PartitionId, LogPosition] = {}
        for partition, place in where.items():
            if self._is_past(partition):
                continue  # a place of earlier: the partition was removed since
            if partition not in wanted:
                raise BadRequestError(
                    f"reader: got a place in partition {excerpt(str(partition))}, expected one of "
                    "the partitions that it reads"
                )
            if isinstance(place, LogPosition):
                each = PartitionId(*partition)
                places[each] = log_position("reader", each, place)
            elif isinstance(place, int) and not isinstance(place, bool) and place >= 0:
                offsets[PartitionId(*partition)] = min(place, MAX_NATURAL)
            else:
                raise BadRequestError(
                    f"reader: got {excerpt(repr(place))} for partition {partition}, expected an "
                    "offset from 0 on, or a LogPosition"
                )
        if offsets:
            found = await self._log.positions({"offsets": offsets}, list(offsets))
            places |= {partition: clamped(each) for partition, each in found.items()}
        if not self._next:  # at the start the others begin at the oldest message
            return await self._log.positions("earliest", wanted) | places
        return places

    async def _go(self, where: Start) -> None:
        """Find the places, and read on from there; the pin keeps all that is stored meanwhile."""
        async with self._seeking:
            await cancel_and_wait(self._renewing)  # its call must not come between
            try:
                if self._pin is not None:
                    await self._log.pin(self._pin, dict.fromkeys(self._wanted or (), 0))
                places = await self._found(where)
                self._next |= places
                self._leave(places)
            finally:
                if self._pin is not None and not self._is_closed:
                    self._renewing = asyncio.create_task(self._renew(self._pin), name=self._pin)
        self._news.set()

    def _leave(self, partitions: Collection[PartitionId]) -> None:
        """Forget what is fetched of some partitions, and is being fetched."""
        for partition in partitions:
            if (follower := self._followers.pop(partition, None)) is not None:
                follower.is_left = True
        self._turns = deque(self._followers)
        names = {str(each) for each in partitions}
        for task in self._tasks:
            if task.get_name() in names:
                task.cancel()

    async def _renew(self, pin: str) -> None:
        """Keep what is ahead: from now on, and again and again."""
        while True:
            try:
                # One that was read and gets no messages any more may be removed.
                if ahead := {
                    each: at for each, at in self._next.items() if not self._layout.has_read(at)
                }:
                    await self._log.pin(pin, ahead)
            except PartqError as error:
                # Four more tries fit into the time that it lasts.
                log.warning("pin %s is not renewed: %s", pin, error)
            except Exception as error:  # noqa: BLE001 - iterating raises it
                self._untold = error
                self._news.set()
            await asyncio.sleep(PIN_RENEW_S)

    # ---- partitions -----------------------------------------------------------------------------

    def _want(self, partitions: Sequence[PartitionId]) -> None:
        if not 1 <= len(partitions) <= MAX_PARTITIONS:
            raise SettingsError(
                f"partitions: got {len(partitions)}, expected 1 to {MAX_PARTITIONS} per reader; "
                "name them, and open more readers for the others"
            )
        self._wanted = list(partitions)

    def _is_due(self, partition: PartitionId) -> bool:
        return partition in self._next and self._layout.is_due(partition, self._next)

    def _is_past(self, partition: object) -> bool:
        layout = self._layout.layout
        return (
            self._reads_all
            and layout is not None
            and isinstance(partition, PartitionId)
            and layout.is_past(partition)
        )

    async def _follow_layout(self) -> None:
        """Follow changes of the partition count."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                before = self._layout.layout
                layout = await self._layout.read()
                if layout is not before:
                    self._news.set()  # a partition may wait for nothing more
                if self._reads_all and self._next.keys() != {*layout.partitions()}:
                    await self._change(layout.partitions())
            except PartqError as error:
                log.info("the layout could not be read: %s", error)
                if isinstance(error, SettingsError):
                    self._untold = error
                    self._news.set()

    async def _change(self, partitions: Sequence[PartitionId]) -> None:
        """Read new partitions from their beginning, and no more those that were removed."""
        self._want(partitions)
        async with self._seeking:
            await cancel_and_wait(self._renewing)  # its call must not come between
            for gone in self._next.keys() - set(partitions):
                place = self._next.pop(gone)
                self._leave([gone])
                if not self._layout.has_read(place):
                    self._untold = DataLossError(
                        f"partition {gone}: removed after a change of the partition count, read up "
                        f"to offset {place.offset}; messages from there on are no longer stored"
                    )
            for partition in partitions:
                self._next.setdefault(partition, LogPosition(partition, 0, 0))
            if self._pin is not None:
                self._renewing = asyncio.create_task(self._renew(self._pin), name=self._pin)
        self._news.set()

    # ---- messages -------------------------------------------------------------------------------

    def _follow(self, partition: PartitionId) -> None:
        follower = self._followers[partition] = _Follower()
        self._turns = deque(self._followers)
        self._tasks.start(self._fetch(partition, follower), str(partition))

    async def _fetch(self, partition: PartitionId, follower: _Follower) -> None:
        """Bring the batches of a partition; what comes after a seek goes to nobody."""
        start = self._next[partition]
        try:
            async with aclosing(self._log.follow(partition, start)) as found:
                async for stored in found:
                    follower.is_wanted.clear()
                    follower.messages.extend(opened(partition, stored, start.offset))
                    self._news.set()
                    await follower.is_wanted.wait()
        except Exception as error:  # noqa: BLE001 - iterating raises it
            follower.error = error
            self._news.set()

    def _advance(self, partition: PartitionId, follower: _Follower) -> ReadMessage:
        message, place = follower.messages.popleft(), self._next[partition]
        if self._value_deserializer is not None:
            message = replace(message, value_deserializer=self._value_deserializer)
        self._next[partition] = LogPosition(
            partition, message.append_broker_epoch, message.offset + 1
        )
        if not follower.messages:
            follower.is_wanted.set()
        self._interceptors.read(message)
        return ReadMessage(message, place, follower)
