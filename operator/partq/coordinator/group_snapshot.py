"""One group as a broker shows it, read back into what the core judges.

So the real planner can be asked from anywhere: why something waits, and what would happen if.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from partq.coordinator.broker_api import UNREADABLE, report_of
from partq.coordinator.group.queue_observation import QueueObservation, lost_since, observe_group
from partq.coordinator.rules import group_rules, section
from partq.core.clocks.age_tracker import AgeTracker
from partq.core.group.observation import NO_SUCCESSION, GroupObservation
from partq.core.group.planner import GroupRules
from partq.core.group.records import (
    HandoffRecord,
    MemberRecord,
    MemberSnapshot,
    PastMove,
    RefusedJoin,
    WaitingMove,
)
from partq.core.layout import Succession
from partq.core.model import BrokerId, MemberId, PartitionId
from partq.core.parts.part_id import parse_seat, partition_of
from partq.errors import InternalError
from partq.wire.calls.answers import UNSET
from partq.wire.calls.state import GroupDetail, Picture, SuccessionDetail
from partq.wire.layout_record import ranges_of

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """One group at one time."""

    now_ms: int
    """Redis's time."""
    rules: GroupRules
    observation: GroupObservation
    handoffs: Mapping[PartitionId, HandoffRecord]
    past: Mapping[PartitionId, list[PastMove]]
    waiting: Mapping[PartitionId, WaitingMove]
    heeds_pods: bool
    """Whether the group's policy lets a coordinator use what it knows of pods."""
    silent: Mapping[BrokerId, str]
    """The living brokers that did not answer, and why."""
    refused: Mapping[MemberId, RefusedJoin] = field(default_factory=dict)
    """Refused members, each with the reason."""
    details: Mapping[PartitionId, GroupDetail] = field(default_factory=dict)
    """Further fields of the partition's broker: state, cursor, lag, in_flight. By partition, also
    where the observation has parts."""
    """Further fields of the partition's broker: state, cursor, lag, in_flight."""
    retired: frozenset[PartitionId] = frozenset()
    """The partitions without slots, which are there until groups have read them."""
    ends: Mapping[PartitionId, int] = field(default_factory=dict)
    """The offset of the next message, of the same partitions."""

    @property
    def under_way(self) -> dict[PartitionId, MemberId | None]:
        """The targets of the recorded handoffs that the brokers have not seen the end of."""
        partitions = self.observation.partitions
        return {
            partition: record.target
            for partition, record in self.handoffs.items()
            if partition in partitions and partitions[partition].closed_attempt < record.attempt
        }


def read_snapshot(group: str, body: Picture) -> GroupSnapshot:
    """Read what a broker answers.

    Raises:
        InternalError: it contradicts itself, or names what is no partition.
        SettingsError: the group's spec is broken.
    """
    try:
        return _snapshot(group, body)
    except UNREADABLE as error:
        raise InternalError(
            f"group {group}: the broker's answer cannot be read: {error!r}"
        ) from error


def _snapshot(group: str, body: Picture) -> GroupSnapshot:
    rules = group_rules(body.queue_spec, body.group_spec)
    states = {name: each.state for name, each in body.brokers.items() if each.state is not UNSET}
    queue = QueueObservation(
        partitions=tuple(map(PartitionId.parse, body.partitions)),
        states={BrokerId(name): report_of(state) for name, state in states.items()},
        is_complete=len(states) == len(body.brokers),
        succession=(
            _succession(body.succession) if body.succession is not UNSET else NO_SUCCESSION
        ),
        slots=ranges_of(body.slots) if body.slots is not UNSET else {},
    )
    members = MemberSnapshot(
        members={
            MemberId(name): MemberRecord(each.address, each.lost_at_ms)
            for name, each in body.members.items()
        },
        replacements={MemberId(name): MemberId(other) for name, other in body.heirs.items()},
        refused={
            MemberId(name): RefusedJoin(each.address, each.reason, each.is_final)
            for name, each in body.refused.items()
        },
        now_ms=body.now_ms,
    )
    now_ms = members.now_ms
    observation = observe_group(
        queue,
        group,
        members=members,
        lost_ms=AgeTracker[MemberId]().observe(lost_since(members), store_ms=now_ms, now_ms=now_ms),
        assignment=_by_partition(body.assignment),
        outcomes={},
        facts={},
        priorities={},
        parts=rules.parts,
    )
    served = {
        (partition := partition_of(seat)): states[ownership.broker].partitions[str(partition)]
        for seat, ownership in observation.partitions.items()
        if ownership.broker is not None
    }
    return GroupSnapshot(
        now_ms=now_ms,
        rules=rules,
        observation=observation,
        handoffs=_by_partition(body.handoffs),
        past=_by_partition(body.past),
        waiting=_by_partition(body.waiting),
        heeds_pods=section(body.group_spec, "rebalance").get("policy") != "Timer",
        silent={
            BrokerId(name): str(each.error)
            for name, each in body.brokers.items()
            if each.state is UNSET
        },
        refused=members.refused,
        retired=frozenset(
            map(PartitionId.parse, body.succession.retired if body.succession is not UNSET else ())
        ),
        details={partition: detail.groups[group] for partition, detail in served.items()},
        ends={partition: detail.end for partition, detail in served.items()},
    )


def _succession(found: SuccessionDetail) -> Succession:
    parse = PartitionId.parse
    return Succession(
        frozenset(map(parse, found.outgoing)),
        {parse(new): parse(origin) for new, origin in found.origins.items()},
        {parse(each): parse(heir) for each, heir in found.heirs.items()},
    )


def _by_partition(records: Mapping[str, Record]) -> dict[PartitionId, Record]:
    return {parse_seat(name): record for name, record in records.items()}
