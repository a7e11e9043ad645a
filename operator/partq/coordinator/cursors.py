"""The cursors that groups have in the partitions of a queue: when they began, and their end."""

from collections.abc import Iterator, Mapping

from partq.coordinator.chunks import in_chunks
from partq.coordinator.ports import PartitionRecord, PartitionStore
from partq.core.model import PartitionId

Records = Mapping[PartitionId, PartitionRecord]
Births = Mapping[tuple[PartitionId, str], int]
"""When a group began in a partition, in Redis's time; 0 or none: an earlier version made it."""


async def read_births(partitions: PartitionStore, records: Records, groups: set[str]) -> Births:
    """Return when those of `groups` began that the records name."""
    return await partitions.births(_places(records, groups))


async def remove_cursors(
    partitions: PartitionStore, records: Records, groups: set[str], births: Births
) -> None:
    """Remove those of `groups` that the records name; one that was created again since stays."""
    await in_chunks(
        partitions.remove_group(partition, group, born=births.get((partition, group), 0))
        for partition, group in _places(records, groups)
    )


def _places(records: Records, groups: set[str]) -> Iterator[tuple[PartitionId, str]]:
    return (
        (partition, group)
        for partition, record in records.items()
        for group in groups.intersection(record.groups)
    )
