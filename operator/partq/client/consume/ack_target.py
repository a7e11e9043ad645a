"""What messages need of the assignment that they come from, and it of what holds them."""

import asyncio
from collections.abc import Collection, Container, Sequence
from typing import Protocol

from partq.client.hooks.serializers import ValueDeserializer
from partq.core.dead_letters import LetterNote
from partq.core.model import PartitionId
from partq.wire.frames import Range


class AckTarget(Protocol):
    """Takes the acks and nacks of one partition, which it holds for this consumer."""

    @property
    def queue(self) -> str:
        """The queue that the messages come from."""

    @property
    def partition(self) -> PartitionId:
        """The partition that the messages come from."""

    value_deserializer: ValueDeserializer | None
    """What makes the values of the messages; None: they are bytes."""
    is_ended: bool
    """Whether the partition is not held any more under this token."""
    is_paused: bool
    """Whether the application has paused the partition."""

    @property
    def may_hand_out(self) -> bool:
        """Whether messages of the partition may be handed out now, but for `held_up`."""

    @property
    def held_up(self) -> Collection[int]:
        """The slots of which nothing may be handed out now."""

    def set_full(self, is_full: bool) -> None:
        """Have no further message of the partition taken while this is so."""

    def pop_rewound(self) -> int | None:
        """Return the offset that the partition stepped back to since this was asked last.

        None: it did not. Messages from there on that were taken before are redelivered.
        """

    @property
    def is_sought(self) -> bool:
        """Whether a seek of this consumer has ended its right to the partition."""

    store: "MessageStore | None"
    """What holds messages of the partition that were taken and not handed out; None: nothing."""

    def add_ack(self, delivery: int, ranges: Sequence[Range]) -> asyncio.Future[None]:
        """Acknowledge messages."""

    def add_ack_with_state(
        self, delivery: int, offset: int, key: str, state: bytes | None
    ) -> asyncio.Future[None]:
        """Acknowledge a message, with the state that its key has from then on."""

    def read_state(self, key: str) -> asyncio.Future[bytes | None]:
        """Return a future of the state of a key, as the acks so far have left it."""

    def add_cumulative_ack(self, delivery: int, upto: int) -> asyncio.Future[None]:
        """Acknowledge everything that was handed out below `upto`.

        Raises:
            BadRequestError: the group's order knows no such acks; nothing is sent.
        """

    def add_nack(
        self,
        delivery: int,
        ranges: list[Range],
        delay_ms: int,
        note: LetterNote,
        slots: Collection[int],
    ) -> asyncio.Future[None]:
        """Give messages back that the application has begun, with what it says of them.

        `slots`: those of the messages; empty: they are not known.
        """

    def add_progress(self, delivery: int, ranges: list[Range]) -> asyncio.Future[None]:
        """Say that messages are in progress: the time for their acks starts again."""


class MessageStore(Protocol):
    """Holds messages that were taken, until the application gets them."""

    def give_back(self, target: AckTarget, slots: Container[int]) -> list[int]:
        """Forget the messages of some slots of a partition; return their offsets."""

    def look_again(self) -> None:
        """Note that messages whose slots were held up may be handed out."""
