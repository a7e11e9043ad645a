"""Room for messages: the queue's quota, and the memory of Redis."""

from collections.abc import Callable, Collection, Sequence

from partq.broker.config import QueueConfig
from partq.broker.log.holders import Holders
from partq.core.model import BrokerId, PartitionId
from partq.core.quota_share import QuotaShare, StorageGrant, StorageRoom
from partq.errors import QuotaExceededError, StoreFullError
from partq.metrics import BrokerMetrics
from partq.store.connection import Store
from partq.store.records.leases import Leases
from partq.store.records.partitions import Partitions
from partq.store.server import FULL_SHARE, StoreInfo

RETRY_AFTER_S = 1.0

NOTHING, ANYTHING = StorageGrant(0), StorageGrant(None)


class StorageQuota:
    """The share of the storage quota that this broker may still use.

    One of the living brokers adds up the partitions and writes the sum; all read it.
    """

    def __init__(
        self,
        store: Store,
        partitions: Partitions,
        leases: Leases,
        *,
        broker: BrokerId,
        config: Callable[[], QueueConfig | None],
        living: Callable[[], Collection[BrokerId]],
        holders: Holders,
        metrics: BrokerMetrics,
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._leases = leases
        self._broker = broker
        self._config = config
        self._living = living
        self._holders = holders
        self._metrics = metrics
        self._share = QuotaShare()
        self._seen: int | None = None
        """Number of the last sum that was taken."""
        self._sizes: dict[PartitionId, int] = {}
        """How many bytes each partition had that was added up last."""
        self.sharers: Collection[BrokerId] = (broker,)
        """Brokers that share the rest of the quota; read by tests alone."""
        self.info: StoreInfo | None = None
        """Last answer of Redis about its state."""

    @property
    def durability(self) -> dict[str, str | bool]:
        """What Redis promises of what it confirms, as it says itself."""
        if (info := self.info) is None:
            return {}
        return {
            "version": info.version,
            "appendonly": info.appendonly,
            "appendfsync": info.appendfsync,
        }

    @property
    def is_store_full(self) -> bool:
        """Whether what is left of Redis's memory is for acks, claims and records."""
        return self.info is not None and self.info.is_nearly_full

    @property
    def is_store_overfull(self) -> bool:
        """Whether Redis has no room for the audit records of deliveries either."""
        return self.info is not None and self.info.is_overfull

    @property
    def is_quota_used_up(self) -> bool:
        """Whether publishes find no room in the queue's quota, as of its last sum."""
        config = self._config()
        has_quota = config is not None and config.max_spool_bytes is not None
        return has_quota and self._share.is_used_up

    @property
    def room(self) -> StorageRoom:
        """Whether there is room for messages that all groups have acknowledged."""
        if self.is_quota_used_up or self.is_store_full:
            return StorageRoom.NONE
        config = self._config()
        has_quota = config is not None and config.max_spool_bytes is not None
        if (has_quota and self._share.is_scarce) or (self.info is not None and self.info.is_scarce):
            return StorageRoom.SCARCE
        return StorageRoom.AMPLE

    def take(self, sizes: Sequence[int]) -> StorageGrant:
        """Return how much an append of batches of these sizes may store; to be settled."""
        if self.is_store_full:
            return NOTHING
        config = self._config()
        if config is None or config.max_spool_bytes is None:
            return ANYTHING
        return self._share.take(size_bytes=sum(sizes), first_bytes=sizes[0])

    def account(self, grant: StorageGrant, stored_bytes: int) -> None:
        """Take what an append has stored, all of it where the outcome is unknown."""
        self._share.account(grant, stored_bytes)

    def refusal(self, partition: PartitionId) -> QuotaExceededError:
        """Return why a batch was refused that found no room."""
        if self.is_store_full:
            return StoreFullError(
                f"partition {partition}: Redis holds {FULL_SHARE * 100:.0f} % of its maxmemory: it "
                f"takes no messages until it holds less; {self._holders.describe()}; or give it "
                "more memory, and publish again later",
                retry_after_s=RETRY_AFTER_S,
            )
        return QuotaExceededError(
            f"partition {partition}: the quota of the queue (limits.maxSpoolBytes) is used up; "
            f"{self._holders.describe()}; or raise it, and publish again later",
            retry_after_s=RETRY_AFTER_S,
        )

    async def refresh(self) -> None:
        """Read the sum of the queue and the memory of Redis; to be called each second."""
        self.info = await self._store.info(only_reachable=True)
        config = self._config()
        if config is None or config.is_deleted:
            return
        limit = config.max_spool_bytes
        if limit is None:
            self._metrics.observe_quota(None, 0)
            return
        self.sharers = brokers = {*self._living(), self._broker}
        used = await self._leases.read_usage()
        if self._broker == min(brokers):
            mine = (used[0] + 1 if used else 1, await self._add_up(config.layout.partitions()))
            # One that came too late is nobody's: this broker, too, goes by what is stored.
            is_written = await self._leases.write_usage(*mine)
            used = mine if is_written else await self._leases.read_usage()
        if used is None or used[0] == self._seen:
            return  # what was granted stands until there is news
        self._seen = used[0]
        self._share.observe(max_bytes=limit, used_bytes=used[1], brokers=len(brokers))
        self._metrics.observe_quota(limit, used[1])

    async def _add_up(self, partitions: Sequence[PartitionId]) -> int:
        """Return how many bytes partitions hold, in their logs, beside them, and in states of keys.

        What lies on a silent node of a Redis Cluster has stayed as it was known last.

        Raises:
            StoreUnavailableError: no answer, or of a silent one nothing is known.
        """
        records = await self._partitions.read_many(partitions, only_reachable=True)
        unknown = [each for each in partitions if each not in records and each not in self._sizes]
        records |= await self._partitions.read_many(unknown)
        sizes = {
            partition: record.bytes + record.state_bytes + record.scheduled_bytes
            for partition, record in records.items()
        }
        self._sizes = {each: sizes.get(each, self._sizes.get(each, 0)) for each in partitions}
        return sum(self._sizes.values())
