"""What one flow asks of its broker: acks, gathered for a turn of the event loop, nacks, seeks."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from partq.client.consume.assignment.assigned_partition import AssignedPartition
from partq.client.consume.offsets import join_ranges
from partq.client.consumer_stats import Tally
from partq.client.transport.positions import SeekPlace
from partq.core.dead_letters import LetterNote
from partq.core.model import PartitionId
from partq.errors import FencedError, PartqError, UnavailableError
from partq.wire.frames import Frame, Range, Seek

T = TypeVar("T")

MAX_RANGES = 10_000
"""The most ranges in a frame: far below what a frame's header may hold."""


class _OpenAck:
    """What goes into the next Ack frame of a partition."""

    __slots__ = ("assigned", "delivery", "future", "ranges", "upto")

    def __init__(self, assigned: AssignedPartition, delivery: int) -> None:
        self.assigned = assigned
        self.delivery = delivery
        self.upto = -1
        self.ranges: list[Range] = []
        self.future: asyncio.Future[None] = quiet_future()


class _SentAck(NamedTuple):
    """An ack, a nack or a sign of progress without an answer."""

    future: asyncio.Future[None]
    is_ack: bool
    message_count: int
    """How many it finishes, or gives back."""
    sent_at: float
    undo: Callable[[], None] | None
    """Called when it is refused."""


class AckBook:
    """Joins acks to frames and matches the answers, also those to nacks.

    One future stands for all acks of a frame, and is done when they are stored.
    """

    def __init__(self, send: Callable[[Frame], bool], tally: Tally) -> None:
        self._send = send
        self._tally = tally
        self._gathering: dict[PartitionId, _OpenAck] = {}
        self._unconfirmed: dict[int, _SentAck] = {}
        self._next_request = 1
        self._is_armed = False

    def add(
        self, assigned: AssignedPartition, delivery: int, upto: int, ranges: Sequence[Range]
    ) -> asyncio.Future[None]:
        """Send an ack with the others of this turn; the future is done when it is stored.

        It fails with `FencedError` when the partition's token has ended, before or meanwhile.
        """
        if assigned.is_ended:
            future: asyncio.Future[None] = quiet_future()
            future.set_exception(fenced(assigned))
            return future
        if upto < 0 and not ranges:  # of a batch that was given back as a whole
            future = quiet_future()
            future.set_result(None)
            return future
        gathering = self._gathering.get(assigned.partition)
        if gathering is not None and (
            gathering.assigned is not assigned
            or gathering.delivery != delivery
            or len(gathering.ranges) + len(ranges) > MAX_RANGES
        ):
            self._send_one(self._gathering.pop(assigned.partition))
            gathering = None
        if gathering is None:
            gathering = self._gathering[assigned.partition] = _OpenAck(assigned, delivery)
            if not self._is_armed:
                self._is_armed = True
                asyncio.get_running_loop().call_soon(self.send_all)
        gathering.upto = max(gathering.upto, upto)
        if ranges and gathering.ranges and gathering.ranges[-1][1] == ranges[0][0]:
            gathering.ranges[-1] = (gathering.ranges[-1][0], ranges[0][1])
            ranges = ranges[1:]
        gathering.ranges.extend(ranges)
        return gathering.future

    def add_with_state(
        self, assigned: AssignedPartition, delivery: int, offset: int, key: str, state: bytes | None
    ) -> asyncio.Future[None]:
        """Send an ack of one message with the state of its key, behind the acks so far.

        Alone, so that a state which is refused holds up no other message. The message then counts
        as not acknowledged, and may be given back.
        """
        future: asyncio.Future[None] = quiet_future()
        self.send_all()
        self._ask(
            future,
            assigned,
            lambda request: assigned.ack_with_state(request, delivery, offset, key, state),
            is_ack=True,
            undo=lambda: assigned.note_refused(offset),
        )
        return future

    def nack(
        self,
        assigned: AssignedPartition,
        delivery: int,
        ranges: list[Range],
        delay_ms: int,
        note: LetterNote,
    ) -> asyncio.Future[None]:
        """Send a nack, behind the acks so far; the future is done when its count is stored.

        Raises:
            ConflictError: all of it was acknowledged; nothing is sent.
        """
        future: asyncio.Future[None] = quiet_future()
        self.send_all()
        if not assigned.is_ended:
            assigned.check_unacknowledged("dead_letter" if note.is_asked_for else "nack", ranges)
        self._ask(
            future,
            assigned,
            lambda request: assigned.nack(request, delivery, ranges, delay_ms, note),
            is_ack=False,
        )
        return future

    def extend(
        self, assigned: AssignedPartition, delivery: int, ranges: list[Range]
    ) -> asyncio.Future[None]:
        """Say that messages are in progress; the future is done when their time starts again."""
        future: asyncio.Future[None] = quiet_future()
        self._ask(
            future,
            assigned,
            lambda request: (assigned.progress(request, delivery, ranges), 0),
            is_ack=False,
        )
        return future

    def send_all(self) -> None:
        """Send what was gathered."""
        self._is_armed = False
        gathered, self._gathering = self._gathering, {}
        for gathering in gathered.values():
            self._send_one(gathering)

    def confirmed(self, request: int) -> None:
        """Take the broker's word that an ack is stored."""
        sent = self._unconfirmed.pop(request, None)
        if sent is None:
            return
        if sent.is_ack:
            self._tally.acked(sent.message_count, sent.sent_at)
        else:
            self._tally.nacked(sent.message_count)
        if not sent.future.done():
            sent.future.set_result(None)

    def refused(self, request: int, error: PartqError) -> None:
        """Take a refusal: the messages of that ack are redelivered, here or elsewhere."""
        sent = self._unconfirmed.pop(request, None)
        if sent is None:
            return
        self._tally.refused(sent.message_count)
        if sent.undo is not None:
            sent.undo()
        if not sent.future.done():
            sent.future.set_exception(error)

    def lost(self, url: str) -> FencedError:
        """Fail what has no answer; the connection is lost, and with it every token.

        Returns the error of it.
        """
        error = FencedError(
            f"{url}: the connection was lost before the ack was confirmed; its messages "
            "are redelivered, here or to another member: stop working on them"
        )
        unconfirmed = [gathering.future for gathering in self._gathering.values()]
        unconfirmed.extend(sent.future for sent in self._unconfirmed.values())
        self._tally.refused(sum(sent.message_count for sent in self._unconfirmed.values()))
        self._gathering.clear()
        self._unconfirmed.clear()
        for future in unconfirmed:
            if not future.done():
                future.set_exception(error)
        return error

    def _send_one(self, gathering: _OpenAck) -> None:
        ranges = join_ranges(gathering.ranges)
        self._ask(
            gathering.future,
            gathering.assigned,
            lambda request: gathering.assigned.ack(
                request, gathering.delivery, gathering.upto, ranges
            ),
            is_ack=True,
        )

    def _ask(
        self,
        future: asyncio.Future[None],
        assigned: AssignedPartition,
        frame_of: Callable[[int], tuple[Frame, int]],
        *,
        is_ack: bool,
        undo: Callable[[], None] | None = None,
    ) -> None:
        if not assigned.is_ended:
            request = self._next_request
            self._next_request += 1
            frame, count = frame_of(request)
            self._unconfirmed[request] = _SentAck(future, is_ack, count, self._tally.now(), undo)
            if self._send(frame):
                return
            del self._unconfirmed[request]
        future.set_exception(fenced(assigned))


