"""One partition while a flow holds it: its token, and what every kind of assignment does alike.

A message has *begun* when it was handed to the application. Only what has not begun can be given
back.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar, Protocol

from partq.client.consume.ack_target import MessageStore
from partq.client.consume.assignment.delivered_window import DeliveredWindow, FreedCredit
from partq.client.hooks.serializers import ValueDeserializer
from partq.client.transport.positions import SeekPlace
from partq.core.dead_letters import LetterNote
from partq.core.model import Cause, PartitionId
from partq.errors import ConflictError
from partq.wire.frames import Ack, Deliver, Frame, InProgress, Nack, Range


class StatePort(Protocol):
    """What a flow does with states of keys."""

    def read(self, assigned: "AssignedPartition", key: str) -> asyncio.Future[bytes | None]:
        """Return a future of the state of a key."""

    def ack(
        self,
        assigned: "AssignedPartition",
        delivery: int,
        offset: int,
        key: str,
        state: bytes | None,
    ) -> asyncio.Future[None]:
        """Acknowledge a message, with the state of its key."""


class PartitionHolder(Protocol):
    """The flow that holds an assigned partition."""

    @property
    def queue(self) -> str:
        """The queue that it is of."""

    def add_ack(
        self, assigned: "AssignedPartition", delivery: int, upto: int, ranges: Sequence[Range]
    ) -> asyncio.Future[None]:
        """Acknowledge messages below `upto` (unless -1) and in `ranges`."""

    @property
    def states(self) -> "StatePort":
        """What reads states of keys, and sends acks that leave one."""

    def nack(
        self,
        assigned: "AssignedPartition",
        delivery: int,
        ranges: list[Range],
        delay_ms: int,
        note: LetterNote,
        slots: Collection[int] = (),
    ) -> asyncio.Future[None]:
        """Give messages back that the application has begun; `slots`: theirs, if they are known."""

    def extend(
        self, assigned: "AssignedPartition", delivery: int, ranges: list[Range]
    ) -> asyncio.Future[None]:
        """Have the time for the acks of messages start again."""

    def is_valid(self) -> bool:
        """Say whether the broker is proven to be alive."""

    def go_on(self, assigned: "AssignedPartition") -> None:
        """Note that one of the partition's `waits` is over."""

    def give_up(self, assigned: "AssignedPartition", cause: Cause) -> None:
        """End the assignment: another flow has got the partition under a newer token."""

    def pause(self, assigned: "AssignedPartition") -> None:
        """Hand out nothing of the partition until `resume`."""

    def resume(self, assigned: "AssignedPartition") -> None:
        """Hand out messages of the partition again."""

    def check_seeks(self) -> None:
        """Raise `UnavailableError` if the broker does not know seeks."""

    def seek(self, assigned: "AssignedPartition", place: SeekPlace) -> asyncio.Future[int]:
        """Have the group's cursor moved; the future says where it is."""


