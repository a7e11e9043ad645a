"""How far a change of the partition count is, for people, from the layout and the records."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from partq.core.layout import Layout, RescaleRecord
from partq.core.model import SLOT_COUNT, PartitionId
from partq.core.rescale.gates import GroupProgress
from partq.core.rescale.layout_steps import MAX_UNSETTLED, record_of, unsettled
from partq.core.rescale.preparation import (
    REMOVAL_WAITS,
    Preparation,
    leaves_too_many,
    update_of,
    waits_before_commit,
)
from partq.core.rescale.settlement import is_settled
from partq.excerpts import counted

BEGINNING = "the coordinator, which begins it"
"""What a change waits for that is wanted, and that nothing hinders."""
MAX_NAMED = 4
"""Partitions, groups or brokers that a sentence names."""


class RescalePhase(StrEnum):
    """How far a change has come."""

    PREPARING = "Preparing"
    """It is wanted, or its new partitions are being made: it can be taken back.
    Its number is used then, and the status goes on to list it."""
    OPENING = "Opening"
    """It is in force, and some of the new partitions do not take messages yet."""
    DRAINING = "Draining"
    """All take messages. Groups have not acknowledged all that was published before, or partitions
    without slots are still there."""
    SETTLED = "Settled"
    """No group waits. Of a queue without groups the messages from before are kept all the same."""
    ABORTED = "Aborted"


class Hindrance(StrEnum):
    """Why a change that is wanted does not begin, or does not come into force."""

    NONE = ""
    BROKERS = "Brokers"
    """Living brokers do not know such changes."""
    GENERATIONS = "Generations"
    """Too many changes are not settled."""
    RETIRED = "Retired"
    """Too many partitions without slots are not removed."""


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """A group that does not get the messages of new partitions yet."""

    group: str
    partitions: int
    """How many new partitions wait for it."""
    messages: int
    """How many messages in their predecessors it has to acknowledge first, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRescale:
    """Another change, which is over, or before the one that is shown."""

    generation: int
    from_count: int
    to_count: int
    phase: RescalePhase
    """`Draining` until it is settled, or `Aborted`."""
    started_at_ms: int
    """When it was begun; 0: not known."""
    committed_at_ms: int
    """When it came into force; 0: it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleStatus:
    """The latest change of a queue's partition count that is not over; if all are, the latest."""

    generation: int
    """Its number."""
    from_count: int
    to_count: int
    """Partitions that take messages, before it and after it."""
    phase: RescalePhase
    moved_percent: float
    """How much of the slots, and so about how much of the keys, gets another index."""
    started_at_ms: int
    """When it was begun, in ms since 1970; 0: it has not."""
    sealed: int
    to_seal: int
    """How many partitions lose slots, and how many of them have."""
    opened: int
    to_open: int
    """How many partitions are new, and how many of them take messages."""
    retiring: int
    """Partitions without slots, of any change, that are still there."""
    held: list[HeldGroup] = field(default_factory=list)
    """Groups that do not get the messages of new partitions yet, by their names."""
    waits_for: list[str] = field(default_factory=list)
    """What has to happen before the next phase, for people; empty: nothing is known."""
    hindrance: Hindrance = Hindrance.NONE
    earlier: list[EarlierRescale] = field(default_factory=list)
    """The other changes that the layout names, the newest last."""


class PartitionProgress(NamedTuple):
    """A partition, as its record says."""

    has_owner: bool
    """A living broker has claimed it."""
    is_open: bool
    end: int
    """The offset of its next message."""
    seals: Mapping[int, int]
    """Generation of each change that took slots away → the end of the log at that time."""
    groups: Mapping[str, GroupProgress]
    generation: int = 1
    """Of the last change that took slots away, or else that made the partition."""


class _Reading(NamedTuple):
    layout: Layout
    partitions: Mapping[PartitionId, PartitionProgress]
    groups: Collection[str]
    lacking: Sequence[str]


