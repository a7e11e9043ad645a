"""What an application gets back for what it publishes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, overload

from partq.client.produce.failures import Failures, PublishFuture
from partq.client.produce.slot_routes import SlotRoutes
from partq.core.model import Offset, PartitionId
from partq.core.numbering.scheduled_ids import ScheduledId
from partq.errors import OutcomeUnknownError, PartqError
from partq.excerpts import counted

UNKNOWN_OFFSET = Offset(-1)
"""The place of a message that is stored, but so long ago that the broker has forgotten where."""
KNOWN_ID_OFFSET = Offset(-2)
"""In the place of an offset: the message is not stored, as the id of one before it is the same."""


class Position(NamedTuple):
    """Where a message is stored."""

    partition: PartitionId
    """The partition that holds it."""
    offset: Offset
    """Its place in the partition, from 0; -1: of a duplicate, it is not known, and while it waits
    until it is due it has none."""

    @property
    def is_duplicate(self) -> bool:
        """Whether a message with the same id was there, so that this one was not stored."""
        return False

    @property
    def scheduled(self) -> str | None:
        """The id of a message that waits until it is due, by which it can be cancelled, or None."""
        return None


class DuplicatePosition(Position):
    """Of a message that was not stored, as its id is known."""

    __slots__ = ()

    @property
    def is_duplicate(self) -> bool:
        """Return True."""
        return True


class ScheduledPosition(Position):
    """Of a message that waits until it is due, or has waited."""

    _entry = 0
    _is_known = False

    @classmethod
    def of(cls, partition: PartitionId, entry: int, *, is_known: bool) -> "ScheduledPosition":
        """Return that of an entry; `is_known`: another message with the same id waits there."""
        position = cls(partition, UNKNOWN_OFFSET)
        position._entry, position._is_known = entry, is_known
        return position

    @property
    def is_duplicate(self) -> bool:
        """Return whether it is another message, with the same id."""
        return self._is_known

    @property
    def scheduled(self) -> str:
        """Return the id."""
        return str(ScheduledId(self.partition, self._entry))


def answered_offset(offset: int, *, is_known: bool, entry: int) -> int:
    """Return what a broker has answered of a batch as one number, which `position_of` reads.

    From 0 on an offset; -1: it is not known; -2: the id is known. Of an entry that waits, or has
    waited: -4 less twice its number, and one less if another message with the same id is there.
    """
    if entry:
        return -2 * entry - 4 - is_known
    return KNOWN_ID_OFFSET if is_known else offset


def position_of(partition: PartitionId, offset: int) -> Position:
    """Return what an application learns of a message whose broker has answered."""
    if offset < KNOWN_ID_OFFSET:
        entry, is_known = divmod(-offset - 4, 2)
        return ScheduledPosition.of(partition, entry, is_known=bool(is_known))
    if offset == KNOWN_ID_OFFSET:
        return DuplicatePosition(partition, UNKNOWN_OFFSET)
    return Position(partition, Offset(offset))


class MessageResult(Protocol):
    """Takes the fate of messages that follow each other in one partition."""

    def stored(self, partition: PartitionId, offset: int, count: int) -> None:
        """Learn that the next `count` messages are stored from `offset` on.

        Below 0 it is no offset: `position_of` says what it means, and it is the same for all.
        """

    def failed(self, partition: PartitionId, error: PartqError, count: int) -> None:
        """Learn that the next `count` messages have failed."""

    def divided(
        self, partition: PartitionId, destinations: Sequence[PartitionId]
    ) -> Mapping[PartitionId, "MessageResult"]:
        """Return a result for each partition that the messages of one partition now go to.

        `destinations` are those of all messages of `partition` whose fate is not known, in order.
        """


class SingleResult:
    """Of one message."""

    __slots__ = ("future",)

    def __init__(self, failures: Failures) -> None:
        self.future: PublishFuture[Position] = PublishFuture(failures)

    def stored(self, partition: PartitionId, offset: int, count: int) -> None:
        """Fulfil the future."""
        assert count == 1  # noqa: S101  a result of one message is never split
        if not self.future.done():
            self.future.set_result(position_of(partition, offset))

    def failed(self, partition: PartitionId, error: PartqError, count: int) -> None:
        """Fail the future."""
        self.future.fail(error, count)

    def divided(
        self, partition: PartitionId, destinations: Sequence[PartitionId]
    ) -> Mapping[PartitionId, MessageResult]:
        """Return the same for the message's partition."""
        return dict.fromkeys(destinations, self)


Runs = dict[PartitionId, list[tuple[int, int]]]
"""By partition, in order: the offset of the first of some messages, and how many they are."""
Places = dict[PartitionId, dict[int, Position]]
"""By the partition that a message was first for, and its place among those: where it is stored."""


