"""Counts how long messages have waited from their storing to their first delivery, by group.

Once for each window that is sent, by the first message of its batch: a window costs no call of
Redis. The time of Redis is known from when the partition has last stored something.
"""

from collections.abc import Callable, Mapping

from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.model import PartitionId
from partq.core.samples.ring import MAX_RATED_GROUPS
from partq.core.samples.waits import Span, WaitCounts


class DeliveryWaits:
    """The waits of all groups of a broker since they were taken last."""

    def __init__(
        self, owned: Mapping[PartitionId, OwnedPartition], clock: Callable[[], float]
    ) -> None:
        self._owned = owned
        self._clock = clock
        self._by_group: dict[str, WaitCounts] = {}

    def add(self, group: str, partition: PartitionId, at_ms: int) -> None:
        """Count a window whose batch was stored at `at_ms`, in Redis's time.

        Not counted: windows of a partition that has stored nothing since this broker claimed it,
        and groups beyond those that are kept.
        """
        owned = self._owned.get(partition)
        if owned is None or owned.stored_at is None:
            return
        counts = self._by_group.get(group)
        if counts is None:
            if len(self._by_group) >= MAX_RATED_GROUPS:
                return
            counts = self._by_group[group] = WaitCounts()
        counts.add(owned.stored_at_ms - at_ms + 1000 * (self._clock() - owned.stored_at))

    def take(self) -> dict[str, Span]:
        """Return the counts of each group since the last call, and begin again."""
        taken, self._by_group = self._by_group, {}
        return {group: counts.take() for group, counts in taken.items()}
