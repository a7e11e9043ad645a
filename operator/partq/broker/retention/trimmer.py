"""Trims the logs whose groups have moved on."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from partq.broker.log.known_ids import KnownIds
from partq.broker.ownership.server_looks import ServerLooks, Spawn
from partq.broker.partition.owned_partition import OwnedPartition
from partq.broker.retention.retention import Retention
from partq.core.model import PartitionId
from partq.errors import ConflictError, PartqError
from partq.metrics import BrokerMetrics
from partq.store.records.log import Log, RetainedMessages


class Trimmed(NamedTuple):
    """Result of the last trim of a log."""

    broker_epoch: int
    """Under which it was done: a store that has forgotten it is claimed again."""
    marks: tuple[int, ...]
    kept: RetainedMessages | None
    """What was to stay although it is acknowledged."""
    first: int
    retained_bytes: int
    is_done: bool


class Trimmer:
    """Frees what every group has done with."""

    def __init__(
        self,
        owned: Mapping[PartitionId, OwnedPartition],
        log: Log,
        retention: Retention,
        known_ids: KnownIds,
        metrics: BrokerMetrics,
        *,
        groups: Callable[[], frozenset[str]],
        on_lost: Callable[[OwnedPartition, PartqError], None],
        spawn: Spawn,
    ) -> None:
        self._looks = ServerLooks("trimming", owned, log, spawn)
        self._owned = owned
        self._log = log
        self._groups = groups
        """Those that the queue names."""
        self._retention = retention
        self._known_ids = known_ids
        self._metrics = metrics
        self._on_lost = on_lost
        self._trimmed: dict[PartitionId, Trimmed] = {}

    async def trim(self) -> None:
        """Trim each log once, if there may be something to free, and forget old ids of messages.

        The store knows a mark only after its flush, and frees so much in one call: a log is left
        alone when nothing has moved since a call that freed nothing.

        Raises:
            StoreUnavailableError: no answer, or of a Redis Cluster a node is silent, and its logs
                are trimmed another time.
        """
        await self._looks.look(self._trim)
        retained = (
            found.retained_bytes
            for owned in self._owned.values()
            if (found := self._trimmed.get(owned.id))
            and found.broker_epoch == owned.broker_epoch
            and owned.groups
        )
        self._metrics.observe_retained(sum(retained) if self._retention.is_on else None)
        counts = [owned.ids.count or 0 for owned in self._owned.values()]
        is_knowing = self._known_ids.window_ms > 0 or any(counts)
        self._metrics.observe_known_ids(sum(counts) if is_knowing else None)

    async def _trim(self, partitions: Sequence[OwnedPartition]) -> None:
        await self._trim_logs(partitions)
        for owned in partitions:
            try:
                await self._known_ids.forget(owned.id, owned.broker_epoch, owned.ids)
            except ConflictError as error:
                self._on_lost(owned, error)

    async def _trim_logs(self, partitions: Sequence[OwnedPartition]) -> None:
        wanted = self._groups()
        for owned in partitions:
            if not wanted <= owned.groups.keys():
                continue  # one has no cursor here yet, and is to have what is stored
            # Without a group only the time to live frees anything.
            marks = tuple(each.mark for each in owned.groups.values()) or (owned.expired,)
            last = self._trimmed.get(owned.id)
            if last is not None and last.broker_epoch != owned.broker_epoch:
                last = None
            if not (owned.groups or owned.expired):
                continue
            kept = await self._retention.find(owned, last.retained_bytes if last else None)
            bounds = (marks, kept)
            if last is not None and (last.marks, last.kept) == bounds and last.is_done:
                continue
            try:
                found = await self._log.trim(
                    owned.id, broker_epoch=owned.broker_epoch, expired=owned.expired, kept=kept
                )
            except ConflictError as error:
                self._on_lost(owned, error)
            else:
                # What holds more than these groups goes without a word: pins, a removed group.
                is_done = (
                    last is not None
                    and (last.first, last.marks, last.kept) == (found.first, *bounds)
                    and found.held >= min(marks)
                )
                self._trimmed[owned.id] = Trimmed(
                    owned.broker_epoch, *bounds, found.first, found.retained_bytes, is_done
                )
