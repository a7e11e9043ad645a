"""From a move to an attempt, and from an attempt to what is written down of it. Pure."""

from partq.coordinator.group.handoff_runner import Ended
from partq.core.group import handoff
from partq.core.group.handoff import Attempt
from partq.core.group.membership import (
    GroupAssessment,
    GroupObservation,
    MembershipRules,
    OwnershipState,
    PartitionOwnership,
)
from partq.core.group.moves import Forced, Move, Trigger
from partq.core.model import BrokerId, MemberId
from partq.core.records import HandoffRecord, PastMove


def attempt_at(
    seat: PartitionOwnership, broker: BrokerId, target: MemberId | None, number: int
) -> Attempt:
    """Return an attempt to take a partition from its present member."""
    return Attempt(
        number=number,
        broker=broker,
        broker_epoch=seat.broker_epoch,
        source=seat.member,
        epoch=seat.epoch,
        target=target,
    )


def as_recorded(seat: PartitionOwnership) -> handoff.Handoff:
    """Return what a partition is before its handoff."""
    if seat.member is None:
        return handoff.Vacant(seat.epoch)
    return handoff.Owned(seat.member, seat.epoch)


def lost(source: MemberId, table: GroupAssessment) -> Forced:
    """Return why a source cannot be drained any more."""
    return Forced.SOURCE_UNBOUND if source in table.bound_at else Forced.SOURCE_LOST


def idle_ms(observation: GroupObservation, move: Move, rules: MembershipRules) -> int:
    """Return how long a partition has been without a consumer when its move starts."""
    if move.forced is None or move.seat.member is None:
        return 0
    ages = [
        loss.age_ms
        for loss in observation.losses
        if loss.member == move.seat.member and loss.broker == move.seat.broker
    ]
    return min([move.seat.held_ms, *ages]) if ages else min(move.seat.held_ms, rules.delay_ms)


def trigger_of(record: HandoffRecord, state: OwnershipState) -> Trigger:
    """Return what a recorded attempt is due to; `state`: of its partition, if it does not say."""
    if record.trigger in set(Trigger):
        return Trigger(record.trigger)
    return Trigger.MEMBER_LEFT if state is OwnershipState.LEAVING else Trigger.MEMBER_JOINED


def is_committed(record: HandoffRecord, seat: PartitionOwnership) -> bool:
    """Whether a recorded attempt is the one that recorded the partition's member."""
    return (seat.closed_attempt, seat.member) == (record.attempt, record.target)


def unseen_move(record: HandoffRecord, now_ms: int) -> PastMove:
    """Return a move whose coordinator did not live to see it committed."""
    return PastMove(
        at_ms=now_ms,
        source=record.source,
        target=record.target,
        attempt=record.attempt,
        trigger=record.trigger,
        evidence=record.evidence,
        forced=record.forced,
        pause_ms=None,
    )


def past_move(ended: Ended, now_ms: int) -> PastMove:
    """Return a handoff that was committed just now as the move that it was."""
    return PastMove(
        at_ms=now_ms,
        source=ended.attempt.source,
        target=ended.attempt.target,
        attempt=ended.attempt.number,
        trigger=ended.trigger,
        evidence=ended.evidence,
        forced=ended.forced,
        pause_ms=ended.pause_ms,
    )
