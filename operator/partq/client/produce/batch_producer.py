"""Publishing batches that the caller has made, under numbers that it can count on."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from partq.aio import cancel_and_wait
from partq.client.arguments import (
    MAX_TIME_S,
    check_clock,
    check_producer,
    check_range,
    whole,
)
from partq.client.produce.batching import BatchLimits, ReadyBatch
from partq.client.produce.buffer_pool import BufferPool
from partq.client.produce.results import MessageResult
from partq.client.produce.sender import Sender
from partq.client.producer_state import ProducerState, producer_state
from partq.client.producer_stats import ProducerTally
from partq.client.transport.liveness import Clock, boot_time
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session
from partq.core.model import PartitionId
from partq.errors import NotStoredError, OutcomeUnknownError, PartqError
from partq.wire.batch import MAX_BATCH_BYTES, MAX_BATCH_COUNT, Codec


class BatchProducer:
    """A deterministic producer of batches: after a restart it sends the same messages again.

    Its messages are numbered per partition in the order of the calls, from
    `state.progress[partition].due` on: what was stored below that by an earlier process is the
    caller's to leave out, and so is what `state.earlier` says was stored before a change of the
    partition count. Such a change ends a producer that publishes to partitions that lose slots.

    A number stands for one message: the first batch that fails ends the producer, so that nothing
    behind it is ever stored under its numbers. What was sent before may be stored; `state` of the
    next tells.

    ```python
    async with BatchProducer(url, queue="orders", token=token, producer="job-1/7") as producer:
        await producer.send(partition, ready)  # waits for room
        await producer.flush()                 # waits until all is stored
    ```

    Args:
        url, queue, token, namespace, ca_file: as for `Producer`.
        producer: its id, 1 to 128 printable characters; of one task, whatever the attempt.
        max_pending_bytes: without an answer; above it `send` waits.
        delivery_timeout_s: how long a batch is tried: over refusals for want of room, over changes
            of broker and connections lost.
        connect_timeout_s: how long entering waits for every partition's broker.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        url: str,
        *,
        queue: str,
        token: str | None,
        producer: str,
        namespace: str | None = None,
        ca_file: str | Path | None = None,
        max_pending_bytes: int = 64 * 1024 * 1024,
        delivery_timeout_s: float = 120.0,
        connect_timeout_s: float = 30.0,
        clock: Clock = boot_time,
    ) -> None:
        check_producer("producer", producer)
        max_bytes = whole("max_pending_bytes", max_pending_bytes, 1, 2**40)
        check_range("delivery_timeout_s", delivery_timeout_s, 0.1, MAX_TIME_S)
        check_range("connect_timeout_s", connect_timeout_s, 0, MAX_TIME_S)
        check_clock(clock)
        options = ConnectionOptions(url, queue, token=token, namespace=namespace, ca_file=ca_file)
        self._session = Session(options)
        self._producer = producer
        self._buffer_pool = BufferPool(max_count=2**31, max_bytes=max_bytes)
        self._delivery_timeout_s = delivery_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._clock = clock
        self._sender: Sender | None = None
        self._state: ProducerState | None = None
        self._error: PartqError | None = None
        self._has_failed = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Ask the brokers for the layout and for what is known of the producer; connect.

        Raises:
            UnauthorizedError, ForbiddenError: at once.
            UnavailableError, UnknownQueueError: nothing better came within `connect_timeout_s`.
        """
        async with self._session.opening():
            state = self._state = await producer_state(
                self._session,
                self._producer,
                timeout_s=self._connect_timeout_s,
                clock=self._clock,
                with_outlines=True,
            )
        self._sender = Sender(
            self._session,
            state.queue_layout,
            # Nothing is gathered here; batches come complete.
            limits=BatchLimits(
                max_count=MAX_BATCH_COUNT, max_bytes=MAX_BATCH_BYTES, codec=Codec.NONE
            ),
            buffer_pool=self._buffer_pool,
            tally=ProducerTally(self._clock),
            next_producer=lambda _: None,
            on_layout=lambda _: None,
            on_routes=lambda _: None,
            linger_s=0,
            delivery_timeout_s=self._delivery_timeout_s,
            clock=self._clock,
            are_numbers_fixed=True,
        )
        self._sender.start(self._producer, state.progress)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close at once. What has no answer yet may or may not be stored: `flush` first."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.fail(
                NotStoredError("the producer was closed; publish it again with another one")
            )
            await sender.close()
            await self._session.__aexit__()

    @property
    def state(self) -> ProducerState:
        """The queue as it was on entering, and what was stored before."""
        if self._state is None:
            raise RuntimeError("the producer is not open; use it inside `async with`")
        return self._state

    async def send(self, partition: PartitionId, ready: ReadyBatch) -> None:
        """Take a batch, once there is room for it.

        Raises:
            PartqError: an earlier batch has failed; this one was not taken.
        """
        await self._buffer_pool.take(ready.count, ready.size_bytes)
        if self._error is not None:
            self._buffer_pool.give_back(ready.count, ready.size_bytes)
            raise self._error
        self._open().add_batch(partition, ready, self)

    async def flush(self) -> None:
        """Wait until everything that was taken is stored.

        Raises:
            PartqError: something is not, or its outcome is unknown; at once, whatever else is
                still on its way.
        """
        sender = self._open()
        empty = asyncio.ensure_future(self._buffer_pool.empty())
        ended = asyncio.ensure_future(self._has_failed.wait())
        try:
            await asyncio.wait((empty, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(empty, ended)
        error = self._error or sender.error
        if error is not None:
            raise error

    def stored(self, partition: PartitionId, offset: int, count: int) -> None:
        """Learn that messages are stored: nothing to be done."""

    def failed(self, partition: PartitionId, error: PartqError, count: int) -> None:
        """Learn that messages have failed: an outcome that is unknown weighs more."""
        if self._error is None or isinstance(error, OutcomeUnknownError):
            self._error = error
        self._has_failed.set()
        self._buffer_pool.close(self._error)

    def divided(
        self, partition: PartitionId, destinations: Sequence[PartitionId]
    ) -> Mapping[PartitionId, MessageResult]:
        """Return itself: it does not matter where a message is stored."""
        return dict.fromkeys(destinations, self)

    def _open(self) -> Sender:
        if self._sender is None:
            raise RuntimeError("the producer is not open; use it inside `async with`")
        if self._sender.error is not None:
            raise self._sender.error
        return self._sender
