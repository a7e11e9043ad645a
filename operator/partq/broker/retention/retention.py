"""Says what logs retain of the messages that all groups have acknowledged."""

from collections.abc import Callable

from partq.broker.config import QueueConfig
from partq.broker.log.quota import StorageQuota
from partq.broker.partition.owned_partition import OwnedPartition
from partq.broker.retention.store_clocks import StoreClocks
from partq.core.quota_share import StorageRoom
from partq.store.records.log import RetainedMessages

NUMERATOR, DENOMINATOR = 3, 4
"""What is left of what a log has retained after each look, while room is scarce."""


class Retention:
    """The bounds of each log by time, by bytes, and by the room that there is.

    What has outlived the queue's time to live does not stay: no group would get it again. Nor does
    what lies below a seal: the partitions that have got the slots wait until it is freed.
    """

    def __init__(
        self,
        config: Callable[[], QueueConfig | None],
        clocks: StoreClocks,
        quota: StorageQuota,
    ) -> None:
        self._config = config
        self._clocks = clocks
        self._quota = quota

    @property
    def is_on(self) -> bool:
        """Whether the queue keeps anything that is acknowledged."""
        config = self._config()
        return config is not None and config.retention_s > 0

    async def find(
        self, owned: OwnedPartition, retained_bytes: int | None
    ) -> RetainedMessages | None:
        """Return what of a log stays; None: nothing.

        `retained_bytes`: how much of what is acknowledged it had at the last look; None: unknown.

        Raises:
            StoreUnavailableError: no answer.
        """
        config, room = self._config(), self._quota.room
        if config is None or not config.retention_s:
            return None
        if room is StorageRoom.NONE:
            return RetainedMessages(0, 0)
        limits = []
        if config.max_retained_bytes is not None:
            limits.append(config.max_retained_bytes // max(1, len(config.layout.partitions())))
        if room is StorageRoom.SCARCE and retained_bytes is not None:
            limits.append(retained_bytes * NUMERATOR // DENOMINATOR)
        first = await self._find_first(owned, config.retention_s)
        sealed = max(owned.layout.seals.values(), default=0)
        return RetainedMessages(max(first, owned.expired, sealed), min(limits, default=None))

    async def _find_first(self, owned: OwnedPartition, within_s: float) -> int:
        """Return the first offset that was stored within a time, by Redis's clock.

        While that clock is unknown or has jumped, it is the offset that was found before, or 0.
        """
        known = owned.stored_lately
        if known is not None and known.within_s != within_s:
            known = None
        looked_at = float("-inf") if known is None else known.at
        found = await self._clocks.find_stored(owned.id, within_s, looked_at)
        if found is not None:
            owned.stored_lately = known = found
        return 0 if known is None else known.first