def read_partitions(layout: Layout, wanted_count: int | None = None) -> tuple[PartitionId, ...]:
    """Return the partitions whose records `rescale_status` asks for; none of an unchanged queue."""
    if layout.next is not None or wanted_count not in (None, layout.partition_count):
        # A group counts that has a cursor anywhere, and a change that any record knows.
        return layout.all_partitions()
    givers = {giver for found in layout.lineage.values() for giver in found}
    return tuple(sorted({*layout.lineage, *givers}))


def rescale_status(
    layout: Layout,
    partitions: Mapping[PartitionId, PartitionProgress],
    *,
    wanted_count: int | None,
    groups: Collection[str],
    lacking: Sequence[str] = (),
) -> RescaleStatus | None:
    """Return the status of the latest change; None: there has been none, and none is wanted.

    Args:
        layout: as it is stored.
        partitions: those of `read_partitions`; a missing one has a record that cannot be read.
        wanted_count: how many partitions the queue is to have; None: nobody has said.
        groups: that the queue names.
        lacking: living brokers that do not know changes of the partition count.
    """
    read = _Reading(layout, partitions, groups, lacking)
    is_wanted = wanted_count not in (None, layout.partition_count)
    if layout.next is None and is_wanted and wanted_count is not None:
        return _wanted(read, wanted_count)
    if not layout.changes:
        return None
    if layout.next is not None:
        return _prepared(read, layout.changes[-1])
    shown = _latest(read)
    if shown.is_aborted:
        return _status(read, shown, RescalePhase.ABORTED)
    return _committed(read, shown)


def _latest(read: _Reading) -> RescaleRecord:
    """Return the latest change that is not over; if all are, the latest."""
    changes = [each for each in reversed(read.layout.changes) if not each.is_aborted]
    running = (each for each in changes if not _is_over(read, each))
    return next(running, read.layout.changes[-1])


def _is_over(read: _Reading, record: RescaleRecord) -> bool:
    is_open = not _unsealed(read, record) and not _closed(read, record)
    return is_open and is_settled(read.layout, record, read.groups)


def _wanted(read: _Reading, count: int) -> RescaleStatus:
    """Return the status of a change that nobody has begun."""
    layout = read.layout
    generation = layout.last_generation + 1
    change = layout.table.resized(count, generation)
    record = record_of(layout, change, generation, 0)
    if len(unsettled(layout)) >= MAX_UNSETTLED:
        waits = [
            f"{MAX_UNSETTLED} earlier changes, of which none is settled: one of them has to be",
            *_holders(read),
        ]
        if not read.groups:
            waits[1:] = [
                "a group that acknowledges what was published before: the queue has none, so its "
                "messages are kept"
            ]
        hindrance = Hindrance.GENERATIONS
    elif lost := _lost_change(read):
        waits = [
            f"the layout, which is behind change {lost} that partitions have recorded: the "
            "coordinator restores it, or its log says which records are missing"
        ]
        hindrance = Hindrance.NONE
    elif read.lacking:
        waits, hindrance = [update_of(read.lacking)], Hindrance.BROKERS
    else:
        waits, hindrance = [BEGINNING], Hindrance.NONE
    return _status(read, record, RescalePhase.PREPARING, waits, hindrance)


def _lost_change(read: _Reading) -> int:
    """Return the last change that records know and the layout does not; 0: none is lost."""
    known = [
        number
        for each in read.partitions.values()
        for number in (each.generation, *each.seals)
        if number > read.layout.generation
    ]
    return max(known, default=0)


