"""The steps of a change of the partition count, each of which is one write of the layout record.

A change is prepared, then committed or aborted. A committed one only goes forward: predecessors
settle, and those without slots are removed. Each function returns the layout after one such step;
its caller stores it if the revision is still the one that it has read.
"""

from dataclasses import replace
from enum import StrEnum

from partq.core.layout import MAX_COUNTS, Layout, RescaleRecord
from partq.core.model import PartitionId
from partq.core.slot_table import SlotChange
from partq.errors import ConflictError

MAX_UNSETTLED = 4
"""The most changes whose predecessors may still hold messages that a group has to read first."""
MAX_CHANGES = 5
"""How many of the latest changes a layout names; besides them, all that are not settled."""


class RescaleEvent(StrEnum):
    """What is reported to people about a change."""

    STARTED = "RescaleStarted"
    COMMITTED = "RescaleCommitted"
    OPENED = "RescaleOpened"
    """All new partitions take messages."""
    SETTLED = "RescaleSettled"
    ABORTED = "RescaleAborted"


def unsettled(layout: Layout) -> tuple[int, ...]:
    """Return the generations of changes with a predecessor that is not settled."""
    return tuple(sorted({partition.generation for partition in layout.lineage}))


def awaited(layout: Layout) -> set[PartitionId]:
    """Return the predecessors that are not settled."""
    return {giver for givers in layout.lineage.values() for giver in givers}


def prepare(layout: Layout, partition_count: int, now_ms: int = 0) -> Layout:
    """Return the layout with a change that is being prepared.

    `now_ms`: for people; 0: they are not told when it was begun.

    Raises:
        ConflictError: another change is being prepared, nothing would change, or too many
            changes are not settled.
        SettingsError: not 1 to 65,536 partitions.
    """
    if layout.next is not None:
        raise ConflictError(
            f"layout: change {layout.last_generation} is being prepared; commit or abort it first"
        )
    if partition_count == layout.partition_count:
        raise ConflictError(f"layout: it has {partition_count} partitions, so nothing changes")
    if len(unsettled(layout)) >= MAX_UNSETTLED:
        raise ConflictError(
            f"layout: changes {[*unsettled(layout)]} are not settled, at most {MAX_UNSETTLED} "
            "may be; wait until the groups have read what was in their predecessors"
        )
    generation = layout.last_generation + 1
    change = layout.table.resized(partition_count, generation)
    record = record_of(layout, change, generation, now_ms)
    changes = (*kept_changes(layout, before=generation), record)
    return _step(layout, next=change, last_generation=generation, changes=changes)


def kept_changes(layout: Layout, *, before: int) -> tuple[RescaleRecord, ...]:
    """Return the changes that a layout goes on to name: the latest, and those not settled.

    `before`: the number of the next change.
    """
    earlier = [each for each in layout.changes if each.generation < before]
    named = {*unsettled(layout), *(each.generation for each in earlier[1 - MAX_CHANGES :])}
    return tuple(each for each in earlier if each.generation in named)


def record_of(
    layout: Layout, change: SlotChange, generation: int, started_at_ms: int
) -> RescaleRecord:
    """Return the record, for people, of a change of the table in force."""
    return RescaleRecord(
        generation=generation,
        from_count=layout.partition_count,
        to_count=change.table.partition_count,
        moved_slots=change.moved_count,
        predecessors=len(change.sealed),
        successors=len(change.lineage),
        started_at_ms=started_at_ms,
    )


def abort(layout: Layout) -> Layout:
    """Return the layout without the change that is being prepared.

    Raises:
        ConflictError: none is; a committed change cannot be aborted.
    """
    prepared_change(layout)
    return _step(layout, next=None, must_commit=False, changes=_with_last(layout, is_aborted=True))


def commit(layout: Layout, now_ms: int) -> Layout:
    """Return the layout with the prepared change in force.

    Raises:
        ConflictError: none is being prepared.
    """
    change = prepared_change(layout)
    emptied = {giver for giver, left in change.sealed.items() if not left}
    return _step(
        layout,
        next=None,
        must_commit=False,
        table=change.table,
        generation=layout.last_generation,
        lineage={**layout.lineage, **change.lineage},
        retired={**layout.retired, **dict.fromkeys(sorted(emptied), now_ms)},
        counts=counts_after(layout, layout.last_generation, change.table.partition_count),
        changes=_with_last(layout, committed_at_ms=now_ms),
    )


def counts_after(layout: Layout, generation: int, partition_count: int) -> dict[int, int]:
    """Return the first and the latest partition counts, once a change is in force."""
    before = layout.counts or {layout.generation: layout.partition_count}
    first, *later = {**before, generation: partition_count}.items()
    return dict([first, *later[1 - MAX_COUNTS :]])


def settle(layout: Layout, *partitions: PartitionId) -> Layout:
    """Return the layout without partitions as predecessors: nothing waits for them any more.

    Raises:
        ConflictError: one has predecessors that are not settled.
    """
    for partition in partitions:
        if partition in layout.lineage:
            raise ConflictError(f"partition {partition}: its predecessors are not settled")
    settled = set(partitions)
    remaining = {
        successor: {giver: slots for giver, slots in givers.items() if giver not in settled}
        for successor, givers in layout.lineage.items()
    }
    return _step(layout, lineage={each: givers for each, givers in remaining.items() if givers})


def remove(layout: Layout, *partitions: PartitionId) -> Layout:
    """Return the layout without partitions that have no slots.

    Raises:
        ConflictError: one takes messages, or others wait for it.
    """
    waiting = {*layout.lineage, *awaited(layout)}
    for partition in partitions:
        if partition not in layout.retired or partition in waiting:
            raise ConflictError(f"partition {partition}: it has slots, or is not settled")
    removed = set(partitions)
    kept = {each: at_ms for each, at_ms in layout.retired.items() if each not in removed}
    return _step(layout, retired=kept)


def prepared_change(layout: Layout) -> SlotChange:
    """Return the change that is being prepared.

    Raises:
        ConflictError: none is.
    """
    if layout.next is None:
        raise ConflictError("layout: no change is being prepared")
    return layout.next


def _with_last(
    layout: Layout, *, committed_at_ms: int = 0, is_aborted: bool = False
) -> tuple[RescaleRecord, ...]:
    """Return the records of the changes, the last one with its end or its commit."""
    last = (
        each._replace(committed_at_ms=committed_at_ms, is_aborted=is_aborted)
        for each in layout.changes[-1:]
    )
    return (*layout.changes[:-1], *last)


def _step(layout: Layout, **changes: object) -> Layout:
    return replace(layout, revision=layout.revision + 1, **changes)  # type: ignore[arg-type]
