"""A consumer whose calls block, for threads and code that is not asynchronous."""

from collections.abc import Collection
from typing import Any

from partq.client.consumer import Consumer
from partq.client.consumer_stats import ConsumerStats
from partq.core.model import Offset, PartitionId
from partq.sync.message_iterator import SyncMessageIterator


class SyncConsumer(SyncMessageIterator[Consumer]):
    """A `partq.Consumer` for code that is not asynchronous; any thread may call it.

    ```python
    from partq.sync import Consumer

    with Consumer("http://127.0.0.1:7411", queue="orders", group="workers",
                  token=token) as consumer:
        for message in consumer:
            handle(message.key, message.value)
            consumer.ack(message)
    ```

    Callbacks such as `on_assigned` run in the thread of the event loop: they must not block, and
    call nothing of this object that waits: `leave`, `pause`, `resume` and what only looks may be
    called. `handle_signals` has no effect: Ctrl-C raises KeyboardInterrupt out of the call that
    waits. Leaving the block then leaves the group, and what is not acknowledged is redelivered.
    Messages that an interrupted call had taken are handed out by the next call.

    The event loop never stands still, so a handler that hangs keeps its partitions: give the group
    an ack timeout where that can happen.

    Args:
        url: as of `partq.Consumer`.
        options: the other arguments of `partq.Consumer`, by the same names.

    Raises:
        SettingsError: an argument is of a wrong type or out of range; names it.
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(Consumer(url, **options), "the consumer")

    @property
    def queue(self) -> str:
        """The queue that it consumes."""
        return self._inner.queue

    @property
    def group(self) -> str:
        """The consumer group that it is a member of."""
        return self._inner.group

    @property
    def member(self) -> str:
        """The name in the group."""
        return self._inner.member

    @property
    def partitions(self) -> frozenset[PartitionId]:
        """The partitions that this member holds now."""
        return self._portal.make(lambda: self._inner.partitions)

    def pause(self, partitions: Collection[PartitionId]) -> None:
        """Have no message of these partitions handed out, as `partq.Consumer.pause`."""
        self._portal.make(lambda: self._inner.pause(partitions))

    def resume(self, partitions: Collection[PartitionId]) -> None:
        """Hand out messages of these partitions again, as `partq.Consumer.resume`."""
        self._portal.make(lambda: self._inner.resume(partitions))

    def position(self, partition: PartitionId) -> Offset:
        """Return the offset that is handed out next, as `partq.Consumer.position`."""
        return self._portal.make(lambda: self._inner.position(partition))

    def end_offsets(self) -> dict[PartitionId, int]:
        """Return the ends of the partitions that are held, as `partq.Consumer.end_offsets`."""
        return self._portal.run(self._inner.end_offsets)

    def lag(self) -> dict[PartitionId, int]:
        """Return the lag of the partitions that are held, as `partq.Consumer.lag`."""
        return self._portal.run(self._inner.lag)

    def paused(self) -> frozenset[PartitionId]:
        """Return the partitions that are held and paused."""
        return self._portal.make(self._inner.paused)

    def stats(self) -> ConsumerStats:
        """Return what `partq.Consumer.stats` says."""
        return self._inner.stats()
