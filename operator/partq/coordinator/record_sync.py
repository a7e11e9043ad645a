"""Makes what a queue's layout and its groups need in the store: partitions and cursors."""

from collections.abc import Mapping, Sequence

from partq.coordinator.chunks import in_chunks
from partq.coordinator.cursors import read_births, remove_cursors
from partq.coordinator.ports import ConfigStore, PartitionStore
from partq.core.model import PartitionId, Start


class RecordSync:
    """Brings the partitions' records in line when layout or groups have changed."""

    def __init__(self, partitions: PartitionStore, configs: ConfigStore) -> None:
        self._partitions = partitions
        self._configs = configs
        self._done: tuple[Sequence[PartitionId], Mapping[str, Start], int] | None = None
        self._fenced: tuple[Sequence[PartitionId], Mapping[str, Start], int] | None = None
        """For what the partitions were fenced last."""

    async def sync(
        self,
        partitions: Sequence[PartitionId],
        starts: Mapping[str, Start],
        generation: int,
    ) -> None:
        """Create missing partitions and cursors, and remove those of groups that are gone.

        Args:
            partitions: all of the layout.
            starts: every group, with the place where it begins when it is new.
            generation: of the queue's config that names them. It grows when a group is removed and
                created again, of which the names tell nothing.

        Raises:
            ConflictError: another coordinator does the same; a repeat finds what is left.
            StoreUnavailableError: some of it may be done; a repeat does the rest.
        """
        wanted = (partitions, dict(starts), generation)
        if self._done == wanted:
            return
        store = self._partitions
        if self._fenced != wanted:
            await in_chunks(store.create(partition) for partition in partitions)
            # A cursor that another coordinator adds by a late call would hold the log without end.
            await in_chunks(store.fence_groups(partition) for partition in partitions)
            self._fenced = wanted
        records = await store.read_many(partitions)
        # A process that removes a group from here on fences what is added below.
        config = await self._configs.read_queue()
        if config is None or config.resource_generation != generation:
            return  # the next look knows more
        await in_chunks(
            store.add_group(partition, group, start=start, fence=record.groups_fence)
            for partition, record in records.items()
            for group, start in starts.items()
            if group not in record.groups
        )
        others = {group for record in records.values() for group in record.groups} - starts.keys()
        # Before the specs are read: one that is created again from here on began later.
        births = await read_births(store, records, others)
        # A group that is being made has its spec stored before its first cursor, and its name
        # after the last: `starts` may not know it yet. One that is gone has no spec any more.
        # Of a silent one that is not known: a repeat finds it.
        specs = await self._configs.read_reachable_groups(sorted(others))
        gone = {group for group, spec in specs.items() if spec is None}
        await remove_cursors(store, records, gone, births)
        if gone == others:
            self._done = wanted
