"""Makes what a queue's layout and its groups need in the store: partitions and cursors."""

from collections.abc import Mapping, Sequence

from partq.coordinator.chunks import in_chunks
from partq.coordinator.cursors import read_births, remove_cursors
from partq.coordinator.ports import ConfigStore, PartitionStore, SealStore
from partq.core.layout import Layout
from partq.core.model import PartitionId, Start
from partq.core.rescale.restoration import is_set_back

_Wanted = tuple[Sequence[PartitionId], Mapping[str, Start], int]


async def create_partitions(
    partitions: PartitionStore, seals: SealStore, layout: Layout
) -> set[PartitionId]:
    """Make the records of all partitions of a layout that have none.

    Returns those of a change that is being prepared which are not as it has them.
    """
    unfit: set[PartitionId] = set()

    async def create(partition: PartitionId) -> None:
        if partition.generation == 1:
            await partitions.create(partition)
            return
        givers, slots = layout.predecessors(partition), layout.slots(partition)
        is_fit = await seals.create_successor(partition, givers, slots)
        if not is_fit and layout.is_prepared(partition):
            unfit.add(partition)

    await in_chunks(create(partition) for partition in layout.all_partitions())
    return unfit


class RecordSync:
    """Brings the partitions' records in line when layout or groups have changed."""

    def __init__(self, partitions: PartitionStore, seals: SealStore, configs: ConfigStore) -> None:
        self._partitions = partitions
        self._seals = seals
        self._configs = configs
        self._done: _Wanted | None = None
        self._fenced: _Wanted | None = None
        """For what the partitions were fenced last."""
        self.unfit: set[PartitionId] = set()
        """Of the change that is being prepared: records of another change of its number."""
        self.is_layout_behind = False
        """Whether the last call has read records that know of changes which the layout lacks."""

    def forget(self) -> None:
        """Make everything again, as a record is missing: the store may have forgotten more."""
        self._done = self._fenced = None

    async def sync(self, layout: Layout, starts: Mapping[str, Start], generation: int) -> None:
        """Create missing partitions and cursors, and remove those of groups that are gone.

        A change of the partition count is prepared for the groups that are being made, too.

        Args:
            layout: with the partitions that are being prepared.
            starts: every group, with the place where it begins when it is new.
            generation: of the queue's config that names them. It grows when a group is removed and
                created again, of which the names tell nothing.

        Raises:
            ConflictError: another coordinator does the same; a repeat finds what is left.
            StoreUnavailableError: some of it may be done; a repeat does the rest.
        """
        partitions = layout.all_partitions()
        wanted = (partitions, dict(starts), generation)
        self.is_layout_behind = False
        if self._done == wanted:
            return
        store = self._partitions
        if self._fenced != wanted:
            self.unfit = await create_partitions(store, self._seals, layout)
            if self.unfit:
                return  # the change gets another number
            # A cursor that another coordinator adds by a late call would hold the log without end.
            await in_chunks(store.fence_groups(partition) for partition in partitions)
            self._fenced = wanted
        records = await store.read_many(partitions)
        recorded = {each: record.layout for each, record in records.items()}
        self.is_layout_behind = is_set_back(layout, recorded)
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
        # What is being made has cursors where a layout says that has no change prepared yet.
        prepared = layout.next.lineage if layout.next is not None else ()
        await in_chunks(
            store.add_group(partition, group, start="Earliest", fence=record.groups_fence)
            for partition, record in records.items()
            if partition in prepared
            for group in sorted(others - gone)
            if group not in record.groups
        )
        if gone == others:
            self._done = wanted
