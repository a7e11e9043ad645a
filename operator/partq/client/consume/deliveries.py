"""What a consumer hands to the application."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from typing import Any, Final, overload

from partq.client.consume.ack_target import AckTarget
from partq.client.consume.offsets import join_ranges, ranges_of
from partq.client.hooks.serializers import ValueDeserializer, deserialized
from partq.core.dead_letters import LetterNote
from partq.core.key_states import check_key, check_state
from partq.core.model import BrokerEpoch, Cause, Epoch, Offset, PartitionId, Token
from partq.excerpts import counted
from partq.wire.batch import Message
from partq.wire.frames import Deliver, Range


class Batch(Sequence[Message]):
    """Messages that were stored together, under one token. A sequence of `Message`.

    The value of each is bytes, as it is stored, also with a `value_deserializer`: `deliveries`
    returns the messages with what that makes of them.
    """

    __slots__ = (
        "_causes",
        "_frame",
        "_nacked",
        "_redeliveries",
        "_slots",
        "_stated",
        "_target",
        "cause",
        "messages",
        "offsets",
        "partition",
    )

    def __init__(
        self,
        target: AckTarget,
        frame: Deliver,
        messages: list[Message],
        offsets: Sequence[int],
        causes: bytes = b"",
        slots: Sequence[int] | None = None,
    ) -> None:
        self._target = target
        self._frame = frame
        self.partition: PartitionId = target.partition
        self.messages = messages
        self.offsets = offsets
        """The offset of each message; they grow, with gaps where some were acknowledged before."""
        self._causes = causes
        """Of each message, where they differ."""
        self._slots = slots
        """Of all messages of the stored batch; None: nobody asks."""
        self.cause = cause_of(next(filter(None, causes), frame.cause) if causes else frame.cause)
        """Why these messages are redelivered; `Cause.NONE` for a first delivery. In a group of
        order Key some may be redelivered beside others: then that of the first such message."""
        self._redeliveries = dict(frame.redeliveries)
        self._nacked: set[int] = set()
        """Offsets that were given back: an ack of the whole leaves them out."""
        self._stated: set[int] = set()
        """Offsets that were acknowledged with a state: should that be refused, an ack of the whole
        must not take its place."""

    def __repr__(self) -> str:
        return (
            f"Batch({self.partition}, offsets {self.offsets[0]} to {self.offsets[-1]}, "
            f"{counted(len(self.messages), 'message')}, cause {self.cause})"
        )

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self.messages[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @property
    def is_sought(self) -> bool:
        """Whether a seek of the consumer ended its right to them: an ack of them is refused."""
        return self._target.is_sought

    @property
    def queue(self) -> str:
        """The queue that the messages are of."""
        return self._target.queue

    @property
    def target(self) -> AckTarget:
        """What takes their acks: for the consumer itself."""
        return self._target

    @property
    def value_deserializer(self) -> ValueDeserializer | None:
        """What makes the values of `deliveries`; None: they are bytes."""
        return self._target.value_deserializer

    @property
    def publish_time_ms(self) -> int:
        """When the messages were stored, in unix milliseconds of the store's clock."""
        return self._frame.at_ms

    @property
    def append_broker_epoch(self) -> int:
        """The broker epoch under which the messages were stored.

        Generation, this and the offset name a message for good: an offset comes twice only where
        the store has lost what was written last, and never under the same broker epoch.
        """
        return self._frame.append_broker_epoch

    @property
    def producer(self) -> str | None:
        """The id of the producer that published the messages, given or generated.

        None: they were published without numbers, or stored or delivered by a broker of an earlier
        version.
        """
        return self._frame.producer or None

    def sequence(self, index: int) -> int | None:
        """Return the producer's number of one message, from 0; None where `producer` is None.

        Numbers count the messages of a producer in a partition; over plain HTTP those of a key.
        """
        if self._frame.number < 0:
            return None
        return self._frame.number + self.offsets[index] - self._frame.first_offset

    def token(self, index: int) -> Token:
        """Return the right to process one message; those of a key never go down."""
        return Token(
            self.partition.generation,
            BrokerEpoch(self._frame.broker_epoch),
            Epoch(self._frame.epoch),
            Offset(self.offsets[index]),
        )

    def is_given_back(self, offset: int) -> bool:
        """Say whether a nack has named the message at an offset."""
        return offset in self._nacked

    def is_finished(self, offset: int) -> bool:
        """Say whether the message at an offset was given back, or acknowledged with a state."""
        return offset in self._nacked or offset in self._stated

    def redeliveries(self, index: int) -> int:
        """Return how often a message was delivered again for a reason that counts against it."""
        return self._redeliveries.get(self.offsets[index], 0)

    def cause_at(self, index: int) -> Cause:
        """Return why one message is redelivered."""
        return cause_of(self._causes[index]) if self._causes else self.cause

    def slot(self, index: int) -> int | None:
        """Return the slot of the key of one message; None: it is not known."""
        if self._slots is None:
            return None
        return self._slots[self.offsets[index] - self._frame.first_offset]

    def _slots_of(self, offsets: Sequence[int]) -> Collection[int]:
        """Return the slots of the messages at some offsets; empty: they are not known."""
        slots, first = self._slots, self._frame.first_offset
        return () if slots is None else {slots[offset - first] for offset in offsets}

    def part(self, kept: slice) -> "Batch":
        """Return a batch of some of the messages."""
        return self._with(self.messages[kept], self.offsets[kept], self._causes[kept])

    def only(self, kept: Sequence[int]) -> "Batch":
        """Return a batch of the messages at some places."""
        return self._with(
            [self.messages[at] for at in kept],
            [self.offsets[at] for at in kept],
            bytes([self._causes[at] for at in kept]) if self._causes else b"",
        )

    def _with(self, messages: list[Message], offsets: Sequence[int], causes: bytes) -> "Batch":
        return Batch(self._target, self._frame, messages, offsets, causes, self._slots)

    def deliveries(self) -> "list[Delivery]":
        """Return the messages one by one, each with its token."""
        return [Delivery(self, index) for index in range(len(self.messages))]

    def ack(self) -> asyncio.Future[None]:
        """Acknowledge all messages but those that were given back, or acknowledged with a state.

        The future ends with the broker's answer. Applications use `Consumer.ack`.
        """
        if not self._nacked and not self._stated:
            return self._ack(ranges_of(self.offsets))
        return self._ack(ranges_of([each for each in self.offsets if not self.is_finished(each)]))

    def ack_one(self, offset: int) -> asyncio.Future[None]:
        """Acknowledge the message at one offset."""
        return self._ack([(offset, offset + 1)])

    def ack_with_state(self, index: int, state: bytes | None) -> asyncio.Future[None]:
        """Acknowledge one message, and leave the state of its key; as `Consumer.ack`.

        Raises:
            BadRequestError: it has no key, or the state is too large; nothing has happened.
            UnavailableError: the broker keeps no states; nothing has happened.
        """
        offset, key = self.offsets[index], self.messages[index].key
        check_state("ack", key, state)
        future = self._target.add_ack_with_state(self._frame.delivery, offset, key or "", state)
        self._stated.add(offset)
        return future

    def read_state(self, index: int) -> asyncio.Future[bytes | None]:
        """Return a future of the state of the key of one message.

        Raises:
            BadRequestError: it has no key.
            UnavailableError: the broker keeps no states.
        """
        key = self.messages[index].key
        check_key("state", key)
        return self._target.read_state(key or "")

    def ack_upto(self, offset: int) -> asyncio.Future[None]:
        """Acknowledge everything that was handed out of the partition up to and with one offset.

        Raises:
            BadRequestError: the group's order is Key; nothing is sent.
        """
        return self._target.add_cumulative_ack(self._frame.delivery, offset + 1)

    def give_back(
        self, offsets: Sequence[int], delay_ms: int, note: LetterNote
    ) -> asyncio.Future[None]:
        """Give messages back; applications use `Consumer.nack` and `Consumer.dead_letter`.

        `delay_ms`: in milliseconds; -1: as the group's rules say. `note`: why, and whether they
        become dead letters.

        Raises:
            UnavailableError: the broker makes no dead letters; nothing has happened.
            ConflictError: all of them were acknowledged; nothing has happened.
        """
        ranges = join_ranges([(offset, offset + 1) for offset in offsets])
        future = self._target.add_nack(
            self._frame.delivery, ranges, delay_ms, note, self._slots_of(offsets)
        )
        self._nacked.update(offsets)
        return future

    def extend(self, offsets: Sequence[int]) -> asyncio.Future[None]:
        """Have the time for acks start again; applications use `Consumer.in_progress`.

        Raises:
            UnavailableError: the broker does not know that; nothing has happened.
        """
        return self._target.add_progress(self._frame.delivery, ranges_of(offsets))

    def _ack(self, ranges: list[Range]) -> asyncio.Future[None]:
        return self._target.add_ack(self._frame.delivery, ranges)


