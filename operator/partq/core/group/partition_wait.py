"""What one partition waits for, and its standbys, by the same judgement as a coordinator's."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from partq.core.group.assignors import by_priority
from partq.core.group.group_type import GroupType
from partq.core.group.membership import MemberState, OwnershipState, assess
from partq.core.group.moves import Move
from partq.core.group.observation import GroupObservation, PartitionOwnership
from partq.core.group.planner import GroupRules, plan
from partq.core.group.rebalance_delay import RebalanceDelay
from partq.core.group.records import HandoffRecord, WaitingMove
from partq.core.group.standby import failover_order, idle_standbys
from partq.core.model import MemberId, PartitionId
from partq.core.parts.hash_ranges import HashRange, declared


class WaitsFor(StrEnum):
    """What keeps a partition as it is."""

    NOTHING = "nothing"
    """It is where it belongs."""
    BROKER = "broker"
    """No broker that answers serves it."""
    MEMBER = "member"
    """Its member is not connected; the rebalance delay runs."""
    DRAIN = "drain"
    """It is paused, and its source finishes what it is processing."""
    PAUSE = "pause"
    """A handoff is recorded whose pause is not in force."""
    COMMIT = "commit"
    """The broker has to record the target."""
    BUDGET = "budget"
    """It is to move for balance, and the group's budget has no room."""
    REBALANCE_PAUSED = "rebalance_paused"
    """It would move for balance, and an annotation says that nothing does."""
    JOINS = "joins"
    """Members join; a moment later all of them are planned for at once."""
    REPLACEMENT = "replacement"
    """Its member ends, and continues until its replacement is there."""
    RANGE = "range"
    """Members say which slots they want, and none has declared these."""
    NO_MEMBER = "no_member"
    """Nobody has it, and no member that is connected to its broker can take it."""
    REGISTRATION = "registration"
    """Nobody has it, and the members choose: one has to register it."""
    DEAD_LETTERS = "dead_letters"
    """It is where it belongs, and its dead letters stop its deliveries."""
    MESSAGES = "messages"
    """It is where it belongs, and its log does not hold the message that comes next."""
    PREDECESSORS = "predecessors"
    """It is where it belongs, and the group has older messages to do with in other partitions."""
    PARKED_KEYS = "parked_keys"
    """It is where it belongs, and too many keys wait, or one for too long: nothing new is sent."""
    BLOCKED_KEYS = "blocked_keys"
    """It is where it belongs, and keys of it wait until they are released; others continue."""
    APPLICATION = "application"
    """It is where it belongs, and its member's application has paused it."""
    COORDINATOR = "coordinator"
    """It is to move now: a coordinator begins that within a second, if one runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWait:
    """What a partition waits for, with what is known of it."""

    what: WaitsFor
    target: MemberId | None = None
    """Where it is to go, if anywhere."""
    left_ms: int | None = None
    """How long at most, or until it can go at the earliest; below 0: it is overdue."""
    limit: str = ""
    """The field of the budget that has no room."""


def wait_of(
    partition: PartitionId,
    *,
    observation: GroupObservation,
    rules: GroupRules,
    handoffs: Mapping[PartitionId, HandoffRecord],
    held: Mapping[PartitionId, WaitingMove],
    now_ms: int,
    blocked: str = "",
    missing: str = "",
    is_withheld: bool = False,
    gated_by: str = "",
    stands_still: str = "",
    blocked_keys: int = 0,
) -> PartitionWait:
    """Return what a partition waits for.

    Args:
        partition: one of the observation's.
        observation: what is known of the group.
        rules: the group's.
        handoffs: those that run.
        held: the moves that a coordinator has put off.
        now_ms: store time.
        blocked: why its dead letters stop its deliveries; empty: they do not.
        missing: which message its log should hold and does not; empty: none.
        is_withheld: whether its member's application has paused it.
        gated_by: which older messages in other partitions come first; empty: none.
        stands_still: in a group of order Key, why nothing new is sent; empty: it is.
        blocked_keys: how many keys wait until they are released.
    """
    ownership = observation.partitions[partition]
    if ownership.broker is None:
        return PartitionWait(what=WaitsFor.BROKER)
    if partition in handoffs:
        return _handoff(ownership, handoffs[partition], now_ms)
    assessment = assess(observation, rules.membership)
    state = assessment.partitions[partition]
    targets = {each: record.target for each, record in handoffs.items()}
    promised = {each: move.target for each, move in held.items()}

    def planned(by: GroupRules) -> Move | None:
        moves = plan(observation, assessment, by, targets, promised)
        return next((move for move in moves if move.partition == partition), None)

    move = planned(rules)
    if move is not None and move.may_wait and partition in held:
        wait = held[partition]
        left_ms = None if wait.until_ms is None else max(0, wait.until_ms - now_ms)
        return PartitionWait(
            what=WaitsFor.BUDGET, target=wait.target, left_ms=left_ms, limit=wait.limit
        )
    if move is not None:
        return PartitionWait(what=WaitsFor.COORDINATOR, target=move.target)
    if state is OwnershipState.WAITING:
        delay = RebalanceDelay(observation, rules.membership)
        return PartitionWait(what=WaitsFor.MEMBER, left_ms=delay.remaining_ms(ownership))
    is_shared = rules.type.is_open and MemberState.BOUND in assessment.members.values()
    if state is OwnershipState.VACANT and rules.is_client_assigned:
        return PartitionWait(what=WaitsFor.REGISTRATION)
    if state is OwnershipState.VACANT and not is_shared and assessment.join_wait_ms:
        return PartitionWait(what=WaitsFor.JOINS, left_ms=assessment.join_wait_ms)
    if state is OwnershipState.VACANT and not is_shared:
        is_declared = rules.hash_range is not HashRange.STICKY or _is_declared(
            partition, observation
        )
        return PartitionWait(what=WaitsFor.NO_MEMBER if is_declared else WaitsFor.RANGE)
    is_left = state in (OwnershipState.LEAVING, OwnershipState.OVERDUE)
    if is_left and not rules.is_client_assigned:
        return PartitionWait(what=WaitsFor.REPLACEMENT)
    if rules.is_paused and (move := planned(replace(rules, is_paused=False))) is not None:
        return PartitionWait(what=WaitsFor.REBALANCE_PAUSED, target=move.target)
    if missing:
        return PartitionWait(what=WaitsFor.MESSAGES)
    if blocked:
        return PartitionWait(what=WaitsFor.DEAD_LETTERS)
    if gated_by:
        return PartitionWait(what=WaitsFor.PREDECESSORS)
    if stands_still:
        return PartitionWait(what=WaitsFor.PARKED_KEYS)
    if is_withheld:
        return PartitionWait(what=WaitsFor.APPLICATION)
    return PartitionWait(what=WaitsFor.BLOCKED_KEYS if blocked_keys else WaitsFor.NOTHING)


def _is_declared(part: PartitionId, observation: GroupObservation) -> bool:
    return part in declared(
        [part], observation.ranges, {}, ring=observation.ring, ranges=observation.ranges
    )


def standbys_of(
    partition: PartitionId, *, observation: GroupObservation, rules: GroupRules
) -> list[MemberId]:
    """Return who would take over a partition at once if its member were lost, the next one first.

    Each is named for the case that its member and all before it are lost, and nobody else.
    """
    if rules.is_client_assigned:
        return []
    assessment = assess(observation, rules.membership)
    holder = observation.partitions[partition].member
    others = {
        member
        for member, state in assessment.members.items()
        if state is MemberState.BOUND and member != holder
    }
    match rules.type:
        case GroupType.FAILOVER:
            return failover_order(partition, others, observation.priorities)
        case GroupType.EXCLUSIVE:
            return by_priority(others, observation.priorities)
        case GroupType.PARTITIONED | GroupType.KEY_SHARED:
            return idle_standbys(observation, assessment, {holder} if holder else ())
        case GroupType.SHARED | GroupType.SESSION:
            return []


def _handoff(ownership: PartitionOwnership, record: HandoffRecord, now_ms: int) -> PartitionWait:
    left_ms = record.deadline_ms - now_ms
    if record.phase == "Committing":
        return PartitionWait(what=WaitsFor.COMMIT, target=record.target)
    if ownership.pause_attempt != record.attempt:
        return PartitionWait(what=WaitsFor.PAUSE, target=record.target, left_ms=left_ms)
    return PartitionWait(what=WaitsFor.DRAIN, target=record.target, left_ms=left_ms)
