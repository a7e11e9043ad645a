"""Why a move was decided: the one fact that a person on call asks for first."""

from enum import StrEnum

from partq.core.group.membership import GroupAssessment, OwnershipState
from partq.core.group.moves import Move
from partq.core.group.observation import GroupObservation, MemberFact
from partq.core.group.planner import GroupRules


class MoveReason(StrEnum):
    """What was seen of the source of a move, or of the group."""

    NO_MEMBER = "no_member"
    """Nobody had the partition."""
    NEWCOMER = "newcomer"
    """A member that held nothing was there to take a share."""
    UNEVEN = "uneven"
    """The members' shares were not what the strategy says."""
    SAID_LEAVING = "said_leaving"
    """The source told its broker that it ends."""
    POD_TERMINATING = "pod_terminating"
    POD_REPLACED = "pod_replaced"
    """The source's pod ended in a rollout."""
    POD_GONE = "pod_gone"
    """The source's pod and its processes are gone, and no pod of its name will come back."""
    DELAY_OVER = "delay_over"
    """The source's connection was lost, and the rebalance delay is over."""
    STANDBY = "standby"
    """The source's connection was lost, and another member stood by to take over at once."""
    PRIORITY = "priority"
    """The target has a higher priority than the source, in a group whose type knows priorities."""


_BY_FACT = {
    MemberFact.IS_TERMINATING: MoveReason.POD_TERMINATING,
    MemberFact.IS_BEING_REPLACED: MoveReason.POD_REPLACED,
    MemberFact.IS_GONE_FOR_GOOD: MoveReason.POD_GONE,
}


def reason_of(
    move: Move, observation: GroupObservation, assessment: GroupAssessment, rules: GroupRules
) -> MoveReason:
    """Return why a move of this plan was decided."""
    source = move.ownership.member
    if source is None:
        return MoveReason.NO_MEMBER
    if assessment.partitions[move.partition] is OwnershipState.SETTLED:
        is_ranked = not rules.type.is_dealt and move.target is not None
        rank = observation.priorities.get
        if is_ranked and rank(str(move.target), 0) < rank(source, 0):
            return MoveReason.PRIORITY
        return MoveReason.NEWCOMER if move.target in assessment.newcomers else MoveReason.UNEVEN
    if assessment.partitions[move.partition] is OwnershipState.WAITING:
        return MoveReason.STANDBY
    if (fact := observation.facts.get(source)) in _BY_FACT:
        return _BY_FACT[fact]
    said = any(flow.is_leaving for flow in observation.flows if flow.member == source)
    said = said or any(loss.is_leaving for loss in observation.losses if loss.member == source)
    return MoveReason.SAID_LEAVING if said else MoveReason.DELAY_OVER