def _prepared(read: _Reading, record: RescaleRecord) -> RescaleStatus:
    """Return the status of a change that is being prepared: it waits for what the commit does."""
    preparation = Preparation(
        outdated=read.lacking,
        owned=[each for each, known in read.partitions.items() if known.has_owner],
        groups={each: known.groups.keys() for each, known in read.partitions.items()},
        named=read.groups,
        unopened=[each for each, known in read.partitions.items() if not known.is_open],
    )
    waits = waits_before_commit(read.layout, preparation)
    hindrance = Hindrance.NONE
    if read.lacking:
        hindrance = Hindrance.BROKERS
    elif leaves_too_many(read.layout):
        hindrance = Hindrance.RETIRED
    return _status(
        read,
        record,
        RescalePhase.PREPARING,
        waits or ["the coordinator, which puts it into force"],
        hindrance,
    )


def _committed(read: _Reading, record: RescaleRecord) -> RescaleStatus:
    layout = read.layout
    unsealed, closed = _unsealed(read, record), _closed(read, record)
    if unsealed:
        waits = [f"the seal of {_some('partition', unsealed)}, by {_broker_of(unsealed)}"]
        if unowned := [p for p in unsealed if not _has_owner(read, p)]:
            waits = [f"a broker for {_some('partition', unowned)}"]
        return _status(read, record, RescalePhase.OPENING, waits)
    if closed:
        waits = [f"the opening of {_some('partition', closed)}, by {_broker_of(closed)}"]
        return _status(read, record, RescalePhase.OPENING, waits)
    if is_settled(layout, record, read.groups):
        return _status(read, record, RescalePhase.SETTLED)
    waits = list(_holders(read))
    if not waits and layout.lineage:
        givers = {giver for found in layout.lineage.values() for giver in found}
        waits = [f"the removal of acknowledged messages from {_some('partition', givers)}"]
    elif not waits:
        waits = [f"the removal of {_some('partition', layout.retired)}: {REMOVAL_WAITS}"]
    return _status(read, record, RescalePhase.DRAINING, waits)


def _status(
    read: _Reading,
    record: RescaleRecord,
    phase: RescalePhase,
    waits_for: Sequence[str] = (),
    hindrance: Hindrance = Hindrance.NONE,
) -> RescaleStatus:
    is_committed = phase not in (RescalePhase.PREPARING, RescalePhase.ABORTED)
    return RescaleStatus(
        generation=record.generation,
        from_count=record.from_count,
        to_count=record.to_count,
        phase=phase,
        moved_percent=percent(record.moved_slots),
        started_at_ms=record.started_at_ms,
        sealed=record.predecessors - len(_unsealed(read, record)) if is_committed else 0,
        to_seal=record.predecessors,
        opened=record.successors - len(_closed(read, record)) if is_committed else 0,
        to_open=record.successors,
        retiring=len(read.layout.retired),
        held=list(held_groups(read.layout, read.partitions)),
        waits_for=list(waits_for),
        hindrance=hindrance,
        earlier=[
            _earlier(read, each)
            for each in read.layout.changes
            if each.generation != record.generation
        ],
    )


def _earlier(read: _Reading, record: RescaleRecord) -> EarlierRescale:
    phase = RescalePhase.DRAINING
    if record.is_aborted:
        phase = RescalePhase.ABORTED
    elif _is_over(read, record):
        phase = RescalePhase.SETTLED
    return EarlierRescale(
        generation=record.generation,
        from_count=record.from_count,
        to_count=record.to_count,
        phase=phase,
        started_at_ms=record.started_at_ms,
        committed_at_ms=record.committed_at_ms,
    )


def percent(slots: int) -> float:
    """Return a number of slots as a percentage of all, with one digit behind the point."""
    return round(100 * slots / SLOT_COUNT, 1)


def held_since(
    layout: Layout, partitions: Mapping[PartitionId, PartitionProgress], before_ms: int
) -> dict[int, list[HeldGroup]]:
    """Return the groups that do not get messages of new partitions for long, for each change.

    `before_ms`: the changes that came into force then, or earlier. Those that are not open wait for
    brokers, not for groups.
    """
    found: dict[int, list[HeldGroup]] = {}
    for record in layout.changes:
        new = [each for each in layout.lineage if each.generation == record.generation]
        is_open = all(each in partitions and partitions[each].is_open for each in new)
        if 0 < record.committed_at_ms <= before_ms and is_open:
            found[record.generation] = list(held_groups(layout, partitions, new))
    return found


