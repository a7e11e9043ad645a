"""A consumer of several queues whose calls block, for code that is not asynchronous."""

import asyncio
from collections.abc import Awaitable, Collection, Iterable
from typing import Any

from partq.client.consumer_stats import ConsumerStats
from partq.client.partition_key import PartitionKey
from partq.client.queues.queue_finder import Find
from partq.client.queues_consumer import QueuesConsumer
from partq.client.transport.options import ConnectionOptions
from partq.core.model import Offset
from partq.sync.message_iterator import SyncMessageIterator


class SyncQueuesConsumer(SyncMessageIterator[QueuesConsumer]):
    """A `partq.QueuesConsumer` for code that is not asynchronous; any thread may call it.

    ```python
    from partq import queues_in_directory
    from partq.sync import QueuesConsumer

    with QueuesConsumer(pattern="orders-.*", group="{queue}-workers",
                        find=queues_in_directory("/etc/partq/queues")) as consumer:
        for message in consumer:
            handle(message.queue, message.value)
            consumer.ack(message)
    ```

    `find` is called in a separate thread and may block. Other callbacks run in the thread of the
    event loop, and interrupts are as of `partq.sync.Consumer`.

    Args:
        options: the arguments of `partq.QueuesConsumer`, by the same names.

    Raises:
        SettingsError: an argument is of a wrong type or out of range; names it.
    """

    def __init__(self, **options: Any) -> None:
        if callable(find := options.get("find")):
            options["find"] = _in_thread(find)
        super().__init__(QueuesConsumer(**options), "the consumer")

    @property
    def queues(self) -> frozenset[str]:
        """The queues that are consumed now."""
        return self._portal.make(lambda: self._inner.queues)

    @property
    def partitions(self) -> frozenset[PartitionKey]:
        """The partitions of all queues that this member holds now."""
        return self._portal.make(lambda: self._inner.partitions)

    def pause(self, partitions: Collection[PartitionKey]) -> None:
        """Have no message of these partitions handed out, as `partq.QueuesConsumer.pause`."""
        self._portal.make(lambda: self._inner.pause(partitions))

    def resume(self, partitions: Collection[PartitionKey]) -> None:
        """Hand out messages of these partitions again, as `partq.QueuesConsumer.resume`."""
        self._portal.make(lambda: self._inner.resume(partitions))

    def paused(self) -> frozenset[PartitionKey]:
        """Return the partitions of all queues that are held and paused."""
        return self._portal.make(self._inner.paused)

    def position(self, key: PartitionKey) -> Offset:
        """Return the offset that is handed out next, as `partq.QueuesConsumer.position`."""
        return self._portal.make(lambda: self._inner.position(key))

    def end_offsets(self) -> dict[PartitionKey, int]:
        """Return the ends of all partitions, as `partq.QueuesConsumer.end_offsets`."""
        return self._portal.run(self._inner.end_offsets)

    def lag(self) -> dict[PartitionKey, int]:
        """Return the lag of all partitions, as `partq.QueuesConsumer.lag`."""
        return self._portal.run(self._inner.lag)

    def stats(self) -> dict[str, ConsumerStats]:
        """Return what `partq.QueuesConsumer.stats` says of each queue."""
        return self._inner.stats()

    def group_of(self, queue: str) -> str:
        """Return the name of the group in a queue."""
        return self._inner.group_of(queue)


def _in_thread(find: Find) -> Find:
    """Return a function that calls `find` where it may block: all clients share the event loop."""

    async def found() -> Iterable[ConnectionOptions]:
        asked = await asyncio.to_thread(find)
        return await asked if isinstance(asked, Awaitable) else asked

    return found
