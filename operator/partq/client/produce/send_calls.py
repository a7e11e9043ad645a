"""The send calls of an open producer: from messages to the senders of their partitions."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from partq.client.hooks.serializers import ValueSerializer
from partq.client.produce.buffer_pool import BufferPool
from partq.client.produce.deterministic.stored_messages import StoredMessages
from partq.client.produce.failures import Failures
from partq.client.produce.interceptors import ProducerInterceptors, intercepted
from partq.client.produce.message_encoding import (
    all_with_bytes,
    encode_checked,
    first_wrong,
    with_bytes,
)
from partq.client.produce.partitioner import Partitioner
from partq.client.produce.results import (
    UNKNOWN_OFFSET,
    ListResult,
    MessageResult,
    Position,
    Positions,
    SingleResult,
)
from partq.client.produce.sender import Sender
from partq.client.producer_stats import ProducerTally
from partq.client.transport.layout import QueueLayout
from partq.core.hashing import slot_of
from partq.core.model import PartitionId
from partq.core.numbering.message_ids import with_id
from partq.core.numbering.scheduled_ids import AT_ONCE, DueTime
from partq.errors import BadRequestError
from partq.wire.batch import MAX_BATCH_BYTES, Message


class _OrderedMessages(NamedTuple):
    """Messages of one partition in the order of a deterministic producer."""

    order: list[int]
    """The place of each among all of the producer."""
    stored_at: list[PartitionId | None]
    """Where each is stored already; None: it is not."""


class PreparedMessage(NamedTuple):
    """A message of a transaction, which is sent when that ends."""

    message: Message
    """As its interceptors have made it."""
    encoded: bytes
    interceptors: ProducerInterceptors | None

    def give_up(self, error: BaseException) -> None:
        """Let interceptors know that it is not sent, and why."""
        if self.interceptors is not None:
            self.interceptors.resolved(self.message, None, error)


class SendCalls:
    """Encodes messages, waits for room and hands them to the sender.

    Args:
        sender: of the producer.
        partitioner: of the queue; follows the sender's routes.
        max_message_bytes: of the queue.
        buffer_pool: of the sender.
        value_serializer: makes bytes of values; None: they are bytes.
        interceptors: that change messages and learn what becomes of them; None: nobody does.
        failures: that the application has not seen.
        tally: counts messages.
        stored: which messages of a deterministic producer are stored; None: it is another one.
    """

    def __init__(
        self,
        sender: Sender,
        partitioner: Partitioner,
        *,
        max_message_bytes: int,
        buffer_pool: BufferPool,
        value_serializer: ValueSerializer | None,
        interceptors: ProducerInterceptors | None,
        failures: Failures,
        tally: ProducerTally,
        stored: StoredMessages | None,
    ) -> None:
        self.partitioner = partitioner
        self.max_message_bytes = max_message_bytes
        self._sender = sender
        self._buffer_pool = buffer_pool
        self._value_serializer = value_serializer
        self._interceptors = interceptors
        self._failures = failures
        self._tally = tally
        self._stored = stored
        self._order = 0

    def make_due(self) -> None:
        """Let go whatever waits for its batch to be complete."""
        self._sender.make_due()

    def slot_of_key(self, key: str) -> int:
        """Return the slot of a key; raises BadRequestError for an unusable one."""
        given: object = key
        if given is None:
            raise BadRequestError(
                "partition key: got NoneType, expected str: a message without one has no partition"
            )
        return self.partitioner.of_key(key)

    async def send(
        self,
        message: Message,
        ttl_ms: int,
        message_id: str | None = None,
        due: DueTime = AT_ONCE,
    ) -> asyncio.Future[Position]:
        """Take one message, as `Producer.send`."""
        self._check_due(due)
        if message_id is not None:
            message = self._identified(message, message_id)
        if self._interceptors is None:
            return await self._send(message, ttl_ms, message_id, due)
        message = self._interceptors.sent(message)
        with self._interceptors.notifying_failure((message,)):
            return await self._send(message, ttl_ms, message_id, due)

    def _check_due(self, due: DueTime) -> None:
        if due != AT_ONCE and self._stored is not None:
            raise BadRequestError(
                "deliver_at, deliver_after_s: this producer has a producer_id, so its messages are "
                "stored in the order of its calls; use one without"
            )

    def _identified(self, message: Message, message_id: str) -> Message:
        """Return a message with the header that has its id."""
        if self._stored is not None:
            raise BadRequestError(
                "message_id: this producer has a producer_id, so its messages are known by their "
                "numbers; leave one of them out"
            )
        return Message(
            message.key,
            message.value,
            with_id(message.headers, message_id),
            message.event_time_ms,
        )

    async def _send(
        self, message: Message, ttl_ms: int, message_id: str | None, due: DueTime
    ) -> asyncio.Future[Position]:
        """Send one message; what its interceptors know is `message`."""
        slots = self.partitioner
        stored = with_bytes(message, self._value_serializer)
        encoded = encode_checked((stored,), self.max_message_bytes)
        if message.key is not None:
            slot = slots.of_key(message.key)
        elif message_id is not None and self._sender.knows_ids:
            slot = slot_of(message_id)
        else:
            slot = slots.keyless()
        if self._stored is not None:
            self._stored.check_sent((slot,))
        if not self._buffer_pool.try_take(1, len(encoded[0])):
            await self._reserve(encoded)
        self._failures.taken(1)
        result = SingleResult(self._failures)
        partition = slots.partition_of(slot)
        told = intercepted(result, self._interceptors, {partition: (message,)})
        if message_id is not None or due != AT_ONCE:
            alone = (partition, encoded, (slot,), told, ttl_ms)
            self._sender.add_whole(*alone, message_id=message_id, due=due)
        elif self._stored is None:
            self._sender.add(partition, encoded, (slot,), told, ttl_ms)
        else:
            self._add_placed(partition, encoded, (slot,), told, ttl_ms, self._placed((slot,)))
        return result.future

    async def send_many(
        self, messages: Sequence[Message], ttl_ms: int, due: DueTime = AT_ONCE
    ) -> asyncio.Future[Positions]:
        """Take messages, as `Producer.send_many`."""
        self._check_due(due)
        if self._interceptors is None:
            return await self._send_many(messages, ttl_ms, due)
        messages = [self._interceptors.sent(each) for each in messages]
        with self._interceptors.notifying_failure(messages):
            return await self._send_many(messages, ttl_ms, due)

    async def _send_many(
        self, sent: Sequence[Message], ttl_ms: int, due: DueTime
    ) -> asyncio.Future[Positions]:
        """Send messages; what their interceptors know are those of `sent`."""
        slots, size = self.partitioner, self.max_message_bytes
        messages = all_with_bytes(sent, self._value_serializer)
        try:
            slots_of_messages = slots.of(messages)
            routes, parts = slots.routes, slots.encode(messages, slots_of_messages, size)
        except BadRequestError as error:
            raise first_wrong(
                error, messages, lambda each: (slots.of([each]), encode_checked([each], size))
            ) from error
        if self._stored is not None:
            self._stored.check_sent(slots_of_messages)
        await self._reserve(*(encoded for _, encoded, _ in parts))
        if slots.routes is not routes:  # slots have moved meanwhile
            parts = slots.encode(messages, slots_of_messages, size)
        self._failures.taken(len(messages))
        result = ListResult(slots.routes, slots_of_messages, self._failures)
        told: MessageResult = result
        if self._interceptors is not None:
            places = {each: part for each, part, _ in slots.sort(sent, slots_of_messages)}
            told = intercepted(result, self._interceptors, places)
        if self._stored is None:
            for partition, encoded, part_slots in parts:
                if due == AT_ONCE:
                    self._sender.add(partition, encoded, part_slots, told, ttl_ms)
                    continue
                for cut in self._sender.cuts(encoded):
                    whole = (partition, encoded[cut], part_slots[cut], told, ttl_ms)
                    self._sender.add_whole(*whole, due=due)
            return result.future
        placed = self._placed(slots_of_messages)
        for partition, encoded, part_slots in parts:
            self._add_placed(partition, encoded, part_slots, told, ttl_ms, placed)
        return result.future

    # ---- transactions ----

    def prepare(self, message: Message, check: Callable[[Message], None]) -> PreparedMessage:
        """Encode a message that is sent later, with others.

        `check`: called with what interceptors have made of it; what it raises is raised.

        Raises: as `Producer.send`; nothing was taken.
        """
        interceptors = self._interceptors
        if interceptors is None:
            return self._prepare(message, check)
        message = interceptors.sent(message)
        with interceptors.notifying_failure((message,)):
            return self._prepare(message, check)

    def _prepare(self, message: Message, check: Callable[[Message], None]) -> PreparedMessage:
        stored = with_bytes(message, self._value_serializer)
        (encoded,) = encode_checked((stored,), self.max_message_bytes)
        if message.key is not None:
            self.partitioner.of_key(message.key)
        check(message)
        return PreparedMessage(message, encoded, self._interceptors)

    async def send_whole(
        self, prepared: Sequence[PreparedMessage], ttl_ms: int, due: DueTime = AT_ONCE
    ) -> asyncio.Future[Positions]:
        """Take messages of one key, one or more, that are stored all or none."""
        if self._interceptors is None:
            return await self._send_whole(prepared, ttl_ms, due)
        with self._interceptors.notifying_failure([each.message for each in prepared]):
            return await self._send_whole(prepared, ttl_ms, due)

    async def _send_whole(
        self, prepared: Sequence[PreparedMessage], ttl_ms: int, due: DueTime
    ) -> asyncio.Future[Positions]:
        self._check_due(due)
        key = prepared[0].message.key
        slot = self.partitioner.of_key(key or "")
        slots, encoded = [slot] * len(prepared), [each.encoded for each in prepared]
        if self._stored is not None:
            self._stored.check_sent(slots)
        await self._reserve(encoded)
        self._failures.taken(len(prepared))
        partition = self.partitioner.partition_of(slot)
        result = ListResult(self.partitioner.routes, slots, self._failures)
        messages = {partition: [each.message for each in prepared]}
        told = intercepted(result, self._interceptors, messages)
        add = self._sender.add_whole
        if self._stored is None:
            add(partition, encoded, slots, told, ttl_ms, due=due)
        else:
            self._add_placed(partition, encoded, slots, told, ttl_ms, self._placed(slots), add)
        return result.future

    async def _reserve(self, *encoded: Sequence[bytes]) -> None:
        count = sum(map(len, encoded))
        size_bytes = sum(sum(map(len, part)) for part in encoded)
        await self._buffer_pool.take(count, size_bytes)
        if self._sender.error is not None:  # it has ended while the caller was waiting
            self._buffer_pool.give_back(count, size_bytes)
            raise self._sender.error

    # ---- deterministic producers ----

    def _placed(self, slots: Iterable[int]) -> Mapping[PartitionId, _OrderedMessages]:
        """Come to messages of these slots, in their order; return them by partition."""
        assert self._stored is not None  # noqa: S101  asked by its callers
        found: dict[PartitionId, _OrderedMessages] = {}
        for order, slot in enumerate(slots, self._order):
            placed = found.setdefault(self.partitioner.partition_of(slot), _OrderedMessages([], []))
            placed.order.append(order)
            placed.stored_at.append(self._stored.find_stored(slot))
        self._order += sum(len(each.order) for each in found.values())
        return found

    def _add_placed(
        self,
        partition: PartitionId,
        encoded: Sequence[bytes],
        slots: Sequence[int],
        result: MessageResult,
        ttl_ms: int,
        placed: Mapping[PartitionId, _OrderedMessages],
        add: Callable[..., None] | None = None,
    ) -> None:
        """Let the sender have messages of a partition, but for those that are stored."""
        order, stored_at = placed[partition]
        if any(stored_at):
            parts = result.divided(partition, [place or partition for place in stored_at])
            for each, place in zip(encoded, stored_at, strict=True):
                if place is not None:
                    self._buffer_pool.give_back(1, len(each))
                    self._tally.stored(1, None)
                    parts[place].stored(place, UNKNOWN_OFFSET, 1)
            left = [at for at, place in enumerate(stored_at) if place is None]
            if not left:
                return
            encoded, slots = [encoded[at] for at in left], [slots[at] for at in left]
            order, result = [order[at] for at in left], parts[partition]
        (add or self._sender.add)(partition, encoded, slots, result, ttl_ms, order)


def most_bytes(queue_layout: QueueLayout) -> int:
    """Return how large a message of the queue may be, in bytes."""
    return min(queue_layout.max_message_bytes, MAX_BATCH_BYTES)
