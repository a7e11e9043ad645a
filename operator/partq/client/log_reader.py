"""Reads the logs of a queue as they are stored, for readers that keep their progress."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from partq.aio import Backoff, cancel_and_wait
from partq.client.arguments import (
    MAX_INTEGER,
    check_by_partition,
    check_names,
    check_path_argument,
    whole,
)
from partq.client.transport.answers import given, unusable
from partq.client.transport.log_ends import LogEnds
from partq.client.transport.positions import LogPosition, check_unit, offset_and_epoch
from partq.client.transport.reader import QueueReader
from partq.client.transport.retries import RetryWindow
from partq.core.model import PartitionId
from partq.errors import (
    BadRequestError,
    InternalError,
    RolledBackError,
    SettingsError,
    UnknownPartitionError,
)
from partq.excerpts import excerpt
from partq.path_names import quoted
from partq.wire.calls import entries as wire
from partq.wire.calls.answers import UNSET
from partq.wire.calls.browse import PinBody, PinResult
from partq.wire.calls.entries import MAX_ENTRIES_WAIT_MS, Entries, StoredBatch
from partq.wire.calls.positions import (
    CursorPosition,
    CursorResult,
    CursorsBody,
    PositionResult,
    PositionsBody,
)

__all__ = ["Bounds", "LogPosition", "LogReader", "StoredBatch", "Where"]

EARLY_FIRST_S, EARLY_MOST_S = 0.05, 1.0
"""Waits before the end of a log is asked for again, where the owner has not waited."""

Where = Literal["earliest", "latest"] | Mapping[str, object]
"""`earliest`, `latest`, or one of {"at_ms": int}, {"group": name}, {"offsets": {partition: int}}"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition's log holds: the offsets [first, end)."""

    first: int
    end: int
    end_epoch: int
    """The broker epoch under which the last message was appended; 0: none is stored."""


