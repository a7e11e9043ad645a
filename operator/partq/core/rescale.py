"""The steps of a change of the partition count, and what the records must say before each.

A change is prepared, then committed or aborted. A committed one only goes forward: predecessors
settle, and those without slots are removed. Each function returns the layout after one such step;
its caller stores it if the revision is still the one that it has read.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from partq.core.layout import Layout, RescaleRecord
from partq.core.model import PartitionId
from partq.core.slot_table import SlotChange, SlotRanges, joined
from partq.errors import ConflictError
from partq.excerpts import counted

MAX_UNSETTLED = 4
"""The most changes whose predecessors may still hold messages that a group has to read first."""
MAX_LISTED = 3
"""How many partitions or brokers a text names."""

MAX_CHANGES = 5
"""How many of the latest changes a layout names; besides them, all that are not settled."""


def unsettled(layout: Layout) -> tuple[int, ...]:
    """Return the generations of changes with a predecessor that is not settled."""
    return tuple(sorted({partition.generation for partition in layout.lineage}))


def prepare(layout: Layout, partition_count: int, now_ms: int = 0, *, sealed_by: int = 1) -> Layout:
    """Return the layout with a change that is being prepared.

    `now_ms`: for people; 0: they are not told when it was begun. `sealed_by`: the last change that
    a record of a partition knows; above the layout's own where a store has lost the layout's last
    steps alone. Its number is not used again: its seals would answer for the new change.

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
    generation = max(layout.last_generation, sealed_by) + 1
    change = layout.table.resized(partition_count, generation)
    record = record_of(layout, change, generation, now_ms)
    changes = (*_kept_changes(layout), record)
    return _step(layout, next=change, last_generation=generation, changes=changes)


def _kept_changes(layout: Layout) -> tuple[RescaleRecord, ...]:
    """Return the changes that a layout goes on to name: the latest, and those not settled."""
    named = {*unsettled(layout), *(each.generation for each in layout.changes[1 - MAX_CHANGES :])}
    return tuple(each for each in layout.changes if each.generation in named)


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
    _prepared_change(layout)
    return _step(layout, next=None, changes=_with_last(layout, is_aborted=True))


def commit(layout: Layout, now_ms: int) -> Layout:
    """Return the layout with the prepared change in force.

    Raises:
        ConflictError: none is being prepared.
    """
    change = _prepared_change(layout)
    emptied = {giver for giver, left in change.sealed.items() if not left}
    return _step(
        layout,
        next=None,
        table=change.table,
        generation=layout.last_generation,
        lineage={**layout.lineage, **change.lineage},
        retired={**layout.retired, **dict.fromkeys(sorted(emptied), now_ms)},
        counts={
            **(layout.counts or {layout.generation: layout.partition_count}),
            layout.last_generation: change.table.partition_count,
        },
        changes=_with_last(layout, committed_at_ms=now_ms),
    )


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
    waiting = {*layout.lineage, *_awaited(layout)}
    for partition in partitions:
        if partition not in layout.retired or partition in waiting:
            raise ConflictError(f"partition {partition}: it has slots, or is not settled")
    removed = set(partitions)
    kept = {each: at_ms for each, at_ms in layout.retired.items() if each not in removed}
    return _step(layout, retired=kept)


def _awaited(layout: Layout) -> set[PartitionId]:
    """Return the predecessors that are not settled."""
    return {giver for givers in layout.lineage.values() for giver in givers}


def _prepared_change(layout: Layout) -> SlotChange:
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


class DueSeal(NamedTuple):
    """A seal that a committed change asks of a partition."""

    generation: int
    """Of the change that takes slots away."""
    slots: SlotRanges
    """Those that stay."""


def due_seals(layout: Layout) -> dict[PartitionId, list[DueSeal]]:
    """Return the seals that committed changes ask of each partition, the oldest change first.

    Those of predecessors that are settled are not among them: they were sealed.
    """
    given: dict[PartitionId, dict[int, list[range]]] = {}
    for successor, givers in layout.lineage.items():
        for giver, slots in givers.items():
            given.setdefault(giver, {}).setdefault(successor.generation, []).extend(slots)
    return {
        partition: _seals_of(layout.slots(partition) if partition in layout else (), changes)
        for partition, changes in given.items()
    }


def _seals_of(left: SlotRanges, changes: Mapping[int, list[range]]) -> list[DueSeal]:
    """Return the seals of a partition that has slots `left` after all of the changes."""
    seals: list[DueSeal] = []
    for generation in sorted(changes, reverse=True):
        seals.insert(0, DueSeal(generation, left))
        left = joined(chain(left, changes[generation]))
    return seals