class Positions(Sequence[Position]):
    """Where the messages of one list are stored, in the list's order.

    Made when asked for: most applications want to know *that*, not *where*.
    """

    def __init__(self, routes: SlotRoutes, slots: Sequence[int], runs: Runs, moved: Places) -> None:
        self._routes = routes
        self._slots = slots
        self._runs = runs
        self._moved = moved
        self._made: list[Position] | None = None

    def __len__(self) -> int:
        return len(self._slots)

    @overload
    def __getitem__(self, index: int) -> Position: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Position]: ...

    def __getitem__(self, index: int | slice) -> Position | Sequence[Position]:
        if self._made is None:
            self._made = list(self._make())
        return self._made[index]

    def __repr__(self) -> str:
        moved = {place.partition for each in self._moved.values() for place in each.values()}
        partitions = ", ".join(map(str, sorted({*self._runs, *moved})))
        return f"Positions({counted(len(self), 'message')} in partitions {partitions or 'none'})"

    def _make(self) -> Iterator[Position]:
        offsets = {partition: _expand(runs) for partition, runs in self._runs.items()}
        counts: Counter[PartitionId] = Counter()
        for slot in self._slots:
            partition = self._routes.partition_of(slot)
            moved = self._moved.get(partition)
            place = None if moved is None else moved.get(counts[partition])
            counts[partition] += 1
            yield position_of(partition, next(offsets[partition])) if place is None else place


def _expand(runs: list[tuple[int, int]]) -> Iterator[Offset]:
    for offset, count in runs:
        for step in range(count):
            yield Offset(offset + step if offset >= 0 else offset)


class ListResult:
    """Of a list of messages: done when each of them has an answer."""

    def __init__(self, routes: SlotRoutes, slots: Sequence[int], failures: Failures) -> None:
        self.future: PublishFuture[Positions] = PublishFuture(failures)
        self._routes = routes
        self._slots = slots
        self._open_count = len(slots)
        self._failed_count = 0
        self._error: PartqError | None = None
        self._runs: Runs = {}
        self._moved: Places = {}
        if not slots:
            self._resolve(0)

    def stored(self, partition: PartitionId, offset: int, count: int) -> None:
        """Count the messages and remember where they are."""
        self._runs.setdefault(partition, []).append((offset, count))
        self._resolve(count)

    def failed(self, partition: PartitionId, error: PartqError, count: int) -> None:
        """Count the messages and remember why; an unknown outcome weighs more than a refusal."""
        if self._error is None or isinstance(error, OutcomeUnknownError):
            self._error = error
        self._failed_count += count
        self._resolve(count)

    def divided(
        self, partition: PartitionId, destinations: Sequence[PartitionId]
    ) -> Mapping[PartitionId, MessageResult]:
        """Return a part for each destination: offsets no longer tell the order of the list."""
        first = sum(count for _, count in self._runs.get(partition, ()))
        return _parts_of(self, partition, range(first, first + len(destinations)), destinations)

    def stored_elsewhere(
        self, partition: PartitionId, numbers: Sequence[int], place: Position
    ) -> None:
        """Learn that messages that were first for `partition` are stored from `place` on.

        `numbers`: of the messages among those that were for it.
        """
        places = self._moved.setdefault(partition, {})
        for step, number in enumerate(numbers):
            is_there = place.offset != UNKNOWN_OFFSET
            places[number] = (
                place._replace(offset=Offset(place.offset + step)) if is_there else place
            )
        self._resolve(len(numbers))

    def _resolve(self, count: int) -> None:
        self._open_count -= count
        if self._open_count:
            return
        if self._error is None:
            if not self.future.done():
                self.future.set_result(
                    Positions(self._routes, self._slots, self._runs, self._moved)
                )
            return
        stored_count = len(self._slots) - self._failed_count
        error = type(self._error)(
            f"{self._failed_count} of {len(self._slots)} messages failed, "
            f"{counted(stored_count, 'is', 'are')} stored; {self._error.message}",
            retry_after_s=self._error.retry_after_s,
        )
        self.future.fail(error, self._failed_count)


class _ListPart:
    """Some messages of a list that were for one partition, and now go to another, or stay."""

    def __init__(self, whole: ListResult, partition: PartitionId, numbers: Sequence[int]) -> None:
        self._whole = whole
        self._partition = partition
        self._numbers = numbers
        self._at = 0

    def _take(self, count: int) -> Sequence[int]:
        taken = self._numbers[self._at : self._at + count]
        self._at += count
        return taken

    def stored(self, partition: PartitionId, offset: int, count: int) -> None:
        """Tell the list where its messages are."""
        place = position_of(partition, offset)
        self._whole.stored_elsewhere(self._partition, self._take(count), place)

    def failed(self, partition: PartitionId, error: PartqError, count: int) -> None:
        """Tell the list why."""
        self._at += count
        self._whole.failed(partition, error, count)

    def divided(
        self, partition: PartitionId, destinations: Sequence[PartitionId]
    ) -> Mapping[PartitionId, MessageResult]:
        """Return smaller parts."""
        rest = self._numbers[self._at :]
        return _parts_of(self._whole, self._partition, rest, destinations)


def _parts_of(
    whole: ListResult,
    partition: PartitionId,
    numbers: Sequence[int],
    destinations: Sequence[PartitionId],
) -> dict[PartitionId, MessageResult]:
    """Return the parts of a list by destination.

    `numbers`: of messages among those of the list that were first for `partition`.
    """
    chosen: dict[PartitionId, list[int]] = {}
    for number, destination in zip(numbers, destinations, strict=True):
        chosen.setdefault(destination, []).append(number)
    return {each: _ListPart(whole, partition, found) for each, found in chosen.items()}
