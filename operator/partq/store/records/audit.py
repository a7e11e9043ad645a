"""The audit records of partitions: adding what brokers record themselves, reading, trimming."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from partq.core.model import BrokerEpoch, BrokerId, PartitionId
from partq.errors import ConflictError
from partq.store.codec import groups_of
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.stored_partition import AuditState
from partq.store.refusals import FENCED, SUPERSEDED, fenced, unknown_partition
from partq.store.server import Channel
from partq.wire.audit import AuditGroup

_FIRST_COUNT = 8
"""Groups of the first read: their size is not known yet."""
_MAX_GROUPS = 1000
"""Groups of one read, at most."""
_MAX_SWITCH_TRIES = 5
_GROUP_AT: Final = 7
_STATE_FIELDS: Final = (b"audit", b"audit_off", b"audit_trimmed")


class Numbered(NamedTuple):
    """Records that a broker writes, with the number of the first one under its broker epoch."""

    first: int
    records: Sequence[bytes]


NO_RECORDS: Final = Numbered(0, ())


class Audits:
    """The audit records of one queue's partitions."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def write(
        self, partition: PartitionId, *, broker_epoch: BrokerEpoch, audit: Numbered
    ) -> None:
        """Write what is in the broker's memory only; nothing where no record is kept.

        Repeat it with the same numbers until it is answered: what is stored is not written again,
        nor what came while no record was kept, once one has begun.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
            StoreUnavailableError: no answer; written or not.
        """
        answer = await self._store.run(
            "write_audit",
            (self._keys.meta(partition), self._keys.audit(partition)),
            (broker_epoch, audit.first, *audit.records),
            channel=Channel.APPEND,  # shares its fsyncs, as acks do
        )
        if answer == FENCED:
            raise fenced(partition, broker_epoch)

    async def switch(
        self,
        partition: PartitionId,
        broker: BrokerId,
        *,
        broker_epoch: BrokerEpoch,
        number: int,
        is_on: bool,
    ) -> None:
        """Begin the record of a partition, or end it; a repeat changes nothing.

        Args:
            partition: whose record it is.
            broker: that owns the partition.
            broker_epoch: under which it does.
            number: of this call under the epoch: higher than those of all calls before.
            is_on: whether the record begins.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
            ConflictError: groups came and went during every try, or a later call was carried out;
                nothing is written.
            StoreUnavailableError: no answer; switched or not.
        """
        meta = self._keys.meta(partition)
        for _ in range(_MAX_SWITCH_TRIES):
            fields = await self._store.read("HKEYS", meta)
            groups = sorted(groups_of(fields))
            cursors = [self._keys.cursor(partition, group) for group in groups]
            answer = await self._store.run(
                "switch_audit",
                [meta, self._keys.audit(partition), *cursors],
                [broker_epoch, int(is_on), broker, number, *groups],
            )
            if answer == FENCED:
                raise fenced(partition, broker_epoch)
            if answer == 1:
                return
            if answer == SUPERSEDED:
                raise ConflictError(
                    f"partition {partition}: its audit was switched again meanwhile; "
                    "that later switch holds"
                )
        raise ConflictError(
            f"partition {partition}: its groups change all the time; switch its audit again"
        )

    async def read_state(self, partition: PartitionId) -> AuditState:
        """Return how far the record has come.

        Raises:
            UnknownPartitionError: the store has no record of the partition.
        """
        key = self._keys.meta(partition)
        found = await self._store.read("HMGET", key, "next", *_STATE_FIELDS)
        if found[0] is None:
            raise unknown_partition(partition)
        pairs = zip(_STATE_FIELDS, found[1:], strict=True)
        return AuditState.of({name: value for name, value in pairs if value is not None})

    async def read(self, partition: PartitionId, start: int, *, max_bytes: int) -> list[AuditGroup]:
        """Return groups from the sequence `start` on: as many as fit, and at least one if it is.

        Those that were trimmed are left out.
        """
        key = self._keys.audit(partition)
        groups: list[AuditGroup] = []
        left, count, after = max_bytes, _FIRST_COUNT, f"{start}-1"
        while True:
            found = await self._store.read("XRANGE", key, after, "+", "COUNT", count)
            for entry_id, fields in found:
                group = AuditGroup(fields[1].decode(), fields[3].decode(), fields[_GROUP_AT])
                left -= len(group.data)
                if left < 0 and groups:
                    return groups
                groups.append(group)
                after = f"({entry_id.decode()}"
            if len(found) < count or left <= 0:
                return groups
            typical = max(1, (max_bytes - left) // len(groups))
            count = min(_MAX_GROUPS, left // typical + 1)

    async def trim(
        self, partition: PartitionId, keep_from: int, *, broker_epoch: BrokerEpoch
    ) -> AuditState:
        """Free the groups below the sequence `keep_from`, and return what is stored then.

        Raises:
            FencedError: another broker has claimed the partition; nothing is freed.
            StoreUnavailableError: no answer; trim again.
        """
        first = -1
        while first < keep_from:
            answer = await self._store.run(
                "trim_audit",
                [self._keys.meta(partition), self._keys.audit(partition)],
                [broker_epoch, keep_from],
                channel=Channel.BULK,
            )
            if answer == FENCED:
                raise fenced(partition, broker_epoch)
            first, following = map(int, answer)
            if first == following:
                break
        return await self.read_state(partition)
