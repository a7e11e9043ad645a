"""Reads from the records how far a change of the partition count has come."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from partq.core.layout import Layout
from partq.core.model import BrokerId, Offset, PartitionId
from partq.core.rescale.gates import GroupProgress
from partq.core.rescale.restoration import RecordedLayout
from partq.core.views.rescale_status import PartitionProgress, read_partitions

CHUNK = 500
"""Partitions that are read at once."""


class ProgressRecord(Protocol):
    """The part of a partition's record that is read here."""

    @property
    def owner(self) -> BrokerId | None:
        """The broker that claimed it last."""

    @property
    def next(self) -> Offset:
        """The offset of the next message."""

    @property
    def bytes(self) -> int:
        """How much its log holds."""

    @property
    def groups(self) -> Collection[str]:
        """The groups that have a cursor."""

    @property
    def layout(self) -> RecordedLayout:
        """What changes have left in it."""


class ProgressStore(Protocol):
    """The partitions' records."""

    async def read_many(
        self, partitions: Sequence[PartitionId], *, only_reachable: bool = False
    ) -> Mapping[PartitionId, ProgressRecord]:
        """Return the records that can be read."""


class GateStore(Protocol):
    """The groups' records in the partitions."""

    async def read_progress(
        self, wanted: Iterable[tuple[PartitionId, str]]
    ) -> Mapping[tuple[PartitionId, str], GroupProgress]:
        """Return how far groups have come, as far as it can be read."""


async def read_rescale_progress(
    partitions: ProgressStore,
    gates: GateStore,
    layout: Layout,
    living: Collection[BrokerId],
    wanted_count: int | None = None,
) -> dict[PartitionId, PartitionProgress]:
    """Return what `rescale_status` asks for; nothing is read of a queue that does not change.

    Of a Redis Cluster with a silent node its partitions are left out.

    Args:
        partitions: of the queue.
        gates: of its groups.
        layout: as it is stored.
        living: the brokers with a lease.
        wanted_count: how many partitions the queue is to have; None: nobody has said.

    Raises:
        StoreUnavailableError: no answer.
    """
    asked = read_partitions(layout, wanted_count)
    found: dict[PartitionId, PartitionProgress] = {}
    for start in range(0, len(asked), CHUNK):
        records = await partitions.read_many(asked[start : start + CHUNK], only_reachable=True)
        places = [(each, group) for each, record in records.items() for group in record.groups]
        groups: dict[PartitionId, dict[str, GroupProgress]] = {each: {} for each in records}
        for (partition, group), progress in (await gates.read_progress(places)).items():
            groups[partition][group] = progress
        found |= {
            partition: PartitionProgress(
                has_owner=record.owner in living,
                is_open=record.layout.is_open,
                end=record.next,
                seals=record.layout.seals,
                groups=groups[partition],
                generation=max(partition.generation, record.layout.generation),
            )
            for partition, record in records.items()
        }
    return found