def has_given(layout: Layout, partition: PartitionId) -> bool:
    """Whether slots of a partition have moved to others, by a change that is not settled."""
    return partition in layout.retired or any(
        partition in givers for givers in layout.lineage.values()
    )


class GroupProgress(NamedTuple):
    """A group in a predecessor, as its record says."""

    cursor: int
    is_gate_open: bool
    outbox_count: int = 0
    """Dead letters that wait."""
    member: str = ""
    """Empty: none."""
    reset: str = ""
    """The last reset of all partitions that has moved the cursor; empty: none has."""


class PredecessorView(NamedTuple):
    """A predecessor, as its record says."""

    sealed_at: int | None
    """The end of its log when the slots left it; None: it is not sealed."""
    trimmed: int
    groups: Mapping[str, GroupProgress]


def has_passed(predecessor: PredecessorView, group: str) -> bool:
    """Whether a group has done with all that a predecessor, and its predecessors, have for it.

    A closed gate says that its own predecessors are not passed; then the cursor says nothing: it
    is at the seal of a partition that was sealed empty. Dead letters that wait are done with.
    """
    view = predecessor.groups.get(group)
    return (
        predecessor.sealed_at is not None
        and view is not None
        and view.is_gate_open
        and view.cursor >= predecessor.sealed_at
    )


def seals_to_open(
    predecessors: Collection[PartitionId], sealed_at: Mapping[PartitionId, int | None]
) -> dict[PartitionId, int] | None:
    """Return the seals by which a partition may take messages; None: a predecessor is not sealed.

    Args:
        predecessors: those that the lineage still names. One that is settled was sealed.
        sealed_at: of those whose record could be read; None: it is not sealed.
    """
    known = {each: at for each in predecessors if (at := sealed_at.get(each)) is not None}
    return known if len(known) == len(predecessors) else None


def is_passed_by_all(predecessor: PredecessorView, groups: Iterable[str]) -> bool:
    """Whether nobody, present or future, has to read the predecessor before its successors.

    `groups`: those that the queue is to have. Messages below the seal that are stored would be
    read by a group that is created later, so they have to be trimmed.
    """
    sealed_at = predecessor.sealed_at
    return (
        sealed_at is not None
        and predecessor.trimmed >= sealed_at
        and all(has_passed(predecessor, group) for group in {*groups, *predecessor.groups})
        and not any(view.outbox_count for view in predecessor.groups.values())
    )


class GateHold(NamedTuple):
    """What a group has to do in a predecessor before it may have messages of the successor."""

    predecessor: PartitionId
    sealed_at: int | None
    """The end of its log when the slots left it; None: it is not sealed yet."""
    messages: int = 0
    """How many below that the group has not passed."""
    member: str = ""
    """The group's member in the predecessor; empty: none."""
    is_gated: bool = False
    """Its own predecessors come first."""
    is_awaiting_reset: bool = False
    """The reset that holds the gate has not moved the cursor in it yet."""

    @property
    def text(self) -> str:
        """What it waits for, as a part of a sentence."""
        if self.sealed_at is None:
            return f"{self.predecessor}, whose broker has not sealed it yet"
        if self.is_awaiting_reset:
            return f"{self.predecessor}, which the reset of the group has not reached yet"
        if self.is_gated:
            return f"{self.predecessor}, which waits for its own predecessors"
        count = counted(self.messages, "message", "messages")
        at = f"member {self.member}" if self.member else "no member"
        return f"{self.predecessor}: {count} before offset {self.sealed_at}, at {at}"


def find_holds(
    predecessors: Mapping[PartitionId, PredecessorView], group: str, reset: str = ""
) -> tuple[GateHold, ...]:
    """Return which predecessors keep a gate closed for a group, in order; none: it may be opened.

    Args:
        predecessors: those that the lineage still names.
        group: of the gate.
        reset: the one that holds the gate: it has to reach the predecessors first. Empty: none
            does, or its caller has gone.
    """
    holds = []
    for partition, view in sorted(predecessors.items()):
        found = view.groups.get(group)
        is_awaiting = bool(reset) and (found is None or found.reset != reset)
        if has_passed(view, group) and not is_awaiting:
            continue
        cursor = 0 if found is None else found.cursor
        holds.append(
            GateHold(
                partition,
                view.sealed_at,
                messages=max(0, (view.sealed_at or 0) - cursor),
                member="" if found is None else found.member,
                is_gated=found is not None and not found.is_gate_open,
                is_awaiting_reset=is_awaiting,
            )
        )
    return tuple(holds)


