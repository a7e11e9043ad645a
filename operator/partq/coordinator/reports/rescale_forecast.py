"""Which partitions each member of a group would have after a change of the partition count."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from partq.coordinator.group_snapshot import GroupSnapshot
from partq.core.group.forecast import MemberChange, forecast
from partq.core.group.observation import GroupObservation, PartitionOwnership
from partq.core.model import BrokerId, MemberId, PartitionId
from partq.core.parts.hash_ranges import ring_of
from partq.core.parts.part_id import PartId, partition_of, parts_of
from partq.core.slot_table import SlotTable


class MemberForecast(NamedTuple):
    """What a change does to the members of a group."""

    moved: int
    """Partitions that leave a member."""
    assigned: int
    """Partitions that get their first member."""
    before: Mapping[MemberId, int]
    after: Mapping[MemberId, int]
    """How many partitions that take messages each member has."""


def forecast_members(snapshot: GroupSnapshot, now: SlotTable, then: SlotTable) -> MemberForecast:
    """Return what the coordinator's planner would do with the partitions of another table.

    A partition that continues an index is taken to stay at the member of the one before it.

    Args:
        snapshot: of the group, as `read_snapshot` has it.
        now: the table in force.
        then: the table after the change.
    """
    observation = snapshot.observation
    held = {p: each.member for p, each in observation.partitions.items()} | snapshot.under_way
    changed = _rescaled(observation, now, then, snapshot.rules.parts)
    under_way = {
        p: member for p, member in snapshot.under_way.items() if partition_of(p) in then.slots
    }
    steps = forecast(changed, snapshot.rules, under_way, [MemberChange()])
    moves = [move for step in steps for move in step]
    after = {p: each.member for p, each in changed.partitions.items()} | under_way
    after |= {move.partition: move.target for move in moves}
    return MemberForecast(
        moved=sum(move.ownership.member is not None for move in moves),
        assigned=sum(move.ownership.member is None for move in moves),
        before=_counts(held, now),
        after=_counts(after, then),
    )


def _counts(held: Mapping[PartitionId, MemberId | None], table: SlotTable) -> dict[MemberId, int]:
    members = (member for p, member in held.items() if partition_of(p) in table.slots)
    return dict(Counter(member for member in members if member is not None))


def _rescaled(
    observation: GroupObservation, now: SlotTable, then: SlotTable, parts: int
) -> GroupObservation:
    """Return the observation with the partitions of another table, or with their parts."""
    at_index = {p.index: p for p in now.slots}
    known = observation.partitions
    brokers = sorted({each.broker for each in known.values() if each.broker is not None})
    found = {}
    partitions = sorted(then.slots)
    for seat in parts_of(partitions, parts) if parts else partitions:
        before = at_index.get(seat.index)
        if before is not None and isinstance(seat, PartId):
            before = PartId.of(before, seat.part)
        if before is not None and before in known:
            found[seat] = replace(known[before], partition=seat)
        else:
            found[seat] = _vacant(seat, brokers)
    return replace(observation, partitions=found, ring=ring_of(then.slots, parts) if parts else {})


def _vacant(partition: PartitionId, brokers: list[BrokerId]) -> PartitionOwnership:
    broker = brokers[partition.index % len(brokers)] if brokers else None
    return PartitionOwnership(partition=partition, broker=broker)
