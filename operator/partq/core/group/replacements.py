"""Who takes over the whole set of a member that goes: in a rollout each partition moves once.

The pairs are written down before the first partition of a set is paused, so that whoever plans next
gives the rest of a set to the same heir.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from partq.core.group.membership import (
    LEAVING_FACTS,
    GroupAssessment,
    GroupObservation,
    MemberFact,
    MemberState,
)
from partq.core.model import MemberId, PartitionId


@dataclass(frozen=True, slots=True)
class Replacements:
    """What becomes of the sets of members that go; partitions in neither are spread."""

    passed_on: Mapping[PartitionId, MemberId]
    """Partitions that go to the heir of their member now."""
    kept: Mapping[PartitionId, MemberId]
    """Partitions that stay where they are until there is an heir."""


def inherit(
    observation: GroupObservation,
    table: GroupAssessment,
    homeless: Collection[PartitionId],
    idle: Collection[MemberId],
) -> Replacements:
    """Give each set to its recorded heir, else to one that stands by.

    Args:
        observation: what is known of the group.
        table: `membership.assess` of it.
        homeless: partitions that need another member.
        idle: `idle_replacements` of the same look.
    """
    passed_on: dict[PartitionId, MemberId] = {}
    kept: dict[PartitionId, MemberId] = {}
    free = sorted(idle)
    for member, partitions in sorted(_sets_left(observation, table, homeless).items()):
        heir = _heir_on_record(observation, table, member)
        if heir is None:
            brokers = {observation.seats[partition].broker for partition in partitions}
            able = (each for each in free if all(table.is_free(each, b) for b in brokers))
            heir = next(able, None)
        if heir in free:
            free.remove(heir)
        for partition in partitions:
            if heir is not None and table.is_free(heir, observation.seats[partition].broker):
                passed_on[partition] = heir
            elif _may_wait(observation, table, member):
                kept[partition] = member
    return Replacements(passed_on, kept)


def idle_replacements(
    observation: GroupObservation, table: GroupAssessment, holding: Collection[MemberId]
) -> frozenset[MemberId]:
    """Return the members that are there to take over, hold nothing and are nobody's heir yet.

    `holding`: those that have partitions, or get some.
    """
    holders = {seat.member for seat in observation.seats.values()}
    promised = {heir for member, heir in observation.heirs.items() if member in holders}
    return frozenset(
        member
        for member, standing in table.standings.items()
        if standing is MemberState.BOUND
        and observation.facts.get(member) is MemberFact.IS_REPLACEMENT
        and member not in holding
        and member not in promised
    )


def settled_heirs(observation: GroupObservation) -> frozenset[MemberId]:
    """Return the members with a recorded heir that hold nothing any more: it can go."""
    holders = {seat.member for seat in observation.seats.values()}
    return frozenset(observation.heirs.keys() - holders)


def _sets_left(
    observation: GroupObservation, table: GroupAssessment, homeless: Collection[PartitionId]
) -> dict[MemberId, list[PartitionId]]:
    """Return what members that go, or are waited for no more, leave behind."""
    left: dict[MemberId, list[PartitionId]] = {}
    for partition in sorted(homeless):
        member = observation.seats[partition].member
        if member is None:
            continue
        is_gone = table.standings[member] is MemberState.GONE
        if is_gone or observation.facts.get(member) in LEAVING_FACTS:
            left.setdefault(member, []).append(partition)
    return left


def _heir_on_record(
    observation: GroupObservation, table: GroupAssessment, member: MemberId
) -> MemberId | None:
    """Return who has begun to take over from a member, if it can go on with it."""
    heir = observation.heirs.get(member)
    if heir is None or table.standings.get(heir) is not MemberState.BOUND:
        return None
    return None if observation.facts.get(heir) is MemberFact.IS_AVOIDED else heir


def _may_wait(observation: GroupObservation, table: GroupAssessment, member: MemberId) -> bool:
    """Whether a member that goes is connected, and can go on for a while."""
    return (
        observation.facts.get(member) is MemberFact.IS_BEING_REPLACED
        and table.standings[member] is MemberState.LEAVING
    )