class Unchanged(Enum):
    """In the place of a state that an ack leaves as it is."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED

_UNREAD = object()
"""In the place of a value that was not asked for."""


class Delivery:
    """One message, with the right to process it."""

    __slots__ = ("_index", "_message", "_value", "batch")

    def __init__(self, batch: Batch, index: int) -> None:
        self.batch = batch
        self._index = index
        self._message = batch.messages[index]
        self._value: object = _UNREAD

    @property
    def key(self) -> str | None:
        """The partition key; None: it was published without one."""
        return self._message.key

    @property
    def value(self) -> Any:
        """The content: what `value_deserializer` makes of it, once; without one, the bytes.

        Raises:
            DeserializationError: that has failed; the message is as any other, beside this.
        """
        if self._value is _UNREAD:
            data, deserialize = self._message.value, self.batch.value_deserializer
            self._value = data if deserialize is None else deserialized(deserialize, data, self)
        return self._value

    @property
    def raw_value(self) -> bytes:
        """The content as it is stored."""
        return self._message.value

    @property
    def headers(self) -> dict[str, str]:
        """The headers; empty for a message without headers."""
        return self._message.headers or {}

    @property
    def event_time_ms(self) -> int:
        """The event time that the producer gave, in unix milliseconds; 0: it gave none."""
        return self._message.event_time_ms

    @property
    def publish_time_ms(self) -> int:
        """When the message was stored, in unix milliseconds of the store's clock."""
        return self.batch.publish_time_ms

    @property
    def queue(self) -> str:
        """The queue that it is of."""
        return self.batch.queue

    @property
    def partition(self) -> PartitionId:
        """The partition that it is stored in."""
        return self.batch.partition

    @property
    def offset(self) -> Offset:
        """Its place in the partition, from 0."""
        return Offset(self.batch.offsets[self._index])

    @property
    def token(self) -> Token:
        """The right to process it; a sink that remembers the highest one refuses older writers."""
        return self.batch.token(self._index)

    @property
    def producer(self) -> str | None:
        """The id of its producer, given or generated; None: unknown, as of its batch."""
        return self.batch.producer

    @property
    def sequence(self) -> int | None:
        """Its producer's number for it, from 0; None: unknown, as `Batch.sequence`."""
        return self.batch.sequence(self._index)

    @property
    def append_broker_epoch(self) -> int:
        """The broker epoch under which it was stored, as of its batch."""
        return self.batch.append_broker_epoch

    @property
    def cause(self) -> Cause:
        """Why it is redelivered; `Cause.NONE` for a first delivery."""
        return self.batch.cause_at(self._index)

    @property
    def slot(self) -> int | None:
        """The slot of its key; None: it is not known. For the consumer itself."""
        return self.batch.slot(self._index)

    @property
    def is_redelivered(self) -> bool:
        """Whether it may have been processed before."""
        return self.cause is not Cause.NONE

    @property
    def redeliveries(self) -> int:
        """How often it was redelivered for a cause that counts towards the dead-letter queue."""
        return self.batch.redeliveries(self._index)

    def alone(self) -> Batch:
        """Return a batch that has this message only."""
        return self.batch.part(slice(self._index, self._index + 1))

    def ack(self) -> asyncio.Future[None]:
        """Acknowledge it; the future ends with the answer. Applications use `Consumer.ack`."""
        return self.batch.ack_one(self.offset)

    def ack_with_state(self, state: bytes | None) -> asyncio.Future[None]:
        """Acknowledge it and leave the state of its key. Applications use `Consumer.ack`."""
        return self.batch.ack_with_state(self._index, state)

    async def state(self) -> bytes | None:
        """Return the state of its key: what the last ack with a state has left; None: none has.

        In a group whose `nack.order` is Ordered or Key that is of the message of the key before
        this one, as each message of a key is handed out after those before it are done. Acks that
        this consumer has given count, also those that are not stored yet.

        Await it in the event loop of the consumer. In `partq.sync` it is `consumer.state(message)`.

        Raises:
            BadRequestError: it has no key, or the group's `nack.order` is Free.
            FencedError: the partition is not this member's any more: stop working on the message.
            UnavailableError: a broker of the queue is of an earlier version.
        """
        return await asyncio.shield(self.batch.read_state(self._index))

    def __repr__(self) -> str:
        return f"Delivery({self.partition}, offset {self.offset}, key {self.key!r})"


_CAUSES = {cause.value: cause for cause in Cause}


def cause_of(number: int) -> Cause:
    """Return the cause that a frame names by its number."""
    # A broker of a later version may know more reasons; that it is not a first delivery remains.
    return _CAUSES.get(number, Cause.FLOW_LOST)