def by_generation(partitions: Iterable[PartitionId]) -> list[list[PartitionId]]:
    """Return partitions by their generations, the oldest first: none follows a later one."""
    found: dict[int, list[PartitionId]] = {}
    for partition in sorted(partitions):
        found.setdefault(partition.generation, []).append(partition)
    return [found[generation] for generation in sorted(found)]


RESET_ID = r"^\d{1,16}-[0-9a-z]{1,32}@\d{1,10}$"
"""What the id of a reset of all partitions looks like."""


def new_reset_id(began_ms: int, name: str, generation: int) -> str:
    """Return the id of a reset of all partitions, by which it holds gates.

    Args:
        began_ms: when it began, in Redis's time: its steps end 20 seconds later.
        name: that no other reset has.
        generation: of the layout that says which partitions are all.
    """
    return f"{began_ms}-{name}@{generation}"


def began_ms(reset_id: str) -> int:
    """Return when a reset of all partitions began, in Redis's time."""
    return int(reset_id.split("-", 1)[0])


# ---- what a step waits for ----------------------------------------------------------------------


class RescaleEvent(StrEnum):
    """What is reported to people about a change."""

    STARTED = "RescaleStarted"
    COMMITTED = "RescaleCommitted"
    OPENED = "RescaleOpened"
    """All new partitions take messages."""
    SETTLED = "RescaleSettled"
    ABORTED = "RescaleAborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """How far a change is prepared, as brokers and records say."""

    outdated: Collection[str]
    """Living brokers of a version that does not know such changes."""
    owned: Collection[PartitionId]
    """Partitions that a living broker has claimed."""
    groups: Mapping[PartitionId, Collection[str]]
    """Of each partition that has a record: the groups with a cursor there."""
    named: Collection[str]
    """Groups that the queue is to have."""
    unopened: Collection[PartitionId]
    """Partitions of earlier changes that do not take messages yet."""


def update_of(brokers: Collection[str]) -> str:
    """Return what a change waits for while living brokers do not know such changes."""
    return f"an update of brokers of an earlier version: {_listed(sorted(brokers))}"


def waits_before_commit(layout: Layout, preparation: Preparation) -> tuple[str, ...]:
    """Return for what the commit of the prepared change waits, for people; empty: for nothing.

    Every group counts that has a cursor anywhere, also one that is being made: its other cursors
    were chosen by a layout without the new partitions.
    """
    new = sorted(_prepared_change(layout).lineage)
    groups = set(preparation.named).union(*preparation.groups.values())
    unowned = [each for each in new if each not in preparation.owned]
    incomplete = [each for each in new if not groups.issubset(preparation.groups.get(each, ()))]
    unopened = sorted(set(preparation.unopened) - set(new))
    waits = []
    if preparation.outdated:
        waits.append(update_of(preparation.outdated))
    if unowned:
        waits.append(f"new partitions without a broker: {_listed(unowned)}")
    if incomplete:
        waits.append(f"new partitions that do not have every group: {_listed(incomplete)}")
    if unopened:
        waits.append(f"partitions of the last change that are not open: {_listed(unopened)}")
    return tuple(waits)


def ready_to_settle(layout: Layout) -> dict[PartitionId, int]:
    """Return the predecessors that may settle next, each with the last change it lost slots to.

    Those are the ones without predecessors.
    """
    found: dict[PartitionId, int] = {}
    for successor, givers in layout.lineage.items():
        for giver in givers:
            if giver not in layout.lineage:
                found[giver] = max(successor.generation, found.get(giver, 0))
    return found


def is_settled(layout: Layout, record: RescaleRecord, groups: Collection[str]) -> bool:
    """Whether nobody waits for a change that is open: no predecessor, and nothing retired, is left.

    Without `groups` nobody reads what was published before, and it is not trimmed: it stays.
    """
    if not record.committed_at_ms:
        return False
    return not groups or (
        record.committed_at_ms not in layout.retired.values()
        and not any(partition.generation == record.generation for partition in layout.lineage)
    )


def ready_to_remove(layout: Layout, before_ms: int) -> list[PartitionId]:
    """Return the settled partitions that lost their last slot at `before_ms` or earlier."""
    waiting = {*layout.lineage, *_awaited(layout)}
    return [
        partition
        for partition, retired_at_ms in layout.retired.items()
        if retired_at_ms <= before_ms and partition not in waiting
    ]


def _listed(names: Sequence[object]) -> str:
    """Return `2.16, 2.17 and 6 more`."""
    text = ", ".join(map(str, names[:MAX_LISTED]))
    return f"{text} and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else text
