"""A producer whose calls block, for threads and code that is not asynchronous."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Any, Self, TypeVar

from partq.client.produce.message_encoding import listed
from partq.client.produce.results import Position, Positions
from partq.client.producer import Producer
from partq.client.producer_stats import ProducerStats
from partq.client.transactions.transaction import Transaction
from partq.core.model import PartitionId
from partq.sync.client import SyncClient
from partq.sync.process_loop import LoopPortal
from partq.wire.batch import Message

T = TypeVar("T")


class SyncProducer(SyncClient[Producer]):
    """A `partq.Producer` for code that is not asynchronous; any thread may call it.

    ```python
    from partq.sync import Producer

    with Producer("http://127.0.0.1:7411", queue="orders", token=token) as producer:
        partition, offset = producer.send_and_wait(b"paid", key="order-17")
        stored = producer.send(b"packed", key="order-17")  # a concurrent.futures.Future
    ```

    All blocking clients of a process share one thread with an event loop. What is open when the
    interpreter ends is closed then. Closing waits until everything that was sent has its answer,
    `delivery_timeout_s` + 1 s at most. After a fork only the parent can use what it has opened.

    Args:
        url: as of `partq.Producer`.
        options: the other arguments of `partq.Producer`, by the same names.

    Raises:
        SettingsError: an argument is of a wrong type or out of range; names it.
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(Producer(url, **options), "the producer")

    def send(self, value: object, **details: Any) -> "Future[Position]":
        """Take one message, once there is room; return the future of its position.

        Arguments and errors: those of `partq.Producer.send`. An error that nobody looks at is
        raised by `flush`, by `close` and on leaving the block.
        """
        return self._sent(lambda: self._inner.send(value, **details))

    def send_and_wait(self, value: object, **details: Any) -> Position:
        """Publish one message and return its position, once it is stored; arguments as `send`."""
        return self._portal.run(lambda: self._inner.send_and_wait(value, **details))

    def send_many(
        self,
        messages: Iterable[Message],
        *,
        ttl_s: float | None = None,
        deliver_at: datetime | None = None,
        deliver_after_s: float | None = None,
    ) -> "Future[Positions]":
        """Take messages, once there is room; return one future, as `partq.Producer.send_many`."""
        taken = listed(messages)  # here, where what it waits for holds up no other client
        return self._sent(
            lambda: self._inner.send_many(
                taken, ttl_s=ttl_s, deliver_at=deliver_at, deliver_after_s=deliver_after_s
            )
        )

    def cancel_scheduled(self, scheduled: str) -> bool:
        """Cancel a message that waits until it is due, as `partq.Producer.cancel_scheduled`."""
        return self._portal.run(lambda: self._inner.cancel_scheduled(scheduled))

    def transaction(self, **details: Any) -> "SyncTransaction":
        """Return a transaction for `with`; arguments and errors as `partq.Producer.transaction`."""

        async def begun() -> Transaction:
            return self._inner.transaction(**details)

        return SyncTransaction(self._portal, self._portal.run(begun))

    def flush(self) -> None:
        """Wait until everything taken so far has an answer; raises as `partq.Producer.flush`."""
        self._portal.run(self._inner.flush)

    @property
    def queue(self) -> str:
        """The queue that it publishes to."""
        return self._inner.queue

    def stats(self) -> ProducerStats:
        """Return what `partq.Producer.stats` says."""
        return self._inner.stats()

    def partition_of(self, key: str) -> PartitionId:
        """Return the partition of a key; raises as `partq.Producer.partition_of`."""

        async def found() -> PartitionId:
            return self._inner.partition_of(key)

        return self._portal.run(found)

    def skip_stored(self, key: str) -> bool:
        """Return whether the next message is stored; as `partq.Producer.skip_stored`.

        One thread asks and sends, as the order of the messages counts.
        """

        async def found() -> bool:
            return self._inner.skip_stored(key)

        return self._portal.run(found)

    def due(self) -> Mapping[PartitionId, int]:
        """Return how many messages each partition has stored, as `partq.Producer.due`."""
        return self._portal.run(self._inner.due)

    def _sent(self, send: Callable[[], Awaitable["asyncio.Future[T]"]]) -> "Future[T]":
        async def sent() -> asyncio.Future[T]:
            stored = await send()
            answer.follow(stored)
            return stored

        answer: SentFuture[T] = SentFuture(self._portal)
        self._portal.run(sent)
        return answer


class SyncTransaction:
    """A `partq.Transaction` for code that is not asynchronous, of one thread."""

    def __init__(self, portal: LoopPortal, inner: Transaction) -> None:
        self._portal = portal
        self._inner = inner

    def __enter__(self) -> Self:
        """Begin; raises as `partq.Transaction`."""
        self._portal.run(self._inner.__aenter__)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Store all messages and wait for the answer, as `partq.Transaction`."""
        self._portal.run(lambda: self._inner.__aexit__(kind, error, traceback))

    def send(self, value: object, **details: Any) -> None:
        """Take a message; arguments and errors as `partq.Transaction.send`."""

        async def sent() -> None:
            self._inner.send(value, **details)

        self._portal.run(sent)

    @property
    def positions(self) -> Sequence[Position]:
        """Where the messages are stored; raises as `partq.Transaction.positions`."""
        return self._inner.positions


class SentFuture(Future[T]):
    """The future of a publish, for any thread. Its error counts as seen once a caller reads it.

    After a fork only the parent can wait for it.
    """

    def __init__(self, portal: LoopPortal) -> None:
        super().__init__()
        self._portal = portal
        self._stored: asyncio.Future[T] | None = None

    def follow(self, stored: "asyncio.Future[T]") -> None:
        """Take the outcome of a producer's future; called in the loop."""
        self._stored = stored
        stored.add_done_callback(self._copy)

    def result(self, timeout: float | None = None) -> T:
        """Return the result, as of `concurrent.futures.Future`.

        Raises: as that; RuntimeError: it was made before this process was forked.
        """
        self._check_not_forked()
        try:
            return super().result(timeout)
        finally:
            self._mark_seen()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, if any, as of `concurrent.futures.Future`; raises as `result`."""
        self._check_not_forked()
        error = super().exception(timeout)
        self._mark_seen()
        return error

    def cancel(self) -> bool:
        """Return False: what was sent cannot be called back."""
        return False

    def _check_not_forked(self) -> None:
        # Also one that is done: the fork may have copied a lock of it that is held for good.
        if self._portal.is_forked:
            raise RuntimeError(
                "the future of a publish was made before this process was forked, and only the "
                "parent learns its outcome: wait for it there, or before the fork"
            )

    def _copy(self, stored: "asyncio.Future[T]") -> None:
        if stored.cancelled():
            super().cancel()
            return
        # Not by the methods of `stored`: these would note that the application has seen the error.
        error = asyncio.Future.exception(stored)
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(asyncio.Future.result(stored))

    def _mark_seen(self) -> None:
        if self.done() and self._stored is not None and not self._stored.cancelled():
            self._portal.call_soon(self._stored.exception)
