"""Deliveries that wait for their audit record, and what must not overtake them."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from partq.broker.partition.audit_buffer import parts_of
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.core.cursor.windows import Window
from partq.core.model import PartitionId
from partq.core.ranges import Ranges
from partq.store.records.log import Entry
from partq.wire import frames

MAX_UNRECORDED_BYTES = 4 * 1024 * 1024
"""Batches that wait in one flow; above it nothing more is taken."""


@dataclass(eq=False, slots=True)
class UnrecordedDelivery:
    """A window that was taken, with its header."""

    consumed: ConsumedPartition
    header: frames.Deliver
    entry: Entry
    window: Window
    is_recorded: bool = False


class UnrecordedDeliveries:
    """The deliveries of one flow that are not sent yet, in their order per partition."""

    def __init__(self) -> None:
        self._queues: dict[PartitionId, deque[UnrecordedDelivery | bytes]] = {}
        self._ready: dict[PartitionId, None] = {}
        """Partitions whose first one may be sent."""
        self._size = 0
        self.control_count = 0
        """How many control frames wait behind deliveries."""
        self.pulled: dict[ConsumedPartition, list[tuple[int, Window]]] = {}
        """Windows that wait in a pull for their audit record, each with its delivery number.

        By partition, or by session where a flow has several of a partition."""

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be taken for now."""
        return self._size >= MAX_UNRECORDED_BYTES

    def add(self, delivery: UnrecordedDelivery) -> None:
        """Keep a delivery until it is recorded, and its turn comes."""
        self._queues.setdefault(delivery.consumed.partition, deque()).append(delivery)
        self._size += len(delivery.entry.data)

    def follow(self, partition: PartitionId, frame: bytes) -> bool:
        """Keep a frame behind the deliveries of its partition; False: no delivery waits."""
        queue = self._queues.get(partition)
        if queue is None:
            return False
        queue.append(frame)
        self.control_count += 1
        return True

    def has(self, partition: PartitionId) -> bool:
        """Tell whether deliveries of a partition wait here: no later one may overtake them."""
        return partition in self._queues

    def sent_upto(self, partition: PartitionId) -> int | None:
        """Return up to where a partition's messages were sent; None: all that were taken."""
        for _, window in self._windows(partition):
            if window.new_from < window.stop:
                return window.new_from
        return None

    def sent_in_turn_upto(self, partition: PartitionId, number: int) -> int | None:
        """Return up to where messages were sent in turn under a delivery number.

        None: all that were taken. What is sent out of turn lies below those.
        """
        for delivery, window in self._windows(partition):
            if window.is_in_turn and delivery == number:
                return window.start
        return None

    def unsent(self, partition: PartitionId) -> Ranges:
        """Return the offsets of a partition's deliveries: no member has got those."""
        return Ranges(part for _, window in self._windows(partition) for part in parts_of(window))

    def recorded(self, delivery: UnrecordedDelivery) -> None:
        """Note that a delivery is recorded."""
        delivery.is_recorded = True
        partition = delivery.consumed.partition
        queue = self._queues.get(partition)
        if queue and queue[0] is delivery:
            self._ready[partition] = None

    def forget(self, consumed: ConsumedPartition) -> tuple[int, int, list[bytes]]:
        """Drop the deliveries of a partition, or of a session: others of the partition stay.

        Returns how many messages and how many bytes of batches were never sent, and the frames
        that wait for nothing any more.
        """
        messages, before, rest = 0, self._size, []
        partition, kept = consumed.partition, deque[UnrecordedDelivery | bytes]()
        self.pulled.pop(consumed, None)
        for each in self._queues.pop(partition, ()):
            if isinstance(each, bytes):
                if kept:
                    kept.append(each)
                    continue
                rest.append(each)
                self.control_count -= 1
            elif consumed.session is not None and each.consumed is not consumed:
                kept.append(each)
            else:
                messages += each.window.messages
                self._size -= len(each.entry.data)
        self._ready.pop(partition, None)
        if kept:
            self._queues[partition] = kept
            self._make_ready(partition)
        return messages, before - self._size, rest

    def next(self) -> bytes | None:
        """Return the next frame that may be sent; the partitions take turns.

        No delivery of a partition whose commit is under way: that says who is given it next.
        """
        partition = next((each for each in self._ready if not self._is_committing(each)), None)
        if partition is None:
            return None
        del self._ready[partition]
        queue = self._queues[partition]
        first = queue.popleft()
        if not queue:
            del self._queues[partition]
        else:
            self._make_ready(partition)
        if isinstance(first, bytes):
            self.control_count -= 1
            return first
        self._size -= len(first.entry.data)
        data = b"" if first.header.kept_bytes else first.entry.data
        return frames.encode(first.header, data)

    def _make_ready(self, partition: PartitionId) -> None:
        first = self._queues[partition][0]
        if isinstance(first, bytes) or first.is_recorded:
            self._ready[partition] = None

    def _windows(self, partition: PartitionId) -> Iterator[tuple[int, Window]]:
        """Yield each window that is not sent yet, with its delivery number, in their order."""
        for each in self._queues.get(partition, ()):
            if not isinstance(each, bytes):
                yield each.header.delivery, each.window
        for consumed, windows in self.pulled.items():
            if consumed.partition == partition:
                yield from windows

    def _is_committing(self, partition: PartitionId) -> bool:
        first = self._queues[partition][0]
        return not isinstance(first, bytes) and first.consumed.root.is_committing
