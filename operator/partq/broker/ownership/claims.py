"""Watches the leases of the other brokers and claims unserved partitions."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from partq.core.brokers import LEASE_FACTOR
from partq.core.hashing import rendezvous
from partq.core.model import BrokerId, PartitionId
from partq.core.records import LeaseRecord
from partq.errors import PartqError, UnavailableError
from partq.store.records.leases import Leases
from partq.store.records.partitions import Partitions
from partq.store.records.stored_partition import StoredPartition

WATCH_GAP_S = 0.5
"""How often the leases are read."""
RANK_GAP_S = 1.0
"""Brokers claim one after another, in rendezvous order, so far apart."""
FIRST_CLAIM_WAIT_S = 3.0
"""Seconds for which an unowned partition without a successor is left to the coordinator."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class LeaseObserver:
    """Judges leases by this machine's clock only: no instant is compared across machines."""

    seen: dict[BrokerId, tuple[str, int, float]] = field(default_factory=dict)
    leases: dict[BrokerId, LeaseRecord] = field(default_factory=dict)
    _observed_at: float = -math.inf

    def observe(self, leases: dict[BrokerId, LeaseRecord], now: float) -> None:
        """Take note of all leases as they are now."""
        for broker, lease in leases.items():
            known = self.seen.get(broker)
            if known is None or known[:2] != (lease.incarnation, lease.counter):
                self.seen[broker] = (lease.incarnation, lease.counter, now)
        self.seen = {broker: seen for broker, seen in self.seen.items() if broker in leases}
        self.leases = leases
        self._observed_at = now

    def age_s(self, now: float) -> float:
        """Return for how many seconds no leases were seen: those of others look over, then."""
        return now - self._observed_at

    def living(self, now: float) -> set[BrokerId]:
        """Return the brokers whose lease is not over."""
        return {
            broker
            for broker, lease in self.leases.items()
            if now - self.seen[broker][2] <= LEASE_FACTOR * lease.ttl_s
        }


class Claims:
    """Watch leases and the index of owners; claim partitions whose owner is gone."""

    def __init__(
        self,
        leases: Leases,
        partitions: Partitions,
        *,
        broker: BrokerId,
        clock: Callable[[], float],
        owned: Callable[[], Collection[PartitionId]],
        all_partitions: Callable[[], Collection[PartitionId]],
        claim: Callable[[PartitionId, StoredPartition], Awaitable[None]],
        is_valid: Callable[[], bool],
        ttl_s: float,
    ) -> None:
        """`ttl_s`: of this broker's lease, as of those of the others."""
        self._leases = leases
        self._partitions = partitions
        self._broker = broker
        self._clock = clock
        self._owned = owned
        self._all = all_partitions
        self._claim = claim
        self._is_valid = is_valid
        self._ttl_s = ttl_s
        self._free_since: dict[PartitionId, float] = {}
        self.observer = LeaseObserver()
        self.owners: dict[PartitionId, BrokerId] = {}
        """The index as last read; the partition's record decides."""
        self._begun_reads = 0
        self._known_read = 0
        """The read that what is known comes from."""

    def owner_url(self, partition: PartitionId) -> tuple[BrokerId, str] | None:
        """Return the other, living broker that owns a partition, as far as this one knows."""
        owner = self.owners.get(partition)
        if owner is None or owner not in self._others():
            return None
        return owner, self.observer.leases[owner].url

    def served(self) -> set[PartitionId]:
        """Return the partitions that a living broker owns, as far as this broker knows."""
        others = self._others()
        return {p for p, owner in self.owners.items() if owner in others} | set(self._owned())

    async def record_own(self, partition: PartitionId) -> None:
        """Write into the index that this broker has claimed a partition."""
        try:
            await self._leases.record_owner(partition, self._broker)
        except PartqError as error:
            # The index is for finding; a caller that looks again reads the record.
            _log.warning("the owner of %s could not be recorded: %s", partition, error)

    def seen_living(self) -> dict[BrokerId, LeaseRecord]:
        """Return the leases of the brokers that live, as far as leases were read lately."""
        living = self.observer.living(self._clock())
        return {broker: self.observer.leases[broker] for broker in living}

    def living(self) -> dict[BrokerId, LeaseRecord]:
        """Return the leases of the brokers that live.

        Raises:
            UnavailableError: leases were not read for longer than one lasts. Those of all others
                look over then, whether they are or not.
        """
        now = self._clock()
        age_s = self.observer.age_s(now)
        if age_s > LEASE_FACTOR * self._ttl_s:
            since = f"for {age_s:.0f} s" if math.isfinite(age_s) else "yet"
            raise UnavailableError(
                f"broker {self._broker}: it has not read {since} which brokers live; ask another "
                "broker, or try again"
            )
        living = self.observer.living(now)
        return {b: lease for b, lease in self.observer.leases.items() if b in living}

    async def refresh(self) -> None:
        """Read leases and owners now."""
        self._begun_reads += 1
        read = self._begun_reads
        leases, owners = await self._leases.read()
        if read < self._known_read:
            return  # one that began later was answered before
        self._known_read = read
        self.observer.observe(leases, self._clock())
        self.owners = owners

    async def run(self) -> None:
        """Watch and claim until cancelled."""
        while True:
            try:
                await self.refresh()
                if self._is_valid():
                    await self._claim_free()
            except PartqError as error:
                _log.warning("the owners of partitions could not be read: %s", error)
            await asyncio.sleep(WATCH_GAP_S)

    def successor(self, partition: PartitionId) -> BrokerId | None:
        """Return the living broker that is to claim a partition when this one gives it up."""
        others = self._others()
        return rendezvous(partition, others)[0] if others else None

    def _others(self) -> set[BrokerId]:
        return self.observer.living(self._clock()) - {self._broker}

    async def _claim_free(self) -> None:
        now = self._clock()
        living = self.observer.living(now)
        mine = set(self._owned())
        others = living - {self._broker}
        free = [p for p in self._all() if p not in mine and self.owners.get(p) not in others]
        self._free_since = {p: self._free_since.get(p, now) for p in free}
        records = await self._partitions.read_many(free, only_reachable=True)
        elsewhere = {p: r.owner for p, r in records.items() if r.owner in others}
        due = {
            p: record
            for p, record in records.items()
            if p not in elsewhere and now - self._free_since[p] >= self._wait_s(p, record, living)
        }
        if any(record.owner not in (None, self._broker) for record in due.values()):
            # An owner that came back before its record was read has renewed its lease by now; one
            # that comes back later affirms the record, and the claim is refused.
            await self.refresh()
        others = self._others()
        await asyncio.gather(
            *(self._leases.record_owner(p, owner) for p, owner in elsewhere.items()),
            *(self._claim_one(p, r) for p, r in due.items() if r.owner not in others),
        )

    async def _claim_one(self, partition: PartitionId, seen: StoredPartition) -> None:
        try:
            await self._claim(partition, seen)
        except PartqError as error:
            _log.info("partition %s could not be claimed: %s", partition, error)

    def _wait_s(
        self, partition: PartitionId, record: StoredPartition, living: set[BrokerId]
    ) -> float:
        """Return for how long a partition is to be free before this broker claims it."""
        if self._broker in (record.owner, record.successor):
            return 0.0  # the last owner, or the one that it has named, claims at once
        order = rendezvous(partition, living | {self._broker})
        wait_s = order.index(self._broker) * RANK_GAP_S
        if record.successor in living:
            return wait_s + RANK_GAP_S
        return wait_s + (FIRST_CLAIM_WAIT_S if record.owner is None else 0.0)
