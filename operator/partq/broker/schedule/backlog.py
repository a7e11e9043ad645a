"""How much waits until it is due in the partitions of a broker, as its metrics show it."""

from collections.abc import Callable, Mapping

from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.model import PartitionId
from partq.metrics import BrokerMetrics
from partq.store.schedule.scheduled_entries import ScheduledEntries

GAP_S = 5.0
"""Between two looks."""


class ScheduledBacklog:
    """Looks at the partitions that this broker owns.

    Args:
        owned: the partitions.
        entries: what waits in the queue's partitions.
        now_ms: returns the time of a partition's Redis, in ms since 1970.
        clock: returns seconds that never go back.
        metrics: of the broker.
    """

    def __init__(
        self,
        owned: Mapping[PartitionId, OwnedPartition],
        entries: ScheduledEntries,
        *,
        now_ms: Callable[[PartitionId], float],
        clock: Callable[[], float],
        metrics: BrokerMetrics,
    ) -> None:
        self._owned = owned
        self._entries = entries
        self._now_ms = now_ms
        self._clock = clock
        self._metrics = metrics
        self._next_at = clock()
        self.size_bytes = 0
        """Of what waited at the last look."""

    async def measure(self) -> None:
        """Measure what waits, where that is due; to be called each second.

        Raises:
            StoreUnavailableError: no answer.
        """
        now = self._clock()
        if now < self._next_at:
            return
        self._next_at = now + GAP_S
        found = await self._entries.read_counts(tuple(self._owned))
        self.size_bytes = sum(counts.size_bytes for counts in found.values())
        late_ms = (self._now_ms(each) - counts.next_due_ms for each, counts in found.items())
        self._metrics.observe_scheduled(
            count=sum(counts.entry_count for counts in found.values()),
            size_bytes=self.size_bytes,
            late_s=max(0.0, *late_ms, 0.0) / 1000,
        )
