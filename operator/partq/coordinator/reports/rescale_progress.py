"""Reads from the records how far a change of the partition count has come."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence, Sized
from typing import Protocol

from partq.core.layout import Layout
from partq.core.model import BrokerId, Offset, PartitionId
from partq.core.rescale import GroupProgress
from partq.core.views.rescale_status import PartitionProgress, read_partitions
from partq.errors import UnknownGroupError

CHUNK = 200
"""Cursors that are read side by side."""
OPEN = "1"
"""The gate of a group that gets messages."""


class SealRecord(Protocol):
    """What changes have left in a partition's record."""

    @property
    def is_open(self) -> bool:
        """Whether it takes messages."""

    @property
    def seals(self) -> Mapping[int, Offset]:
        """Generation of each change that took slots away → the end of the log at that time."""


class ProgressRecord(Protocol):
    """The part of a partition's record that is read here."""

    @property
    def owner(self) -> BrokerId | None:
        """The broker that claimed it last."""

    @property
    def next(self) -> Offset:
        """The offset of the next message."""

    @property
    def groups(self) -> Collection[str]:
        """The groups that have a cursor."""

    @property
    def layout(self) -> SealRecord:
        """What changes have left in it."""


class GateRecord(Protocol):
    """The part of a group's record in a partition that is read here."""

    @property
    def cursor(self) -> Offset:
        """Everything below is acknowledged."""

    @property
    def gate(self) -> str:
        """Whether the group gets messages."""

    @property
    def outbox(self) -> Sized:
        """Dead letters on their way."""


class ProgressStore(Protocol):
    """The partitions' records."""

    async def read_many(
        self, partitions: Sequence[PartitionId], *, only_reachable: bool = False
    ) -> Mapping[PartitionId, ProgressRecord]:
        """Return the records that can be read."""

    async def read_cursor(self, partition: PartitionId, group: str) -> GateRecord:
        """Return the record of a group in a partition."""


async def read_progress(
    store: ProgressStore, layout: Layout, living: Collection[BrokerId]
) -> dict[PartitionId, PartitionProgress]:
    """Return what `rescale_status` asks for; nothing is read of a queue that does not change.

    Of a Redis Cluster with a silent node its partitions are left out.

    Args:
        store: of the queue.
        layout: as it is stored.
        living: the brokers with a lease.

    Raises:
        StoreUnavailableError: no answer.
    """
    asked = read_partitions(layout)
    if not asked:
        return {}
    records = await store.read_many(asked, only_reachable=True)
    wanted = [(p, group) for p, record in records.items() for group in sorted(record.groups)]
    found: dict[PartitionId, dict[str, GroupProgress]] = {p: {} for p in records}
    for pairs in _chunks(wanted):
        reads = (store.read_cursor(*pair) for pair in pairs)
        cursors = await asyncio.gather(*reads, return_exceptions=True)
        for (partition, group), cursor in zip(pairs, cursors, strict=True):
            if isinstance(cursor, UnknownGroupError):
                continue  # it was removed meanwhile
            if isinstance(cursor, BaseException):
                raise cursor
            found[partition][group] = GroupProgress(
                cursor.cursor, cursor.gate == OPEN, len(cursor.outbox)
            )
    return {
        partition: PartitionProgress(
            has_owner=record.owner in living,
            is_open=record.layout.is_open,
            end=record.next,
            seals=record.layout.seals,
            groups=found[partition],
        )
        for partition, record in records.items()
    }


def _chunks(
    pairs: Sequence[tuple[PartitionId, str]],
) -> Iterator[Sequence[tuple[PartitionId, str]]]:
    return (pairs[start : start + CHUNK] for start in range(0, len(pairs), CHUNK))
