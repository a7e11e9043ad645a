"""What an application gets back for what it publishes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, overload

from partq.client.produce.failures import Failures, PublishFuture
from partq.core.layout import Layout
from partq.core.model import Offset, PartitionId
from partq.errors import OutcomeUnknownError, PartqError
from partq.excerpts import counted

UNKNOWN_OFFSET = Offset(-1)
"""The place of a message that is stored, but so long ago that the broker has forgotten where."""


class Position(NamedTuple):
    """Where a message is stored."""

    partition: PartitionId
    """The partition that holds it."""
    offset: Offset
    """Its place in the partition, from 0."""


class MessageResult(Protocol):
    """Takes the fate of messages that follow each other in one partition."""

    def stored(self, partition: PartitionId, offset: int, count: int) -> None:
        """Learn that the next `count` messages are stored from `offset` on."""

    def failed(self, partition: PartitionId, error: PartqError, count: int) -> None:
        """Learn that the next `count` messages have failed."""


class SingleResult:
    """Of one message."""

    __slots__ = ("future",)

    def __init__(self, failures: Failures) -> None:
        self.future: PublishFuture[Position] = PublishFuture(failures)

    def stored(self, partition: PartitionId, offset: int, count: int) -> None:
        """Fulfil the future."""
        assert count == 1  # noqa: S101  a result of one message is never split
        if not self.future.done():
            self.future.set_result(Position(partition, Offset(offset)))

    def failed(self, partition: PartitionId, error: PartqError, count: int) -> None:
        """Fail the future."""
        self.future.fail(error, count)


class Positions(Sequence[Position]):
    """Where the messages of one list are stored, in the list's order.

    Made when asked for: most applications want to know *that*, not *where*.
    """

    def __init__(
        self, layout: Layout, slots: Sequence[int], runs: dict[PartitionId, list[tuple[int, int]]]
    ) -> None:
        self._layout = layout
        self._slots = slots
        self._runs = runs
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
        partitions = ", ".join(map(str, sorted(self._runs)))
        return f"Positions({counted(len(self), 'message')} in partitions {partitions or 'none'})"

    def _make(self) -> Iterator[Position]:
        offsets = {partition: _expand(runs) for partition, runs in self._runs.items()}
        for slot in self._slots:
            partition = self._layout.partition_of(slot)
            yield Position(partition, next(offsets[partition]))


def _expand(runs: list[tuple[int, int]]) -> Iterator[Offset]:
    for offset, count in runs:
        for step in range(count):
            yield Offset(offset + step) if offset >= 0 else UNKNOWN_OFFSET


class ListResult:
    """Of a list of messages: done when each of them has an answer."""

    def __init__(self, layout: Layout, slots: Sequence[int], failures: Failures) -> None:
        self.future: PublishFuture[Positions] = PublishFuture(failures)
        self._layout = layout
        self._slots = slots
        self._open_count = len(slots)
        self._failed_count = 0
        self._error: PartqError | None = None
        self._runs: dict[PartitionId, list[tuple[int, int]]] = {}
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

    def _resolve(self, count: int) -> None:
        self._open_count -= count
        if self._open_count:
            return
        if self._error is None:
            if not self.future.done():
                self.future.set_result(Positions(self._layout, self._slots, self._runs))
            return
        stored_count = len(self._slots) - self._failed_count
        error = type(self._error)(
            f"{self._failed_count} of {len(self._slots)} messages failed, "
            f"{counted(stored_count, 'is', 'are')} stored; {self._error.message}",
            retry_after_s=self._error.retry_after_s,
        )
        self.future.fail(error, self._failed_count)
