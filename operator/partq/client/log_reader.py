"""Reads the logs of a queue as they are stored, for readers that keep their progress."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from partq.aio import cancel_and_wait
from partq.client.arguments import (
    MAX_INTEGER,
    check_by_partition,
    check_names,
    check_path_argument,
    whole,
)
from partq.client.transport.answers import given
from partq.client.transport.reader import QueueReader
from partq.core.model import PartitionId
from partq.errors import BadRequestError, InternalError, RolledBackError, SettingsError
from partq.excerpts import excerpt
from partq.path_names import quoted
from partq.wire.calls import entries as wire
from partq.wire.calls.browse import PinResult
from partq.wire.calls.entries import Entries, StoredBatch
from partq.wire.calls.positions import CursorResult, PositionResult

__all__ = ["Bounds", "LogPosition", "LogReader", "StoredBatch", "Where"]

Where = Literal["earliest", "latest"] | Mapping[str, object]
"""`earliest`, `latest`, or one of {"at_ms": int}, {"group": name}, {"offsets": {partition: int}}"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition's log holds: the offsets [first, end)."""

    first: int
    end: int
    end_epoch: int
    """The broker epoch under which the last message was appended; 0: none is stored."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A place between two messages of a partition, and what the log held at that time."""

    partition: PartitionId
    """The partition that it is in."""
    append_broker_epoch: int
    """Of the message at `offset` - 1; 0: none is stored there, so it cannot be checked."""
    offset: int
    """Of the next message."""
    first: int = 0
    """The first offset that the log held."""
    end: int = 0
    """The offset of the next message that would be stored."""


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
            BadRequestError: `where` is something else.
            UnknownPartitionError, UnknownGroupError: the queue has no such partition or group.
            UnavailableError: a partition had no broker in time.
        """
        name, place = _where(where)
        asked: object = place
        if isinstance(place, dict):
            wanted = await self._owners.checked(place if partitions is None else partitions)
            if missing := [each for each in wanted if each not in place]:
                raise BadRequestError(
                    f"positions: no offset for partition {missing[0]}; give it one"
                )
            asked = {str(partition): at for partition, at in place.items()}
        else:
            wanted = await self._owners.checked(partitions)

        def body(names: list[PartitionId]) -> dict[str, object]:
            return {name: asked, "partitions": [str(each) for each in names]}

        found = await self._owners.ask_each("POST", "/positions", wanted, body, PositionResult)
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
            UnknownPartitionError: the queue does not have it.
            UnavailableError: the partition had no broker in time.
            RuntimeError: the reader was closed meanwhile.
        """
        at, epoch = _place(start)
        if stop is None:
            stop = (await self.positions("latest", [partition]))[partition].offset
        elif _place(stop)[0] < at:
            raise BadRequestError(
                f"partition {partition}: asked to read from {at} to {_place(stop)[0]}; expected "
                "an end that is not below the start"
            )
        end, end_epoch = _place(stop)
        await self._owners.checked([partition])
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

    def _fetch(
        self, partition: PartitionId, at: int, epoch: int, end: int
    ) -> asyncio.Task[Entries]:
        query = {"from": at, "to": end, "max_bytes": self._fetch_bytes}
        query["append_broker_epoch"] = epoch
        path = f"/partitions/{partition}/entries"

        async def fetch(url: str) -> Entries:
            return wire.decode(await self._owners.session.fetch(url, path, query))

        async def run() -> Entries:
            return await self._owners.at_owner(partition, fetch)

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
        for each in values:
            if not isinstance(each, LogPosition):
                got = type(each).__name__
                raise SettingsError(f"positions: got {got}, expected a LogPosition")
        wanted = await self._owners.checked(positions)
        path = f"/groups/{quoted(group, 'group')}/cursors"

        def body(names: list[PartitionId]) -> dict[str, object]:
            return {
                "positions": {
                    str(name): {
                        "offset": positions[name].offset,
                        "append_broker_epoch": positions[name].append_broker_epoch,
                    }
                    for name in names
                }
            }

        found = await self._owners.ask_each("POST", path, wanted, body, CursorResult)
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
        places = {partition: _place(each)[0] for partition, each in offsets.items()}
        wanted = await self._owners.checked(places)

        def body(names: list[PartitionId]) -> dict[str, object]:
            return {"offsets": {str(each): places[each] for each in names}}

        found = await self._call_pin("PUT", name, wanted, body)
        return {each: given("log", "offset", found[each].offset) for each in wanted}

    async def unpin(self, name: str) -> None:
        """Let go of what a pin holds, in every partition; one that is not there is no error."""
        check_path_argument("name", name)
        wanted = await self._owners.checked(None)

        def body(names: list[PartitionId]) -> dict[str, object]:
            return {"partitions": [str(each) for each in names]}

        await self._call_pin("DELETE", name, wanted, body)

    async def _call_pin(
        self,
        method: str,
        name: str,
        partitions: list[PartitionId],
        body: Callable[[list[PartitionId]], dict[str, object]],
    ) -> Mapping[PartitionId, PinResult]:
        async def call(number: int) -> dict[PartitionId, PinResult]:
            return await self._owners.ask_each(
                method,
                f"/pins/{quoted(name, 'pin')}",
                partitions,
                lambda names: {**body(names), "number": number},
                PinResult,
            )

        return await self._pin_calls.make(name, call)


def _where(where: object) -> tuple[str, str | int | dict[PartitionId, int]]:
    """Return what the call asks for, as the name of its field and its value."""
    if isinstance(where, str):
        if where in ("earliest", "latest"):
            return "to", where
    elif (
        isinstance(where, Mapping)
        and len(where) == 1
        and where.keys() <= {"at_ms", "group", "offsets"}
    ):
        name, place = next(iter(where.items()))
        return name, _checked_place(name, place)
    raise BadRequestError(
        f"positions: got {excerpt(repr(where))}; expected earliest, latest, or one of at_ms, "
        "group and offsets"
    )


def _checked_place(name: str, place: object) -> str | int | dict[PartitionId, int]:
    if name == "offsets":
        offsets = check_by_partition(name, place)
        return {each: whole(name, at, 0, MAX_INTEGER) for each, at in offsets.items()}
    if name == "at_ms":
        return whole(name, place, -MAX_INTEGER, MAX_INTEGER)
    check_names({name: place}, needed=(name,))
    return str(place)


def _place(place: int | LogPosition) -> tuple[int, int]:
    """Return the offset, and the append broker epoch below it; 0: not known."""
    if isinstance(place, LogPosition):
        return place.offset, place.append_broker_epoch
    return whole("offset", place, 0, MAX_INTEGER), 0


def _position(partition: PartitionId, answer: PositionResult) -> LogPosition:
    return LogPosition(
        partition,
        given("log", "append_broker_epoch", answer.append_broker_epoch),
        given("log", "offset", answer.offset),
        given("log", "first", answer.first),
        given("log", "end", answer.end),
    )


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