def held_groups(
    layout: Layout,
    partitions: Mapping[PartitionId, PartitionProgress],
    successors: Collection[PartitionId] | None = None,
) -> Iterator[HeldGroup]:
    """Yield the groups that do not get the messages of some partitions yet, by their names.

    `successors`: the partitions that count; None: all that have predecessors.
    """
    gated: dict[str, list[PartitionId]] = {}
    for successor in layout.lineage if successors is None else successors:
        known = partitions.get(successor)
        for group, progress in known.groups.items() if known is not None else ():
            if not progress.is_gate_open:
                gated.setdefault(group, []).append(successor)
    for group, waiting in sorted(gated.items()):
        missing = [
            missing_count(partitions[giver], group, generation)
            for giver, generation in _barriers(layout, waiting).items()
            if giver in partitions
        ]
        yield HeldGroup(group, len(waiting), sum(missing))


def missing_count(predecessor: PartitionProgress, group: str, generation: int) -> int:
    """Return how many messages a group has to acknowledge in a predecessor, at most.

    `generation`: of the change that took slots away. Until it is sealed, all of the log counts.
    """
    progress = predecessor.groups.get(group)
    stop = predecessor.seals.get(generation, predecessor.end)
    return max(0, stop - progress.cursor) if progress is not None else 0


def _barriers(layout: Layout, successors: Collection[PartitionId]) -> dict[PartitionId, int]:
    """Return the predecessors of some partitions, each with the latest change that counts there."""
    found: dict[PartitionId, int] = {}
    for successor in successors:
        for giver in layout.lineage[successor]:
            found[giver] = max(found.get(giver, 0), successor.generation)
    return found


def _holders(read: _Reading) -> Iterator[str]:
    """Yield a text for each group that holds partitions."""
    for each in held_groups(read.layout, read.partitions):
        if each.messages:
            yield (
                f"group {each.group} to acknowledge "
                f"{counted(each.messages, 'message', spec=',')} published before the change: "
                f"{counted(each.partitions, 'partition')} held"
            )
        else:
            held = counted(each.partitions, "partition")
            yield f"brokers to give group {each.group} {held}: it has done with what comes first"


def _broker_of(partitions: Sequence[PartitionId]) -> str:
    return "its broker" if len(partitions) == 1 else "their brokers"


def _unsealed(read: _Reading, record: RescaleRecord) -> list[PartitionId]:
    """Return the partitions of which nobody has recorded that the change took slots away."""
    givers = {
        giver
        for successor, found in read.layout.lineage.items()
        if successor.generation == record.generation
        for giver in found
    }
    return sorted(
        giver
        for giver in givers
        if giver not in read.partitions or record.generation not in read.partitions[giver].seals
    )


def _closed(read: _Reading, record: RescaleRecord) -> list[PartitionId]:
    """Return the new partitions that do not take messages yet."""
    return sorted(
        successor
        for successor in read.layout.lineage
        if successor.generation == record.generation
        and (successor not in read.partitions or not read.partitions[successor].is_open)
    )


def _has_owner(read: _Reading, partition: PartitionId) -> bool:
    return partition in read.partitions and read.partitions[partition].has_owner


def _some(what: str, names: Collection[PartitionId] | Collection[str]) -> str:
    """Return the noun and the names; of many the first, and how many there are besides."""
    ordered = [str(each) for each in sorted(names)]
    more = f" and {len(ordered) - MAX_NAMED} more" if len(ordered) > MAX_NAMED else ""
    noun = what if len(ordered) == 1 else f"{what}s"
    return f"{noun} {', '.join(ordered[:MAX_NAMED])}{more}"
