"""From a move to an attempt, and from an attempt to its record, or to the next one after a failure.

Without clock and I/O.
"""

from collections.abc import Collection, Iterable

from partq.aio import Backoffs
from partq.coordinator.group.handoff_runner import Ended, Running
from partq.core.group import handoff
from partq.core.group.handoff import Attempt
from partq.core.group.membership import GroupAssessment, OwnershipState
from partq.core.group.moves import Forced, Move, Trigger
from partq.core.group.observation import GroupObservation, PartitionOwnership
from partq.core.group.rebalance_delay import MembershipRules
from partq.core.group.records import HandoffRecord, PastMove
from partq.core.model import BrokerId, MemberId, PartitionId
from partq.core.parts.part_id import PartId

FIRST_BACKOFF_S = 0.1
"""How long a partition is left alone after its first attempt that failed; each further one doubles
that."""
MAX_BACKOFF_S = 5.0


class FailedAttempts:
    """Leaves partitions alone for a while after attempts that failed.

    `now` is always the caller's steady clock, in seconds.
    """

    def __init__(self) -> None:
        self._backoffs = Backoffs[PartitionId](FIRST_BACKOFF_S, MAX_BACKOFF_S)

    def note(self, ended: Ended, now: float) -> None:
        """Note how an attempt ended; a commit ends the waits of its partition."""
        if ended.is_committed:
            self._backoffs.succeeded(ended.partition)
        else:
            self._backoffs.failed(ended.partition, now)

    def may_start(self, moves: Iterable[Move], now: float) -> list[Move]:
        """Return the moves whose partitions may be tried now."""
        return [move for move in moves if self._backoffs.may_try(move.partition, now)]


def paused_partitions(
    observation: GroupObservation, under_way: Iterable[Running]
) -> set[PartitionId]:
    """Return the partitions that a broker has paused for a handoff, or is about to pause."""
    paused = {p for p, each in observation.partitions.items() if each.pause_attempt is not None}
    return paused | {each.partition for each in under_way if each.attempt.source is not None}


def attempt_at(
    ownership: PartitionOwnership,
    broker: BrokerId,
    target: MemberId | None,
    number: int,
    *,
    drain_ms: int = 0,
) -> Attempt:
    """Return an attempt to take a partition, or a part, from its present member.

    `drain_ms`: how long that may keep the keys of a part of which it has messages.
    """
    return Attempt(
        number=number,
        broker=broker,
        broker_epoch=ownership.broker_epoch,
        source=ownership.member,
        epoch=ownership.epoch,
        target=target,
        keys_ms=drain_ms if isinstance(ownership.partition, PartId) else None,
    )


def as_recorded(ownership: PartitionOwnership) -> handoff.Handoff:
    """Return what a partition is before its handoff."""
    if ownership.member is None:
        return handoff.Vacant(ownership.epoch)
    return handoff.Owned(ownership.member, ownership.epoch)


def why_undrained(source: MemberId, assessment: GroupAssessment) -> Forced:
    """Return why a source cannot be drained any more."""
    return Forced.SOURCE_UNBOUND if source in assessment.bound_at else Forced.SOURCE_LOST


def ended_handoffs(
    recorded: Collection[PartitionId], moves: Collection[Move], assessment: GroupAssessment
) -> list[PartitionId]:
    """Return which of the recorded handoffs that do not run are over.

    What is planned again now gets a new record in the place of the last one.
    """
    again = {move.partition for move in moves}
    return [
        partition
        for partition in recorded
        if partition not in again
        and assessment.partitions.get(partition) is not OwnershipState.UNSEEN
    ]


def idle_ms(observation: GroupObservation, move: Move, rules: MembershipRules) -> int:
    """Return how long a partition has been without a consumer when its move starts."""
    if move.forced is None or move.ownership.member is None:
        return 0
    ages = [
        loss.age_ms
        for loss in observation.losses
        if loss.member == move.ownership.member and loss.broker == move.ownership.broker
    ]
    return (
        min([move.ownership.held_ms, *ages])
        if ages
        else min(move.ownership.held_ms, rules.delay_ms)
    )


def trigger_of(record: HandoffRecord, state: OwnershipState) -> Trigger:
    """Return what a recorded attempt is due to; `state`: of its partition, if it does not say."""
    if record.trigger in set(Trigger):
        return Trigger(record.trigger)
    return Trigger.MEMBER_LEFT if state is OwnershipState.LEAVING else Trigger.MEMBER_JOINED


def is_committed(record: HandoffRecord, ownership: PartitionOwnership) -> bool:
    """Whether a recorded attempt is the one that recorded the partition's member."""
    return (ownership.closed_attempt, ownership.member) == (record.attempt, record.target)


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
        evidence=ended.reason,
        forced=ended.forced,
        pause_ms=ended.pause_ms,
    )
