"""Size of the audit records that wait for an archive: shown, and logged when it is large."""

import logging
from collections.abc import Mapping

from partq.broker.log.quota import StorageQuota
from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.model import PartitionId
from partq.excerpts import counted
from partq.metrics import BrokerMetrics
from partq.store.records.partitions import Partitions

MUCH_SHARE = 0.1
"""Of Redis's `maxmemory`, for the partitions of one broker together."""
MUCH_BYTES = 64 * 1024 * 1024
"""Where Redis has no `maxmemory`."""

_log = logging.getLogger(__name__)


class AuditBacklog:
    """Looks at the records of the partitions that this broker owns."""

    def __init__(
        self,
        owned: Mapping[PartitionId, OwnedPartition],
        partitions: Partitions,
        *,
        quota: StorageQuota,
        metrics: BrokerMetrics,
    ) -> None:
        self._owned = owned
        self._partitions = partitions
        self._quota = quota
        self._metrics = metrics
        self._kept: set[PartitionId] = set()
        """Partitions that have had a record, and may have one that is not archived."""
        self.is_much = False
        """Whether more waits for the archive than it should: the warning was logged."""

    async def measure(self) -> None:
        """Measure the records; to be called each second.

        Raises:
            StoreUnavailableError: no answer.
        """
        self._kept |= {each.id for each in self._owned.values() if each.audit.is_on}
        self._kept &= self._owned.keys()
        records = await self._partitions.read_many(self._kept, only_reachable=True)
        states = {partition: record.audit for partition, record in records.items()}
        self._metrics.observe_audit(
            {str(each): (state.stored_bytes, state.next - state.first)
             for each, state in states.items()}
        )  # fmt: skip
        total = sum(state.stored_bytes for state in states.values())
        info = self._quota.info
        maxmemory = info.maxmemory_bytes if info is not None else 0
        limit = maxmemory * MUCH_SHARE if maxmemory else MUCH_BYTES
        if total > limit and not self.is_much:
            self.is_much = True
            _log.warning(
                "audit record: %d bytes of %s wait for an archive, above %d; run the "
                "archive, or turn the audit off: publishing stops when Redis is full",
                *(total, counted(len(states), "partition"), int(limit)),
            )
        elif total < limit / 2:
            self.is_much = False
