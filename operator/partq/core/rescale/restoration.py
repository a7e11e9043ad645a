"""A layout record that a store has set back, restored from the records of the partitions.

One node of a Redis Cluster may forget its last writes, and so the last steps of the layout, while
the nodes of the partitions keep theirs. The record of a new partition says which slots it has, and
from which predecessors; that of a predecessor says which changes have sealed it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple, Protocol

from partq.core.layout import Layout, Lineage
from partq.core.model import Offset, PartitionId
from partq.core.rescale.layout_steps import counts_after, kept_changes, record_of
from partq.core.slot_table import SlotChange, SlotRanges, SlotTable, joined, without
from partq.errors import ConflictError, SettingsError

MAX_LOST = 32
"""The most numbers of changes that a layout may have lost."""


class RecordedLayout(Protocol):
    """What changes of the partition count have left in the record of a partition."""

    @property
    def generation(self) -> int:
        """Of the last change that took slots away, or else that made the partition."""

    @property
    def predecessors(self) -> Mapping[PartitionId, SlotRanges]:
        """Where its slots came from."""

    @property
    def is_open(self) -> bool:
        """Whether it takes messages."""

    @property
    def seals(self) -> Mapping[int, Offset]:
        """Generation of each change that took slots away → the end of the log at that time.

        A later seal removes those of changes that the partition is settled for.
        """


Records = Mapping[PartitionId, RecordedLayout]


class Restored(NamedTuple):
    """A layout as the records of the partitions have it."""

    layout: Layout
    removed: Sequence[PartitionId]
    """Partitions with a record that are not in it: their keys are to be erased."""


def last_known(records: Records) -> int:
    """Return the highest number of a change that the records know, be it in force or not."""
    known = (max(each.generation, record.generation) for each, record in records.items())
    return max(known, default=1)


def in_force(records: Records) -> set[int]:
    """Return the numbers of the changes that must have come into force, as the records say.

    Only such a change seals, and opens what it has made.
    """
    found = {each.generation for each, record in records.items() if record.is_open}
    for partition, record in records.items():
        found.update(record.seals)
        if record.generation > partition.generation:
            found.add(record.generation)
    return found


def is_set_back(layout: Layout, records: Records) -> bool:
    """Whether the store has lost steps of the layout that the records of partitions know."""
    return (
        last_known(records) > layout.last_generation
        or max(in_force(records), default=1) > layout.generation
        or any(each not in records for each in layout.retired)
    )


def restored(layout: Layout, records: Records, now_ms: int) -> Restored:
    """Return the layout with the changes that it has lost: one step from the stored one.

    A change comes into force again if anything says that it was. The last one, if all of its
    partitions are there, may have been: it is prepared again, and marked as one that must not be
    aborted, as a broker may still act by the layout that was lost. What aborted changes have left
    is removed.

    Args:
        layout: as it is stored.
        records: of all partitions that have one, also of generations that the layout does not know.
        now_ms: in Redis's time, from which on partitions without slots are retired.

    Raises:
        ConflictError: the records do not add up to a table of all slots.
    """
    made: dict[int, dict[PartitionId, RecordedLayout]] = {}
    for partition in sorted(records):
        if partition.generation > layout.generation:
            made.setdefault(partition.generation, {})[partition] = records[partition]
    evident = in_force(records)
    found = replace(layout, next=None, must_commit=False)
    if max(evident, default=1) > layout.generation:
        made_in_force = {number: each for number, each in made.items() if number in evident}
        found = _with_changes(found, made_in_force, max(evident), now_ms)
        found = _with_predecessors(found, made_in_force, records, now_ms)
    last = last_known(records)
    if last > found.generation and last in made:
        change = _change_of(found.table.slots, made[last])
        if change is not None:
            record = record_of(found, change, last, 0)
            changes = (*kept_changes(found, before=last), record)
            found = replace(found, next=change, must_commit=True, changes=changes)
    last = max(layout.last_generation, last)
    found = _without_gone(found, records)
    found = replace(found, revision=layout.revision + 1, last_generation=last)
    return Restored(found, [each for each in sorted(records) if each not in found])


def _with_changes(
    layout: Layout, made: Mapping[int, Records], generation: int, now_ms: int
) -> Layout:
    """Return the layout with the tables of lost changes. `generation`: of the last of them.

    Raises:
        ConflictError: the records do not add up to a table of all slots.
    """
    slots: Mapping[PartitionId, SlotRanges] = layout.table.slots
    for number, successors in sorted(made.items()):
        change = _change_of(slots, successors)
        if change is None:
            # Some of its partitions were removed since: then later ones have their slots.
            slots = _slots_after(slots, successors)
            continue
        slots = change.table.slots
        record = record_of(layout, change, number, 0)._replace(committed_at_ms=now_ms)
        layout = replace(
            layout,
            table=change.table,
            generation=number,
            counts=counts_after(layout, number, change.table.partition_count),
            changes=(*kept_changes(layout, before=number), record),
        )
    if layout.generation != generation:
        raise ConflictError(
            f"layout: change {generation} was in force and is lost, and the records of partitions "
            "do not add up to a table of all slots; the store has lost some of those, too: restore "
            "a backup of all nodes of Redis, or delete the queue"
        )
    return layout


def _with_predecessors(
    layout: Layout, made: Mapping[int, Records], records: Records, now_ms: int
) -> Layout:
    """Return the layout with predecessors that are not settled, as far as they have records."""
    lineage = dict(layout.lineage)
    for successors in made.values():
        lineage |= {each: record.predecessors for each, record in successors.items()}
    known = {*layout.table.slots, *layout.retired, *chain.from_iterable(made.values())}
    known |= {giver for givers in lineage.values() for giver in givers}
    emptied = {each: now_ms for each in sorted(known) if each not in layout.table.slots}
    retired = {**emptied, **layout.retired}
    return replace(
        layout,
        lineage=_unsettled(lineage, records),
        retired={each: at_ms for each, at_ms in retired.items() if each in records},
    )


def _without_gone(layout: Layout, records: Records) -> Layout:
    """Return the layout without retired partitions that have no record: nobody can read them."""
    gone = {each for each in layout.retired if each not in records}
    lineage = {
        successor: {giver: slots for giver, slots in givers.items() if giver not in gone}
        for successor, givers in layout.lineage.items()
        if successor not in gone
    }
    return replace(
        layout,
        lineage={each: givers for each, givers in lineage.items() if givers},
        retired={each: at_ms for each, at_ms in layout.retired.items() if each not in gone},
    )


def _unsettled(lineage: Lineage, records: Records) -> Lineage:
    """Return the predecessors that still may hold messages for a group to read first.

    One that is removed does not, nor one that has removed the seal. One that was settled and has
    the seal comes back, and settles again when its record is read next.
    """
    found = {
        successor: {
            giver: slots
            for giver, slots in givers.items()
            if giver in records and not _has_removed_seal(records[giver], successor.generation)
        }
        for successor, givers in lineage.items()
        if successor in records
    }
    return {each: givers for each, givers in found.items() if givers}


def _has_removed_seal(giver: RecordedLayout, generation: int) -> bool:
    """Whether a predecessor has removed the seal of a change: it was settled, and sealed again.

    Where the store has lost a seal, the record knows no later one; the partition is sealed again.
    """
    return generation not in giver.seals and giver.generation > generation


def _change_of(slots: Mapping[PartitionId, SlotRanges], made: Records) -> SlotChange | None:
    """Return the change of a table that has made partitions; None: some of them are missing."""
    try:
        table = SlotTable(_slots_after(slots, made))
    except SettingsError:
        return None
    return SlotChange(table, {each: record.predecessors for each, record in made.items()})


def _slots_after(
    slots: Mapping[PartitionId, SlotRanges], made: Records
) -> dict[PartitionId, SlotRanges]:
    """Return the slots of all partitions once new ones have those of their predecessors."""
    new = {
        successor: joined(chain.from_iterable(record.predecessors.values()))
        for successor, record in made.items()
    }
    taken = joined(chain.from_iterable(new.values()))
    left = {partition: without(each, taken) for partition, each in slots.items()}
    return {each: found for each, found in {**left, **new}.items() if found}
