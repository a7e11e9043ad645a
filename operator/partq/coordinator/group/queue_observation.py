"""From what brokers and store say to what the core judges: one group at one time."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from partq.coordinator.ports import BrokerReport, GroupReport, PartitionReport
from partq.coordinator.view import Parked, SessionTotals
from partq.core.group.observation import (
    NO_SUCCESSION,
    FlowSeen,
    GroupObservation,
    LossSeen,
    MemberFact,
    PartitionOwnership,
)
from partq.core.group.records import AssignmentEntry, MemberSnapshot
from partq.core.layout import Succession, succession_of_parts
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId, PartitionId
from partq.core.parts.hash_ranges import DeclaredRanges, ring_of
from partq.core.parts.part_id import PartId, partition_of, parts_of
from partq.core.slot_table import SlotRanges


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueObservation:
    """Observations that all groups of a queue share at one time."""

    partitions: tuple[PartitionId, ...]
    states: Mapping[BrokerId, BrokerReport]
    """Of the living brokers that have answered."""
    is_complete: bool
    """Every living broker has answered."""
    succession: Succession = NO_SUCCESSION
    """Which partitions follow which."""
    slots: Mapping[PartitionId, SlotRanges] = field(default_factory=dict)
    """Those that each partition was made with; empty: no group cuts partitions into parts."""
    prepared: frozenset[PartitionId] = frozenset()
    """Those of a change that may still be aborted: people are not shown them."""
    retired: frozenset[PartitionId] = frozenset()
    """Those without slots, until groups have read them: they are in no number that people see."""


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """The outcome of a commit, which corrects older observations."""

    member: MemberId | None
    epoch: Epoch
    broker_epoch: BrokerEpoch
    """A later broker has read the record itself."""


def owners(queue: QueueObservation) -> dict[PartitionId, tuple[BrokerId, PartitionReport]]:
    """Return the owner of each partition; of two that claim it, the one of the later epoch."""
    found: dict[PartitionId, tuple[BrokerId, PartitionReport]] = {}
    for broker, state in sorted(queue.states.items()):
        for partition, report in state.partitions.items():
            known = found.get(partition)
            if known is None or report.broker_epoch > known[1].broker_epoch:
                found[partition] = broker, report
    return found


def bound(queue: QueueObservation, group: str) -> set[MemberId]:
    """Return the members of a group that have a flow."""
    flows = (flow for state in queue.states.values() for flow in state.flows)
    return {flow.member for flow in flows if flow.group == group}


def leaving(queue: QueueObservation, group: str) -> set[MemberId]:
    """Return the members of a group that have said that they leave, in the life that they are in.

    A life says so at one broker after the other.
    """
    flows = [each for state in queue.states.values() for each in state.flows if each.group == group]
    said = {(flow.member, flow.incarnation) for flow in flows if flow.is_leaving}
    stay = {flow.member for flow in flows if (flow.member, flow.incarnation) not in said}
    return {member for member, _ in said} - stay


def blocked(queue: QueueObservation, group: str) -> dict[PartitionId, str]:
    """Return why partitions of a group wait for its dead letters; only those that do."""
    return {
        partition: report.groups[group].blocked
        for partition, (_, report) in owners(queue).items()
        if group in report.groups and report.groups[group].blocked
    }


def missing(queue: QueueObservation, group: str) -> dict[PartitionId, str]:
    """Return what partitions of a group miss in their logs; only those that do."""
    return {
        partition: report.groups[group].missing
        for partition, (_, report) in owners(queue).items()
        if group in report.groups and report.groups[group].missing
    }


def stalled(queue: QueueObservation, group: str) -> dict[PartitionId, str]:
    """Return why partitions of a group of order Key are sent nothing new; only those that are."""
    return {
        partition: report.groups[group].stalled
        for partition, (_, report) in owners(queue).items()
        if group in report.groups and report.groups[group].stalled
    }


def held_keys(queue: QueueObservation, group: str) -> dict[PartitionId, tuple[int, int]]:
    """Return how many keys of a group are blocked, and in quarantine; only where some are."""
    return {
        partition: (found.blocked_keys, found.quarantined_keys)
        for partition, (_, report) in owners(queue).items()
        if (found := report.groups.get(group)) is not None
        and (found.blocked_keys or found.quarantined_keys)
    }


def sessions(queue: QueueObservation, group: str) -> SessionTotals | None:
    """Return how many sessions a group has; None: no broker that answers knows of any."""
    found = [
        told
        for _, report in owners(queue).values()
        if group in report.groups and (told := report.groups[group].sessions) is not None
    ]
    if not found:
        return None
    with_messages, locked, waiting = zip(*found, strict=True)
    return SessionTotals(sum(with_messages), sum(locked), max(waiting))


def parked(queue: QueueObservation, group: str) -> dict[PartitionId, Parked]:
    """Return what does not decode and waits for its dead-letter queue; only where it does."""
    return {
        partition: Parked(found.dead_letters, found.parked)
        for partition, (_, report) in owners(queue).items()
        if (found := report.groups.get(group)) is not None and found.parked
    }


def lost_since(members: MemberSnapshot) -> dict[MemberId, int]:
    """Return since when members are lost, in the store's time; only those that are."""
    listed = {
        member: each.lost_at_ms
        for member, each in members.members.items()
        if each.lost_at_ms is not None
    }
    return {**members.lost_unlisted, **listed}


