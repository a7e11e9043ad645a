"""Members that stand by: which of them take over from a lost member at once, in which order.

A loss is certain when every living broker has answered, the member has no flow at any of them, and
the brokers of all its partitions have themselves lost its flow. A broker that cannot be reached,
or has just claimed a partition, proves nothing of a member: then the rebalance delay decides. A
loss from before the claim is no proof until members have had the time to bind.
"""

import math
from collections.abc import Collection, Mapping
from enum import StrEnum

from partq.core.group.assignors import failover
from partq.core.group.membership import GroupAssessment, MemberState, OwnershipState
from partq.core.group.observation import GroupObservation, MemberFact
from partq.core.group.replacements import recorded_replacement
from partq.core.model import BrokerId, MemberId, PartitionId


class StandbyPolicy(StrEnum):
    """When a member that stands by takes over from a lost one."""

    AT_ONCE = "AtOnce"
    AFTER_DELAY = "AfterDelay"


def lost_sets(
    observation: GroupObservation,
    assessment: GroupAssessment,
    under_way: Collection[PartitionId],
    bind_ms: int,
) -> dict[MemberId, list[PartitionId]]:
    """Return what members hold that are certainly lost and might return; not what is under way.

    A broker may have lost a flow before it claimed a partition that the member held elsewhere:
    that loss counts only when the member has had `bind_ms` to bind there.
    """
    if not observation.is_complete:
        return {}
    loss_ages: dict[tuple[MemberId, BrokerId | None], int] = {}
    for loss in observation.losses:
        key = loss.member, loss.broker
        loss_ages[key] = min(loss.age_ms, loss_ages.get(key, loss.age_ms))
    sets: dict[MemberId, list[PartitionId]] = {}
    uncertain: set[MemberId] = set()
    for partition, ownership in sorted(observation.partitions.items()):
        member = ownership.member
        if member is None or assessment.members.get(member) is not MemberState.WAITING:
            continue
        age_ms = loss_ages.get((member, ownership.broker))
        if age_ms is None or ownership.held_ms < min(age_ms, bind_ms):
            uncertain.add(member)
        is_waiting = assessment.partitions[partition] is OwnershipState.WAITING
        if is_waiting and partition not in under_way:
            sets.setdefault(member, []).append(partition)
    return {member: sets[member] for member in sorted(sets.keys() - uncertain)}


def choose_standbys(
    observation: GroupObservation,
    assessment: GroupAssessment,
    lost: Mapping[MemberId, Collection[PartitionId]],
    holding: Collection[MemberId],
) -> dict[MemberId, MemberId]:
    """Return which member takes over the whole set of which lost member, one for one.

    A set that is larger than an even share of what is there waits: it has to be spread. Members
    that come in a rollout, or are to be avoided, do not stand by.

    Args:
        observation: what is known of the group.
        assessment: `membership.assess` of it.
        lost: `lost_sets` of the same look.
        holding: members that have partitions, or get some.
    """
    idle = idle_standbys(observation, assessment, holding)
    sharing = {*holding, *idle} - lost.keys()
    share = math.ceil(len(observation.partitions) / max(1, len(sharing)))
    chosen: dict[MemberId, MemberId] = {}
    for member, partitions in lost.items():
        brokers = {observation.partitions[partition].broker for partition in partitions}
        begun = recorded_replacement(observation, assessment, member)
        candidates = [begun] if begun else idle if len(partitions) <= share else []
        for each in candidates:
            if all(assessment.is_free(each, broker) for broker in brokers):
                chosen[member] = each
                idle = [other for other in idle if other != each]
                break
    return chosen


def idle_standbys(
    observation: GroupObservation, assessment: GroupAssessment, holding: Collection[MemberId]
) -> list[MemberId]:
    """Return the bound members that have no partition and get none, in the order of names."""
    holders = {ownership.member for ownership in observation.partitions.values()}
    promised = {other for member, other in observation.replacements.items() if member in holders}
    kept_back = (MemberFact.IS_AVOIDED, MemberFact.IS_REPLACEMENT)
    return sorted(
        member
        for member in assessment.newcomers.difference(holding, promised)
        if observation.facts.get(member) not in kept_back
    )


def failover_order(
    partition: PartitionId, members: Collection[MemberId], priorities: Mapping[str, int]
) -> list[MemberId]:
    """Return who is the master of a partition of a Failover group while those before it are away.

    The first one is the master. Only what is asked of here is away; others stay.
    """
    left, order = set(members), []
    while left:
        (master,) = failover([partition], left, {}, priorities=priorities).values()
        order.append(master)
        left.remove(master)
    return order