class AssignedPartition(ABC):
    """The right of one flow to one partition, from `Assigned` to its end."""

    follows_rounds: ClassVar[bool] = False
    """Its token grows with what the broker sends: other members have the partition, too."""

    def __init__(
        self,
        holder: PartitionHolder,
        partition: PartitionId,
        token: tuple[int, int],
        cursor: int,
        value_deserializer: ValueDeserializer | None = None,
    ) -> None:
        self.holder = holder
        self.partition = partition
        self.value_deserializer = value_deserializer
        self.token = token
        """(broker epoch, epoch)"""
        self._delivered_end = cursor
        self.delivery = 0
        """Highest delivery number seen."""
        self.is_ended = False
        self.is_sought = False
        """A seek of the consumer has ended it."""
        self.is_paused = False
        """The application has paused it."""
        self.waits = 0
        """Nacks without an answer that hold up more than their slots, an `on_assigned` under way,
        and a pause: nothing goes out."""
        self.is_full = False
        """Another wait, in which what was taken goes out."""
        self.set_aside: list[DeliveredWindow] = []
        """Windows whose turn came meanwhile."""
        self.store: MessageStore | None = None
        """Where messages are held that were taken and not handed to the application."""

    @property
    def queue(self) -> str:
        """The queue that the partition is of."""
        return self.holder.queue

    @property
    def may_hand_out(self) -> bool:
        """Whether its messages may be handed out now: the same for all that came."""
        return not self.is_ended and self.waits == int(self.is_full) and self.holder.is_valid()

    @property
    def held_up(self) -> Collection[int]:
        """The slots of which nothing may be handed out now, beside others of the partition."""
        return ()

    @abstractmethod
    def hold_back(self, window: DeliveredWindow) -> None:
        """Take the messages out of a window whose slots are held up."""

    def set_full(self, is_full: bool) -> None:
        """Have no further message taken while this is so."""
        if is_full and not self.is_full:
            self.waits += 1
        elif self.is_full and not is_full:
            self.holder.go_on(self)
        self.is_full = is_full

    # ---- what came ----

    @abstractmethod
    def accept(self, frame: Deliver, payload: bytes) -> DeliveredWindow | None:
        """Take a delivery; return the window to hand out, None: there is nothing of it."""

    @property
    @abstractmethod
    def begun_upto(self) -> int:
        """The next offset, in turn, that is handed out."""

    @property
    @abstractmethod
    def has_in_hand(self) -> bool:
        """Whether the application has begun something, and said nothing of it yet."""

    @property
    @abstractmethod
    def in_hand_count(self) -> int:
        """How many messages the application has begun and said nothing of."""

    @property
    @abstractmethod
    def buffered_count(self) -> int:
        """How many messages came and were neither handed out nor dropped."""

    @property
    def kept_bytes(self) -> int:
        """The size of what is kept to be handed out when its turn returns."""
        return 0

    def pop_rewound(self) -> int | None:
        """Return the lowest offset that it stepped back to since the last call; None: to none."""
        return None

    @abstractmethod
    def begun(self) -> list[Range]:
        """Return what was handed out since this was asked for last."""

    def begun_copies(self) -> Iterable[tuple[int, list[Range]]]:
        """Return the same by the number of the delivery that it came with."""
        return [(self.delivery, self.begun())]

    # ---- what is given back ----

    @abstractmethod
    def release(self) -> tuple[Frame | None, FreedCredit]:
        """Give back what has not begun, in a pause; return the frame to send, and the room.

        No frame: everything that came has begun, or the broker asks for the rest.
        """

    @abstractmethod
    def release_last(self) -> Frame | None:
        """Give back what has not begun before the connection is closed."""

    @abstractmethod
    def forget(self) -> FreedCredit:
        """Forget what has not begun; return the room that it had."""

    # ---- what the application says ----

    def add_ack(self, delivery: int, ranges: Sequence[Range]) -> asyncio.Future[None]:
        """Have the holder acknowledge messages; for batches."""
        return self.holder.add_ack(self, delivery, -1, ranges)

    @abstractmethod
    def add_cumulative_ack(self, delivery: int, upto: int) -> asyncio.Future[None]:
        """Have the holder acknowledge all that was handed out below an offset; for batches.

        Raises:
            BadRequestError: the group's order knows no such acks; nothing is sent.
        """

    def add_ack_with_state(
        self, delivery: int, offset: int, key: str, state: bytes | None
    ) -> asyncio.Future[None]:
        """Have the holder acknowledge a message with the state of its key; for batches."""
        return self.holder.states.ack(self, delivery, offset, key, state)

    def read_state(self, key: str) -> asyncio.Future[bytes | None]:
        """Have the holder read the state of a key; for batches."""
        return self.holder.states.read(self, key)

    def add_nack(
        self,
        delivery: int,
        ranges: list[Range],
        delay_ms: int,
        note: LetterNote,
        slots: Collection[int],
    ) -> asyncio.Future[None]:
        """Have the holder give messages back; for batches."""
        return self.holder.nack(self, delivery, ranges, delay_ms, note, slots)

    def add_progress(self, delivery: int, ranges: list[Range]) -> asyncio.Future[None]:
        """Have the holder extend the time of messages; for batches."""
        return self.holder.extend(self, delivery, ranges)

    def progress(self, request: int, delivery: int, ranges: list[Range]) -> InProgress:
        """Return the frame that says of messages that they are in progress."""
        return InProgress(request, *self.partition, *self.token, delivery, ranges)

    def ack(self, request: int, delivery: int, upto: int, ranges: list[Range]) -> tuple[Ack, int]:
        """Return the frame of an ack under this token, and how many messages it finishes."""
        count = self._note_acked(upto, ranges)
        return Ack(request, *self.partition, *self.token, delivery, upto, ranges), count

    def ack_with_state(
        self, request: int, delivery: int, offset: int, key: str, state: bytes | None
    ) -> tuple[Ack, int]:
        """Return the frame of an ack of one message with the state of its key."""
        frame, count = self.ack(request, delivery, -1, [(offset, offset + 1)])
        frame.state_key, frame.state = key, state
        return frame, count

    def nack(
        self, request: int, delivery: int, ranges: list[Range], delay_ms: int, note: LetterNote
    ) -> tuple[Nack, int]:
        """Return the frame of a nack under this token, and how many messages it gives back."""
        count = self._note_nacked(ranges)
        kept_from = self._kept_from()
        frame = Nack(
            request,
            *self.partition,
            *self.token,
            delivery,
            ranges,
            delay_ms,
            note.reason,
            begun=kept_from,
            keeps=kept_from >= 0,
            makes_dead_letters=note.is_asked_for,
            description=note.description,
        )
        return frame, count

    def check_unacknowledged(self, call: str, ranges: list[Range]) -> None:
        """Refuse to give back what the application has acknowledged, each message of it.

        Raises:
            ConflictError: it has; `call` is named.
        """
        if not self._are_acked(ranges):
            return
        first, stop = ranges[0][0], ranges[-1][1]
        offsets = f"offset {first}" if stop - first == 1 else f"offsets {first} to {stop - 1}"
        raise ConflictError(
            f"{call}: {self}, {offsets}: got what was acknowledged before, expected a message "
            "without an ack; nothing has happened, and it is not redelivered: call one of ack, "
            "nack and dead_letter for a message"
        )

    @abstractmethod
    def note_refused(self, offset: int) -> None:
        """Note that the ack of a message was refused: the application still has it."""

    @abstractmethod
    def _note_acked(self, upto: int, ranges: list[Range]) -> int: ...

    @abstractmethod
    def _note_nacked(self, ranges: list[Range]) -> int: ...

    @abstractmethod
    def _are_acked(self, ranges: list[Range]) -> bool: ...

    def _kept_from(self) -> int:
        """Return from where on nothing has begun, and is kept over a nack; -1: nothing is kept."""
        return -1

    def __str__(self) -> str:
        return f"partition {self.partition}, epoch {self.token[1]}"