class SeekBook:
    """Matches the answers to seeks."""

    def __init__(self, url: str, send: Callable[[Frame], bool]) -> None:
        self._url = url
        self._send = send
        self._open: dict[int, tuple[AssignedPartition, asyncio.Future[int]]] = {}
        self._next_request = 1

    def begin(self, assigned: AssignedPartition, place: SeekPlace) -> asyncio.Future[int]:
        """Send a seek; the future is done when it is answered, and says where the cursor is."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        request = self._next_request
        self._next_request += 1
        if assigned.is_ended:
            future.set_exception(fenced(assigned))
        elif self._send(
            Seek(
                request,
                *assigned.partition,
                *assigned.token,
                place.to,
                place.at_ms,
                place.offset,
                place.append_broker_epoch,
            )
        ):
            self._open[request] = assigned, future
        else:
            future.set_exception(self._lost(assigned, "nothing was moved"))
        return future

    def has(self, assigned: AssignedPartition) -> bool:
        """Say whether a seek of an assignment has no answer."""
        return any(each is assigned for each, _ in self._open.values())

    def answered(self, request: int, answer: int | PartqError) -> AssignedPartition | None:
        """Take the answer: where the cursor is, or why it was not moved; return whose it is."""
        assigned, future = self._open.pop(request, (None, None))
        if future is not None and not future.done():
            if isinstance(answer, int):
                future.set_result(answer)
            else:
                future.set_exception(answer)
        return assigned

    def lose_all(self) -> list[AssignedPartition]:
        """Fail what has no answer, as the connection is lost; return whose seeks those were."""
        lost, self._open = self._open, {}
        for assigned, future in lost.values():
            if not future.done():
                future.set_exception(self._lost(assigned, "the cursor may have moved, or not"))
        return [assigned for assigned, _ in lost.values()]

    def _lost(self, assigned: AssignedPartition, outcome: str) -> UnavailableError:
        return UnavailableError(
            f"{self._url}: the connection was lost before the seek in partition "
            f"{assigned.partition} was answered; {outcome}: seek again once it is assigned"
        )


def fenced(assigned: AssignedPartition) -> FencedError:
    """Return the error of an ack that comes too late."""
    return FencedError(
        f"{assigned}: has ended for this consumer; stop working on its messages, they are "
        "redelivered here or to another member"
    )


def quiet_future() -> asyncio.Future[T]:
    """Return a future that does not complain when nobody looks at its exception."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future