class LogReader(QueueReader):
    """Reads stored batches, unopened; nothing is delivered or acknowledged. Use it in `async with`.

    Arguments as of `QueueReader`; the token is a consumer's, or an administrator's. One reading of
    `entries` holds twice `fetch_bytes` at most, or two batches where these are larger.
    """

    _rights_path = "/partitions/0.0/entries?from=0"

    # ---- places ---------------------------------------------------------------------------------

    async def bounds(
        self, partitions: Iterable[PartitionId] | None = None
    ) -> dict[PartitionId, Bounds]:
        """Return what the logs hold; None: of all partitions. Raises as `positions`."""
        found = await self.positions("latest", partitions)
        return {
            partition: Bounds(each.first, each.end, each.append_broker_epoch)
            for partition, each in found.items()
        }

    async def ends(self) -> LogEnds:
        """Return the layout, and the ends of all logs, with their seals.

        Those of an older generation are read after those of a newer one: a partition is sealed
        before the slots that it loses continue in the next generation, so where messages of a
        successor are seen, the seals of its predecessors are seen, too. Raises as `positions`.
        """
        patience = RetryWindow(self._timeout_s)
        while True:
            layout = await self.layout()
            partitions = layout.partitions()
            found: dict[PartitionId, LogPosition] = {}
            try:
                for generation in sorted({each.generation for each in partitions}, reverse=True):
                    ours = [each for each in partitions if each.generation == generation]
                    found |= await self.positions("latest", ours)
            except UnknownPartitionError as error:  # one was removed meanwhile
                await patience.wait(error)
            else:
                return LogEnds(layout, found)

    async def positions(
        self, where: Where, partitions: Iterable[PartitionId] | None = None
    ) -> dict[PartitionId, LogPosition]:
        """Return a position in each partition; None: in all, of offsets in theirs.

        Args:
            where: `earliest`, the first message that is stored; `latest`, behind the last one;
                {"at_ms": int}, the first message that was stored then or later, by Redis's clock;
                {"group": name}, the cursor of a consumer group; {"offsets": {partition: int}},
                these offsets as they are: compare them with `first` and `end`.
            partitions: which.

        Raises:
            BadRequestError: `where` is something else, or `at_ms` is in another unit: it is 0, or
                from 10**11 to 10**14.
            UnknownPartitionError, UnknownGroupError: the queue has no such partition or group.
            UnavailableError: a partition had no broker in time.
        """
        asked = positions_body(where)
        check_unit("positions", asked.at_ms)
        if asked.offsets is not None and partitions is None:
            partitions = [PartitionId.parse(name) for name in asked.offsets]
        wanted = await self._router.checked(partitions)
        if asked.offsets is not None and (
            missing := [each for each in wanted if str(each) not in asked.offsets]
        ):
            raise BadRequestError(f"positions: no offset for partition {missing[0]}; give it one")

        def body(names: list[PartitionId]) -> PositionsBody:
            asked.partitions = [str(each) for each in names]
            return asked

        found = await self._router.ask_each("POST", "/positions", wanted, body, PositionResult)
        return {partition: _position(partition, found[partition]) for partition in wanted}

    # ---- messages -------------------------------------------------------------------------------

    async def entries(
        self,
        partition: PartitionId,
        start: int | LogPosition,
        stop: int | LogPosition | None = None,
    ) -> AsyncIterator[StoredBatch]:
        """Yield the stored batches that hold the messages [start, stop), in their order.

        The first one may begin below `start`, the last one end above `stop`. The next ones are
        fetched while those before are worked on. What is to be read may be trimmed meanwhile: a
        cursor of a group, or a pin, keeps it.

        Args:
            partition: of which.
            start: offset of the first message; as a position it is checked, too.
            stop: behind the last message; as a position it is checked, too. None: the end of the
                log as of now.

        Raises:
            DataLossError: what is to be read is no longer stored; nothing is passed over.
            RolledBackError: the store has lost messages, so that the log ends below `start` or
                `stop`, or has others by now in the place of those of the position, or of those
                that were yielded.
            BadRequestError: `stop` is below `start`.
            SettingsError: one is neither an offset nor a `LogPosition` of this partition.
            UnknownPartitionError: the queue does not have it.
            UnavailableError: the partition had no broker in time.
            RuntimeError: the reader was closed meanwhile.
        """
        at, epoch = offset_and_epoch("start", partition, start)
        if stop is None:
            end, end_epoch = (await self.positions("latest", [partition]))[partition].offset, 0
        else:
            end, end_epoch = offset_and_epoch("stop", partition, stop)
            if end < at:
                raise BadRequestError(
                    f"partition {partition}: asked to read from {at} to {end}; expected an end "
                    "that is not below the start"
                )
        await self._router.checked([partition])
        if at == end and not epoch:
            return
        fetching = self._fetch(partition, at, epoch, end)
        try:
            while True:
                found = await self._fetched(fetching)
                _check_end(partition, found, end)
                following = _following(partition, at, end, found)
                if following < end:
                    epoch = found.batches[-1].append_broker_epoch
                    fetching = self._fetch(partition, following, epoch, end)
                for batch in found.batches if at < end else ():
                    if batch.first >= end:
                        break
                    if end <= batch.first + batch.count:
                        _check_epoch(partition, end, end_epoch, batch.append_broker_epoch)
                    yield batch
                if following >= end:
                    return
                at = following
        finally:
            await cancel_and_wait(fetching)

    async def follow(
        self, partition: PartitionId, start: int | LogPosition
    ) -> AsyncGenerator[StoredBatch, None]:
        """Yield the stored batches from `start` on, without end: also those that come later.

        At the end of the log it waits at the owner, which answers once a message is stored. It
        follows the partition from broker to broker, as `entries`, and raises what that raises.
        """
        at, epoch = offset_and_epoch("start", partition, start)
        await self._router.checked([partition])
        early = Backoff(EARLY_FIRST_S, EARLY_MOST_S)
        clock = asyncio.get_running_loop().time
        asked_at, fetching = clock(), self._fetch(partition, at, epoch, None)
        try:
            while True:
                found = await self._fetched(fetching)
                if found.batches:
                    early.reset()
                    at = _following(partition, at, found.end, found)
                    epoch = found.batches[-1].append_broker_epoch
                elif clock() - asked_at < MAX_ENTRIES_WAIT_MS / 2000:
                    # The broker ends, or too many wait there, or it is of an earlier version.
                    await asyncio.sleep(early.next_s())
                asked_at, fetching = clock(), self._fetch(partition, at, epoch, None)
                for batch in found.batches:
                    yield batch
        finally:
            await cancel_and_wait(fetching)

    def _fetch(
        self, partition: PartitionId, at: int, epoch: int, end: int | None
    ) -> asyncio.Task[Entries]:
        """Fetch up to `end`; None: to the end of the log, and wait there for the next message."""
        query = {"from": at, "max_bytes": self._fetch_bytes, "append_broker_epoch": epoch}
        query |= {"wait_ms": MAX_ENTRIES_WAIT_MS} if end is None else {"to": end}
        path = f"/partitions/{partition}/entries"

        async def fetch(url: str) -> Entries:
            return wire.decode(await self._router.session.fetch(url, path, query))

        async def run() -> Entries:
            return await self._router.at_owner(partition, fetch)

        return self._fetching.start(run(), f"fetching {partition} from {at}")

    async def _fetched(self, fetching: asyncio.Task[Entries]) -> Entries:
        try:
            return await fetching
        except asyncio.CancelledError:
            if self._is_closed:
                raise RuntimeError(
                    "the reader was closed while it was read from; close it after the last read"
                ) from None
            raise

    # ---- progress -------------------------------------------------------------------------------

    async def commit(
        self, group: str, positions: Mapping[PartitionId, LogPosition]
    ) -> dict[PartitionId, int]:
        """Move cursors of a group forward, and return where they are; for a reader of the log.

        All below a position counts as acknowledged. Where the group is farther already, nothing
        changes, so a commit can be repeated. Each partition is judged on its own: after an error
        some may have been moved.

        Raises:
            ConflictError: a member of the group is connected and has the partition.
            RolledBackError: the position is of messages that the store has lost.
            UnknownGroupError, UnknownPartitionError: the queue has no such group or partition.
            UnavailableError: a partition had no broker in time.
        """
        check_names({"group": group}, needed=("group",))
        check_by_partition("positions", positions)
        values: Iterable[object] = positions.values()  # callers may have no types
        for value in values:
            if not isinstance(value, LogPosition):
                got = type(value).__name__
                raise SettingsError(f"positions: got {got}, expected a LogPosition")
        places = {each: offset_and_epoch("positions", each, positions[each]) for each in positions}
        wanted = await self._router.checked(positions)
        path = f"/groups/{quoted(group, 'group')}/cursors"

        def body(names: list[PartitionId]) -> CursorsBody:
            return CursorsBody({str(each): CursorPosition(*places[each]) for each in names})

        found = await self._router.ask_each("POST", path, wanted, body, CursorResult)
        return {each: given("log", "cursor", found[each].cursor) for each in wanted}

    async def pin(
        self, name: str, offsets: Mapping[PartitionId, int | LogPosition]
    ) -> dict[PartitionId, int]:
        """Keep what is stored from offsets on, whatever the groups acknowledge, for ten minutes.

        A repeat renews the pin, and moves it. Returns from where on each log is kept: higher than
        asked for where messages are no longer stored.

        Raises:
            ConflictError: another reader with the same token sets this pin at the same time.
            QuotaExceededError: a partition has too many pins.
            UnknownPartitionError: the queue has no such partition.
            UnavailableError: a partition had no broker in time.
        """
        check_path_argument("name", name)
        check_by_partition("offsets", offsets)
        places = {each: offset_and_epoch("offsets", each, at)[0] for each, at in offsets.items()}
        wanted = await self._router.checked(places)

        def body(names: list[PartitionId]) -> PinBody:
            return PinBody(offsets={str(each): places[each] for each in names})

        found = await self._call_pin("PUT", name, wanted, body)
        return {each: given("log", "offset", found[each].offset) for each in wanted}

    async def unpin(self, name: str) -> None:
        """Let go of what a pin holds, in every partition; one that is not there is no error."""
        check_path_argument("name", name)
        wanted = await self._router.checked(None)

        def body(names: list[PartitionId]) -> PinBody:
            return PinBody([str(each) for each in names])

        await self._call_pin("DELETE", name, wanted, body)

    async def _call_pin(
        self,
        method: str,
        name: str,
        partitions: list[PartitionId],
        body: Callable[[list[PartitionId]], PinBody],
    ) -> Mapping[PartitionId, PinResult]:
        path = f"/pins/{quoted(name, 'pin')}"

        async def call(number: int) -> dict[PartitionId, PinResult]:
            def numbered(names: list[PartitionId]) -> PinBody:
                found = body(names)
                found.number = number
                return found

            return await self._router.ask_each(method, path, partitions, numbered, PinResult)

        return await self._pin_calls.make(name, call)