def observe_group(
    queue: QueueObservation,
    group: str,
    *,
    members: MemberSnapshot,
    lost_ms: Mapping[MemberId, int],
    assignment: Mapping[PartitionId, AssignmentEntry],
    outcomes: Mapping[PartitionId, CommitOutcome],
    facts: Mapping[MemberId, MemberFact],
    priorities: Mapping[str, int],
    parts: int = 0,
) -> GroupObservation:
    """Return what is known of a group.

    Args:
        queue: what the brokers say.
        group: which group.
        members: the list of members.
        lost_ms: how long ago those of them that are lost were, see `lost_since`.
        assignment: each partition's holder when it was last written: for partitions that no broker
            reports.
        outcomes: the last commit of each partition that this process knows of.
        facts: what is known of the members' processes.
        priorities: those that are set from outside; members without one have the one they say.
        parts: how many parts each partition is cut into; 0: what members have is partitions.
    """
    flows = [
        FlowSeen(
            member=flow.member,
            broker=broker,
            incarnation=flow.incarnation,
            age_ms=flow.age_ms,
            is_leaving=flow.is_leaving,
        )
        for broker, state in queue.states.items()
        for flow in state.flows
        if flow.group == group
    ]
    losses = [
        LossSeen(member=loss.member, broker=broker, age_ms=loss.age_ms, is_leaving=loss.is_leaving)
        for broker, state in queue.states.items()
        for loss in state.lost_flows
        if loss.group == group
    ]
    bound = {(flow.member, flow.broker) for flow in flows}
    found = owners(queue)
    seats = parts_of(queue.partitions, parts) if parts else queue.partitions
    return GroupObservation(
        partitions={
            seat: _ownership(seat, group, found, assignment, outcomes, bound) for seat in seats
        },
        flows=flows,
        losses=losses,
        listed=frozenset(members.members),
        lost_ms=lost_ms,
        facts=facts,
        replacements=members.replacements,
        priorities={**_said_priorities(queue, group), **priorities},
        is_complete=queue.is_complete,
        succession=succession_of_parts(queue.succession, parts) if parts else queue.succession,
        ring=ring_of(queue.slots, parts) if parts else {},
        ranges=_declared_ranges(queue, group) if parts else {},
    )


def _said_priorities(queue: QueueObservation, group: str) -> dict[str, int]:
    """Return the priorities that members say; of several lives, the youngest flow counts.

    A lost member keeps the last one that it said.
    """
    seen = [
        (is_bound, -flow.age_ms, flow.member, flow.priority)
        for state in queue.states.values()
        for is_bound, flows in ((False, state.lost_flows), (True, state.flows))
        for flow in flows
        if flow.group == group
    ]
    return {member: priority for *_, member, priority in sorted(seen)}


def _declared_ranges(queue: QueueObservation, group: str) -> dict[str, DeclaredRanges]:
    """Return the slots that members have declared; of several lives, the youngest flow counts."""
    seen = [
        (is_bound, -flow.age_ms, flow.member, flow.ranges)
        for state in queue.states.values()
        for is_bound, flows in ((False, state.lost_flows), (True, state.flows))
        for flow in flows
        if flow.group == group and flow.ranges
    ]
    return {member: ranges for *_, member, ranges in sorted(seen)}


def _recorded(seat: PartitionId, report: PartitionReport, group: str) -> GroupReport | None:
    """Return what a broker says of a group in a partition, or in a part of it."""
    record = report.groups.get(group)
    if record is None or not isinstance(seat, PartId):
        return record
    if seat.part >= len(record.parts):
        return None
    part = record.parts[seat.part]
    return replace(
        record, member=part.member, closed_attempt=part.closed_attempt, is_bound=part.is_bound
    )


def _ownership(
    seat: PartitionId,
    group: str,
    found: Mapping[PartitionId, tuple[BrokerId, PartitionReport]],
    assignment: Mapping[PartitionId, AssignmentEntry],
    outcomes: Mapping[PartitionId, CommitOutcome],
    bound: Collection[tuple[MemberId, BrokerId]],
) -> PartitionOwnership:
    broker, report = found.get(partition_of(seat), (None, None))
    record = _recorded(seat, report, group) if report is not None else None
    outcome = outcomes.get(seat)
    if broker is None or report is None or record is None:
        assigned = assignment.get(seat)
        last = outcome.member if outcome else assigned.member if assigned else None
        return PartitionOwnership(partition=seat, member=last)
    ownership = PartitionOwnership(
        partition=seat,
        broker=broker,
        broker_epoch=report.broker_epoch,
        held_ms=report.held_ms,
        member=record.member,
        epoch=record.epoch,
        is_bound=record.is_bound,
        closed_attempt=record.closed_attempt,
        pause_attempt=record.pause_attempt,
        registered_ms=record.registered_ms,
    )
    is_older = (
        outcome is not None
        and ownership.broker_epoch <= outcome.broker_epoch
        and ownership.epoch < outcome.epoch
    )
    if outcome is None or not is_older:
        return ownership
    return replace(
        ownership,
        member=outcome.member,
        epoch=outcome.epoch,
        is_bound=outcome.member is not None and (outcome.member, broker) in bound,
        pause_attempt=None,
        registered_ms=None,
    )
