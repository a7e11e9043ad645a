"""Publishing messages: batched, numbered, retried in order."""

import asyncio
import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Self, cast

from partq.client.arguments import MAX_TIME_S, check_clock, check_producer, check_range, whole
from partq.client.hooks.interceptor_calls import checked_interceptors
from partq.client.hooks.serializers import ValueSerializer, check_serializer
from partq.client.produce.batching import checked_limits
from partq.client.produce.buffer_pool import BufferPool
from partq.client.produce.deterministic.crossing import FixedCrossing
from partq.client.produce.deterministic.ended_series import EndedSeries
from partq.client.produce.deterministic.stored_messages import StoredMessages
from partq.client.produce.failures import Failures
from partq.client.produce.interceptors import ProducerInterceptor, ProducerInterceptors
from partq.client.produce.message_encoding import listed
from partq.client.produce.partitioner import Partitioner
from partq.client.produce.results import Position, Positions
from partq.client.produce.send_calls import SendCalls, most_bytes
from partq.client.produce.sender import Sender
from partq.client.producer_state import producer_state
from partq.client.producer_stats import ProducerStats, ProducerTally
from partq.client.schedule.scheduled_calls import cancel, to_due_time
from partq.client.transactions.transaction import Transactions
from partq.client.transport.layout import QueueLayout
from partq.client.transport.liveness import Clock, boot_time
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import ProducerProgress, Session
from partq.client.transport.tasks import EnteredLoop
from partq.core.clocks.time_to_live import to_ttl_ms
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.errors import NotStoredError, PartqError
from partq.path_names import quoted
from partq.wire.batch import Message
from partq.wire.partition_key import key_of_arguments