def positions_body(where: object) -> PositionsBody:
    """Return what the call `positions` asks for, of all partitions.

    Raises:
        BadRequestError, SettingsError: `where` is not a `Where`.
    """
    match where:
        case "earliest" | "latest":
            return PositionsBody(to="earliest" if where == "earliest" else "latest")
        case Mapping() if len(where) == 1:
            ((name, place),) = where.items()
            if name == "offsets":
                offsets = check_by_partition(name, place)
                return PositionsBody(
                    offsets={
                        str(each): whole(name, at, 0, MAX_INTEGER) for each, at in offsets.items()
                    }
                )
            if name == "at_ms":
                return PositionsBody(at_ms=whole(name, place, -MAX_INTEGER, MAX_INTEGER))
            if name == "group":
                check_names({name: place}, needed=(name,))
                return PositionsBody(group=str(place))
    raise BadRequestError(
        f"positions: got {excerpt(repr(where))}; expected earliest, latest, or one of at_ms, "
        "group and offsets"
    )


def _position(partition: PartitionId, answer: PositionResult) -> LogPosition:
    return LogPosition(
        partition,
        given("log", "append_broker_epoch", answer.append_broker_epoch),
        given("log", "offset", answer.offset),
        given("log", "first", answer.first),
        given("log", "end", answer.end),
        _seals(answer),
    )


