"""Which slots each partition of an archived queue has, as the entries of its archive tell it."""

from collections.abc import Iterable

from partq.core.model import PartitionId
from partq.core.slot_table import SlotRanges, SlotTable, joined
from partq.errors import SettingsError
from partq.pipeline.manifest import ArchiveState


def archived_table(state: ArchiveState) -> SlotTable | None:
    """Return the table after the last change of the partition count that an archive knows.

    None: it does not know all partitions of the first generation, or where the slots of a later
    partition came from.
    """
    named = {PartitionId.parse(name) for told in state.beginnings.values() for name in told} | {
        PartitionId.parse(name) for name in state.lineage
    }
    first = [each for each in named if each.generation == 1]
    if not first or max(first).index + 1 != len(first):
        return None
    slots: dict[PartitionId, SlotRanges] = dict(SlotTable.first(len(first)).slots)
    for partition in sorted(named.difference(first)):
        predecessors = state.lineage.get(str(partition))
        if predecessors is None:
            return None
        taken = [range(start, stop) for told in predecessors.values() for start, stop in told.slots]
        for name in predecessors:
            giver = PartitionId.parse(name)
            slots[giver] = _without(slots.get(giver, ()), taken)
        slots[partition] = joined(taken)
    try:
        return SlotTable({each: ranges for each, ranges in slots.items() if ranges})
    except SettingsError:
        return None  # the last change is known only in part


def _without(ranges: SlotRanges, taken: Iterable[range]) -> SlotRanges:
    left = list(ranges)
    for each in taken:
        left = [
            part
            for kept in left
            for part in (
                range(kept.start, min(kept.stop, each.start)),
                range(max(kept.start, each.stop), kept.stop),
            )
            if part
        ]
    return joined(left)
