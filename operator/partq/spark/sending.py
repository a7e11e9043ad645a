"""The client in a thread of its own: Spark hands a task its rows in the thread that it calls."""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from partq.client.batch_producer import BatchProducer
from partq.client.batching import ReadyBatch
from partq.client.layout import QueueView
from partq.client.producer_state import producer_due
from partq.client.session import ProducerProgress
from partq.core.model import PartitionId
from partq.spark.connection import Connection

T = TypeVar("T")

_NOBODY = "spark-check"
"""A producer that never sends anything."""


def check_queue(connection: Connection) -> None:
    """See that the queue can be published to: its name, the token, a broker of each partition.

    Raises:
        PartqError: why not.
    """
    asyncio.run(
        producer_due(
            connection.url,
            _NOBODY,
            queue=connection.queue,
            token=connection.token(),
            namespace=connection.namespace,
            ca_file=connection.ca_file,
            timeout_s=connection.timeout_s,
        )
    )


class TaskSender:
    """A `BatchProducer` for code without an event loop; pings are answered while it computes.

    Args:
        connection: which queue, and for how long a batch is tried.
        producer: the id under which the task numbers its messages.
    """

    def __init__(self, connection: Connection, producer: str) -> None:
        self._connection = connection
        self._producer_id = producer
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="partq-sender", daemon=True
        )
        self._producer: BatchProducer | None = None

    def __enter__(self) -> Self:
        """Connect; raises as `BatchProducer`."""
        self._thread.start()
        try:
            self._producer = self._wait(self._enter())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close at once: what `flush` has not confirmed may or may not be stored."""
        try:
            if self._producer is not None:
                self._wait(self._producer.__aexit__(None, None, None))
        finally:
            self._end()

    @property
    def view(self) -> QueueView:
        """The queue as it was on entering."""
        return self._open().view

    @property
    def progress(self) -> Mapping[PartitionId, ProducerProgress]:
        """What was stored per partition on entering."""
        return self._open().progress

    def send(self, partition: PartitionId, ready: ReadyBatch) -> None:
        """Hand a batch over, once there is room; raises what an earlier one has failed of."""
        self._wait(self._open().send(partition, ready))

    def flush(self) -> None:
        """Wait until all that was sent is stored; raises if something is not."""
        self._wait(self._open().flush())

    async def _enter(self) -> BatchProducer:
        connection = self._connection
        return await BatchProducer(
            connection.url,
            queue=connection.queue,
            token=connection.token(),
            producer=self._producer_id,
            namespace=connection.namespace,
            ca_file=connection.ca_file,
            delivery_timeout_s=connection.timeout_s,
            connect_timeout_s=connection.timeout_s,
        ).__aenter__()

    def _open(self) -> BatchProducer:
        assert self._producer is not None, "the sender is not open"  # noqa: S101  a bug
        return self._producer

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
