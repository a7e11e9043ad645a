"""Choose the replacement of a member that leaves: in a rollout each partition moves once.

The pairs are written down before the first partition of a set is paused, so that the next
coordinator gives the rest of a set to the same replacement.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from partq.core.group.membership import GroupAssessment, MemberState
from partq.core.group.observation import LEAVING_FACTS, GroupObservation, MemberFact
from partq.core.model import MemberId, PartitionId


@dataclass(frozen=True, slots=True)
class Replacements:
    """What becomes of the sets of members that go; partitions in neither are spread."""

    passed_on: Mapping[PartitionId, MemberId]
    """Partitions that go to the replacement of their member now."""
    kept: Mapping[PartitionId, MemberId]
    """Partitions that stay where they are until it has a replacement."""


def choose_replacements(
    observation: GroupObservation,
    assessment: GroupAssessment,
    homeless: Collection[PartitionId],
    idle: Collection[MemberId],
) -> Replacements:
    """Give each set to its recorded replacement, else to one that stands by.

    Args:
        observation: what is known of the group.
        assessment: `membership.assess` of it.
        homeless: partitions that need another member.
        idle: `idle_replacements` of the same look.
    """
    passed_on: dict[PartitionId, MemberId] = {}
    kept: dict[PartitionId, MemberId] = {}
    free = sorted(idle)
    for member, partitions in sorted(_sets_left(observation, assessment, homeless).items()):
        replacement = recorded_replacement(observation, assessment, member)
        if replacement is None:
            brokers = {observation.partitions[partition].broker for partition in partitions}
            able = (each for each in free if all(assessment.is_free(each, b) for b in brokers))
            replacement = next(able, None)
        if replacement in free:
            free.remove(replacement)
        for partition in partitions:
            if replacement is not None and assessment.is_free(
                replacement, observation.partitions[partition].broker
            ):
                passed_on[partition] = replacement
            elif _may_wait(observation, assessment, member):
                kept[partition] = member
    return Replacements(passed_on, kept)


def idle_replacements(
    observation: GroupObservation, assessment: GroupAssessment, holding: Collection[MemberId]
) -> frozenset[MemberId]:
    """Return the members that are there to take over, hold nothing and replace nobody yet.

    `holding`: those that have partitions, or get some.
    """
    holders = {ownership.member for ownership in observation.partitions.values()}
    promised = {
        replacement for member, replacement in observation.replacements.items() if member in holders
    }
    return frozenset(
        member
        for member, state in assessment.members.items()
        if state is MemberState.BOUND
        and observation.facts.get(member) is MemberFact.IS_REPLACEMENT
        and member not in holding
        and member not in promised
    )


def needless_replacements(
    observation: GroupObservation, assessment: GroupAssessment
) -> frozenset[MemberId]:
    """Return the members whose recorded replacement is not needed any more.

    They hold nothing, or they are back and keep what is left to them.
    """
    holders = {ownership.member for ownership in observation.partitions.values()}
    return frozenset(
        member
        for member in observation.replacements
        if member not in holders or assessment.members.get(member) is MemberState.BOUND
    )


def _sets_left(
    observation: GroupObservation, assessment: GroupAssessment, homeless: Collection[PartitionId]
) -> dict[MemberId, list[PartitionId]]:
    """Return what members that go, or are waited for no more, leave behind."""
    left: dict[MemberId, list[PartitionId]] = {}
    for partition in sorted(homeless):
        member = observation.partitions[partition].member
        if member is None:
            continue
        is_gone = assessment.members[member] is MemberState.GONE
        if is_gone or observation.facts.get(member) in LEAVING_FACTS:
            left.setdefault(member, []).append(partition)
    return left


def recorded_replacement(
    observation: GroupObservation, assessment: GroupAssessment, member: MemberId
) -> MemberId | None:
    """Return who has begun to take over from a member, if it can continue with it."""
    replacement = observation.replacements.get(member)
    if replacement is None or assessment.members.get(replacement) is not MemberState.BOUND:
        return None
    return None if observation.facts.get(replacement) is MemberFact.IS_AVOIDED else replacement


def _may_wait(observation: GroupObservation, assessment: GroupAssessment, member: MemberId) -> bool:
    """Whether a member that goes is connected, and can continue for a while."""
    return (
        observation.facts.get(member) is MemberFact.IS_BEING_REPLACED
        and assessment.members[member] is MemberState.LEAVING
    )
