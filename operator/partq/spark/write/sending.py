"""The client in a separate thread: Spark hands a task its rows in the thread that it calls."""

import asyncio
from typing import Self

from partq.client.produce.batch_producer import BatchProducer
from partq.client.produce.batching import ReadyBatch
from partq.client.producer_state import ProducerState, producer_due
from partq.client.transport.loop_thread import LoopThread
from partq.core.model import PartitionId
from partq.spark.connection import ClientOptions

_NOBODY = "spark-check"
"""A producer that never sends anything."""


def check_queue(connection: ClientOptions) -> None:
    """See that the queue can be published to: its name, the token, a broker of each partition.

    Raises:
        PartqError: why not.
    """
    asyncio.run(
        producer_due(
            producer=_NOBODY,
            timeout_s=connection.timeout_s,
            **connection.options().arguments(),
        )
    )


class TaskSender:
    """A `BatchProducer` for code without an event loop; pings are answered while it computes.

    Args:
        connection: which queue, and for how long a batch is tried.
        producer: the id under which the task numbers its messages.
    """

    def __init__(self, connection: ClientOptions, producer: str) -> None:
        self._connection = connection
        self._producer_id = producer
        self._thread = LoopThread("partq writing")
        self._producer: BatchProducer | None = None

    def __enter__(self) -> Self:
        """Connect; raises as `BatchProducer`."""
        try:
            self._producer = self._thread.run(self._enter())
        except BaseException:
            self._thread.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Close at once: what `flush` has not confirmed may or may not be stored."""
        try:
            if self._producer is not None:
                self._thread.run(self._producer.__aexit__(None, None, None))
        finally:
            self._thread.end()

    @property
    def state(self) -> ProducerState:
        """The queue as it was on entering, and what was stored before."""
        return self._open().state

    def send(self, partition: PartitionId, ready: ReadyBatch) -> None:
        """Hand a batch over, once there is room; raises what an earlier one has failed of."""
        self._thread.run(self._open().send(partition, ready))

    def flush(self) -> None:
        """Wait until all that was sent is stored; raises if something is not."""
        self._thread.run(self._open().flush())

    async def _enter(self) -> BatchProducer:
        connection = self._connection
        return await BatchProducer(
            **connection.options().arguments(),
            producer=self._producer_id,
            delivery_timeout_s=connection.timeout_s,
            connect_timeout_s=connection.timeout_s,
        ).__aenter__()

    def _open(self) -> BatchProducer:
        assert self._producer is not None, "the sender is not open"  # noqa: S101  a bug
        return self._producer