def _seals(answer: PositionResult) -> dict[int, int]:
    if answer.seals is UNSET:
        return {}
    try:
        return {int(generation): stop for generation, stop in answer.seals.items()}
    except ValueError as error:
        raise unusable("log", error) from error


def _following(partition: PartitionId, at: int, end: int, found: Entries) -> int:
    """Return the offset behind what is shown, which must begin at `at`, or below it."""
    if at == end:
        return at  # there was nothing to read, only a position to check
    first = found.batches[0] if found.batches else None
    if first is None or not first.first <= at < first.first + first.count:
        raise InternalError(
            f"partition {partition}: the broker shows {'nothing' if first is None else first.first}"
            f" where {at} was asked for, though the log continues to {found.end}"
        )
    last = found.batches[-1]
    return last.first + last.count


def _check_end(partition: PartitionId, found: Entries, end: int) -> None:
    if found.end < end:
        raise RolledBackError(
            f"partition {partition}: the log ends at {found.end}, below {end}: the store has lost "
            "messages, or the end to read up to is not one of this queue; ask for a new position"
        )


def _check_epoch(partition: PartitionId, offset: int, known: int, stored: int) -> None:
    if known and known != stored:
        raise RolledBackError(
            f"partition {partition}: the message below {offset} was appended under broker epoch "
            f"{stored}; the position says {known}: the store has lost what the position speaks of; "
            "ask for a new position to begin at"
        )