class Producer(Transactions):
    """Publishes to one queue; the messages of a key are stored in the order of the calls.

    ```python
    async with Producer("http://127.0.0.1:7411", queue="orders", token=token) as producer:
        partition, offset = await producer.send_and_wait(b"paid", key="order-17")
        await producer.send(b"shipped", key="order-17")  # waits only for room
    # Here everything is stored, or leaving the block has raised.
    ```

    Args:
        url: one broker, or several with commas between them; they name the others.
        queue: name of the queue.
        token: bearer token with the role `produce`.
        namespace: of the queue; None: the broker's.
        ca_file: PEM of the CAs that may sign the brokers' certificates; None: the system's.
        producer_id: None: a fresh one, so every message that is sent is a new one. Given: a
            *deterministic* producer, which sends the same messages in the same order after a
            restart, but for those that `skip_stored` says are stored.
        value_serializer: called with the value of each message, and returns its bytes. What it
            raises is raised as `BadRequestError` by the call, which takes nothing then. None:
            values are bytes.
        interceptors: may change messages that are sent, and are told what becomes of them.
        linger_ms: milliseconds that a message waits for others of its partition, 0 to 10,000.
        max_batch_bytes: bytes per batch, before compression, 1 to 16 MiB.
        max_batch_count: messages per batch, 1 to 65,536.
        compression: `auto`: LZ4 for each batch of which a sample shows that it pays; or `none`,
            `lz4`, `zstd`, `zlib` or `snappy` for all. Producers of one queue may differ.
        max_pending_messages: messages without an answer, 1 to 2**31; above it the send calls wait.
        max_pending_bytes: the same for their bytes, 1 to 2**40.
        delivery_timeout_s: seconds that a message is tried, 0.1 to 86,400. Then its future fails
            with `NotStoredError`: certainly not stored; or with `OutcomeUnknownError`: nobody
            knows.
        connect_timeout_s: seconds that entering waits for a broker and the queue, 0 to 86,400.
        clock: returns seconds that never go back.

    Raises:
        SettingsError: an argument is of a wrong type or out of range; names it.
    """

    def __init__(
        self,
        url: str,
        *,
        queue: str,
        token: str | None = None,
        namespace: str | None = None,
        ca_file: str | Path | None = None,
        producer_id: str | None = None,
        value_serializer: ValueSerializer | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        linger_ms: float = 5,
        max_batch_bytes: int = 512 * 1024,
        max_batch_count: int = 8192,
        compression: str = "auto",
        max_pending_messages: int = 200_000,
        max_pending_bytes: int = 64 * 1024 * 1024,
        delivery_timeout_s: float = 120.0,
        connect_timeout_s: float = 30.0,
        clock: Clock = boot_time,
    ) -> None:
        check_range("linger_ms", linger_ms, 0, 10_000)
        limits = checked_limits(max_batch_count, max_batch_bytes, compression)
        max_messages = whole("max_pending_messages", max_pending_messages, 1, 2**31)
        max_bytes = whole("max_pending_bytes", max_pending_bytes, 1, 2**40)
        check_range("delivery_timeout_s", delivery_timeout_s, 0.1, MAX_TIME_S)
        check_range("connect_timeout_s", connect_timeout_s, 0, MAX_TIME_S)
        check_clock(clock)
        check_serializer("value_serializer", value_serializer)
        if producer_id is not None:
            check_producer("producer_id", producer_id)
        options = ConnectionOptions(url, queue, token=token, namespace=namespace, ca_file=ca_file)
        self._session = Session(options)
        self._failures = Failures()
        self._limits = limits
        self._buffer_pool = BufferPool(max_count=max_messages, max_bytes=max_bytes)
        self._value_serializer = value_serializer
        given = checked_interceptors(interceptors, ProducerInterceptor)
        self._interceptors = ProducerInterceptors(queue, given) if given else None
        self._linger_s = linger_ms / 1000
        self._delivery_timeout_s = delivery_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._clock = clock
        self._tally = ProducerTally(clock)
        self._queue = queue
        self._has_given_id = producer_id is not None
        self._producer = producer_id or uuid.uuid4().hex
        self._entered_loop = EnteredLoop("the producer")
        self._sender: Sender | None = None
        self._calls: SendCalls | None = None
        self._stored: StoredMessages | None = None
        self._ended: EndedSeries | None = None
        self._entry_layout: Layout | None = None
        self._unavailable: frozenset[PartitionId] = frozenset()
        self._due: Mapping[PartitionId, int] = {}

    # ---- open and close ----

    async def __aenter__(self) -> Self:
        """Fetch the layout and open a connection to each broker.

        Raises:
            UnauthorizedError, ForbiddenError: at once.
            UnavailableError, UnknownQueueError: nothing better came within `connect_timeout_s`.
            RuntimeError: it was entered before.
        """
        self._entered_loop.enter()
        progress: Mapping[PartitionId, ProducerProgress] = {}
        async with self._session.opening():
            if self._has_given_id:
                state = await producer_state(
                    *(self._session, self._producer),
                    timeout_s=self._connect_timeout_s,
                    clock=self._clock,
                )
                queue_layout, progress = state.queue_layout, state.progress
                self._due = {partition: each.due for partition, each in progress.items()}
                self._stored = StoredMessages(self._producer, state)
                self._ended = EndedSeries(self._session, self._producer, self._clock)
                self._ended.note(state)
                self._entry_layout = queue_layout.layout
            else:
                queue_layout = await self._session.first_layout(self._connect_timeout_s)
                url = next(iter(queue_layout.urls.values()), self._session.seeds[0])
                await self._session.check_rights(
                    url, f"/producers/{quoted(self._producer, 'producer')}"
                )
        partitioner = Partitioner(
            *(queue_layout.layout, queue_layout.keyless_policy, self._unavailable),
            random.Random(),  # noqa: S311  spreads load, keeps no secret
        )
        self._sender = Sender(
            *(self._session, queue_layout),
            limits=self._limits,
            buffer_pool=self._buffer_pool,
            tally=self._tally,
            next_producer=self._next_producer,
            on_layout=self._apply_layout,
            on_routes=partitioner.follow,
            linger_s=self._linger_s,
            delivery_timeout_s=self._delivery_timeout_s,
            clock=self._clock,
            # After a restart message n is skipped because n are stored: it must be the same one.
            are_numbers_fixed=self._has_given_id,
            crossing=self._crossing(),
        )
        self._calls = SendCalls(
            *(self._sender, partitioner),
            max_message_bytes=most_bytes(queue_layout),
            buffer_pool=self._buffer_pool,
            value_serializer=self._value_serializer,
            interceptors=self._interceptors,
            failures=self._failures,
            tally=self._tally,
            stored=self._stored,
        )
        self._sender.start(self._producer, progress)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Close: everything that was sent gets its answer first.

        Raises as `close`, unless an exception is leaving the block already: that one leaves, with
        a note of what was not stored.
        """
        unseen = await self._close()
        if unseen is None:
            return
        if error is None:
            raise unseen
        error.add_note(f"partq: {unseen.message}")

    async def close(self) -> None:
        """Flush and close, within `delivery_timeout_s` + 1 s; to be called once or more.

        Raises:
            PartqError: as `flush`; the producer is closed all the same.
        """
        unseen = await self._close()
        if unseen is not None:
            raise unseen

    async def _close(self) -> PartqError | None:
        self._entered_loop.check()
        sender, self._sender, self._calls = self._sender, None, None
        if sender is None:
            return None
        lost: PartqError | None = None
        try:
            sender.make_due()
            async with asyncio.timeout(self._delivery_timeout_s + 1):
                await self._buffer_pool.empty()
                await sender.check_ended()
        except TimeoutError:
            pass  # a deadline was missed by a little: fail_all tells the truth about the rest
        except PartqError as error:
            lost = error
        finally:
            sender.fail(
                NotStoredError("the producer was closed; publish it again with another one")
            )
            await sender.close()
            await self._session.__aexit__()
            self._failures.tell()
        await asyncio.sleep(0)  # those who are told by a callback look at their futures now
        return self._failures.take_error() or lost

    # ---- publish ----

    async def send(
        self,
        value: object,
        *,
        key: str | None = None,
        session_id: str | None = None,
        partition_key: str | None = None,
        headers: dict[str, str] | None = None,
        event_time_ms: int = 0,
        ttl_s: float | None = None,
        message_id: str | None = None,
        deliver_at: datetime | None = None,
        deliver_after_s: float | None = None,
    ) -> asyncio.Future[Position]:
        """Take one message, once there is room for it; return the future of its position.

        `value`: bytes, or what `value_serializer` takes.
        `key`: its partition key. `session_id` and `partition_key` are other names for it; where
        more than one of them is given, all have the same value. A message keeps the key alone.
        `headers`: texts by name, for the application. A header sets no key: one that is called
        `SessionId`, `PartitionKey`, `QUEUE_PARTITION_KEY` or `JMSXGroupID`, in any case of its
        letters, is refused unless it has the value of the key.
        `ttl_s`: how long it may wait to be delivered, in seconds from when it is stored, 0.001 to
        315,360,000; None, and where it is longer: as long as the queue says. A batch has one time
        to live: each change of it begins a new batch.
        `message_id`: its id, 1 to 128 characters, which consumers read as the header `message-id`.
        In a queue with `duplicateDetection` a message whose id is known there is not stored, and
        `is_duplicate` of its position is True; without a key it goes where its id belongs. Such a
        message is a batch for itself.
        `deliver_at` (with a time zone) or `deliver_after_s` (0 to 400 days, from when its broker
        has it): it is stored in the log at that time, never before, by Redis's clock; a time that
        is over is now. Its position has no offset then, but an id, `scheduled`, for
        `cancel_scheduled`. Later messages of its key that have no such time come before it.

        Awaiting the call applies back-pressure; awaiting the future waits for the answer, which
        comes within `delivery_timeout_s` (and half a second, for looking). What fails while nobody
        awaits its future is raised by `flush`, by `close` and on leaving the block.

        Raises:
            KeyConflictError: two different keys were given; names both.
            BadRequestError, MessageTooLargeError: the message can never be stored.
            UnauthorizedError and others: why the producer has stopped.
        """
        calls = self._open()
        ttl_ms = to_ttl_ms(ttl_s)
        if session_id is not None or partition_key is not None:
            key = key_of_arguments(key, session_id, partition_key)
        # A value that is not bytes is refused when it is encoded.
        message = Message(key, cast(bytes, value), headers, event_time_ms)
        due = to_due_time(deliver_at, deliver_after_s)
        return await calls.send(message, ttl_ms, message_id, due)

    async def send_and_wait(
        self,
        value: object,
        *,
        key: str | None = None,
        session_id: str | None = None,
        partition_key: str | None = None,
        headers: dict[str, str] | None = None,
        event_time_ms: int = 0,
        ttl_s: float | None = None,
        message_id: str | None = None,
        deliver_at: datetime | None = None,
        deliver_after_s: float | None = None,
    ) -> Position:
        """Publish one message and return its position, once it is stored; arguments as `send`.

        Others share its batch while it waits. Awaiting one such call after the other is slow: each
        waits for a write to disk. `send` and `send_many` keep many on their way.

        Raises:
            NotStoredError, OutcomeUnknownError: it has failed within `delivery_timeout_s`.
            PartqError: as `send`.
        """
        stored = await self.send(
            value,
            key=key,
            session_id=session_id,
            partition_key=partition_key,
            headers=headers,
            event_time_ms=event_time_ms,
            ttl_s=ttl_s,
            message_id=message_id,
            deliver_at=deliver_at,
            deliver_after_s=deliver_after_s,
        )
        return await stored

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        ttl_s: float | None = None,
        deliver_at: datetime | None = None,
        deliver_after_s: float | None = None,
    ) -> asyncio.Future[Positions]:
        """Take messages, once there is room; return one future for all of them.

        The fastest way to publish: no Python object per message beyond its bytes. `messages` may be
        any iterable, such as a generator; all of it is read before anything is sent. The positions
        are in its order. The future fails when any message does, and says how many are stored.
        `ttl_s`, `deliver_at`, `deliver_after_s` and headers are as in `send`; a session's id is the
        message's `key`. Scheduled messages of a partition that travel as one batch have one id.

        Raises:
            TypeError: it is no iterable of `partq.Message`.
            PartqError: as `send`. In either case nothing of it was taken.
        """
        calls = self._open()
        due = to_due_time(deliver_at, deliver_after_s)
        return await calls.send_many(listed(messages), to_ttl_ms(ttl_s), due)

    async def cancel_scheduled(self, scheduled: str) -> bool:
        """Cancel a message that waits until it is due, by the `scheduled` of its position.

        True: it is never delivered. False: it was delivered or cancelled before, or is unknown.

        Raises:
            BadRequestError: it is no id of a scheduled message.
            ConflictError, UnknownPartitionError: the partition count has changed; list its new id.
            UnavailableError and others: its broker has not answered; ask again.
        """
        self._open()
        return await cancel(self._session, scheduled)

    async def flush(self) -> None:
        """Send what waits for its batch, and wait until everything taken so far has an answer.

        What is sent by others meanwhile is waited for, too. Bounded by `delivery_timeout_s`.

        Raises:
            PartqError: messages have failed since the last flush whose futures nobody has looked
                at: `OutcomeUnknownError` if the outcome of one is unknown, else the error of the
                first. It says how many, and is raised once; the log has it, too.
            ConflictError: of a producer with a `producer_id`: the store has lost messages from
                before a change of the partition count. Later ones may be stored.
            UnavailableError: no broker says whether it has.
        """
        self._open().make_due()
        await self._buffer_pool.empty()
        if self._sender is not None:
            await self._sender.check_ended()
        await asyncio.sleep(0)  # those who are told by a callback look at their futures now
        unseen = self._failures.take_error()
        if unseen is not None:
            raise unseen

    @property
    def queue(self) -> str:
        """The queue that it publishes to."""
        return self._queue

    def stats(self) -> ProducerStats:
        """Return what the producer has sent so far, and what became of it.

        Any thread may ask. From another one than the event loop's it waits for a turn of the loop.

        Raises: TimeoutError: the loop has stood still for a second; RuntimeError: after a fork.
        """
        pool = self._buffer_pool
        return self._entered_loop.make(
            lambda: self._tally.snapshot(
                in_flight=pool.pending_count, in_flight_bytes=pool.pending_bytes
            )
        )

    # ---- deterministic producers ----

    def partition_of(self, key: str) -> PartitionId:
        """Return the partition of a key; raises BadRequestError for an unusable one.

        With a given `producer_id`: the one that it had when this producer was entered.
        """
        calls = self._open()
        slot = calls.slot_of_key(key)
        if self._entry_layout is not None:
            return self._entry_layout.partition_of(slot)
        return calls.partitioner.partition_of(slot)

    def skip_stored(self, key: str) -> bool:
        """Return whether the next message, of this key, is stored: then it is not to be sent.

        For a producer with a given `producer_id`, which asks it of each of its messages once, in
        their order, from the first on. It holds across changes of the partition count. Without a
        given id nothing is stored before.

        Raises:
            BadRequestError: the key is unusable.
            ConflictError: the application counts itself: it has asked `due()`, or sent messages
                before.
        """
        slot = self._open().slot_of_key(key)
        return self._stored is not None and self._stored.skip(slot)

    async def due(self) -> Mapping[PartitionId, int]:
        """Return how many messages per partition were stored when this producer was entered.

        The next message of a partition gets this number. What an earlier process still had on its
        way then is not counted: it is sent again under the same numbers, and known as a duplicate.
        Empty without a given `producer_id`.

        Raises:
            ConflictError: messages were stored before the partition count was changed, which these
                numbers do not tell: ask `skip_stored` of each message.
        """
        self._open()
        if self._stored is not None:
            self._stored.check_due()
        return self._due

    # ---- inside ----

    def _open(self) -> SendCalls:
        self._entered_loop.check()
        if self._calls is None or self._sender is None:
            state = "was closed" if self._entered_loop.is_entered else "is not open"
            raise RuntimeError(f"the producer {state}; use it inside `async with`")
        if self._sender.error is not None:
            raise self._sender.error
        return self._calls

    def _crossing(self) -> FixedCrossing | None:
        if self._stored is None or self._ended is None:
            return None
        return FixedCrossing(
            *(self._session, self._producer, self._stored, self._ended),
            buffer_pool=self._buffer_pool,
            tally=self._tally,
            clock=self._clock,
        )

    def _next_producer(self, before: str) -> str | None:
        """Return the id that follows `before`; None when the application has given it."""
        if self._has_given_id:
            return None
        if before == self._producer:
            self._producer = uuid.uuid4().hex
        return self._producer

    def _apply_layout(self, queue_layout: QueueLayout) -> None:
        if self._calls is None or self._sender is None:
            return
        self._calls.max_message_bytes = most_bytes(queue_layout)
        unavailable = self._sender.unavailable()
        if unavailable != self._unavailable:
            self._unavailable = unavailable
            self._calls.partitioner.avoid(unavailable)
