"""What a change of a group's members would move: the planner, asked about members to come.

Every plan is carried out on paper, and the next one made, until nothing moves any more.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from partq.core.group.disruption_budget import MINUTE_MS, DisruptionBudget
from partq.core.group.membership import assess
from partq.core.group.moves import Move
from partq.core.group.observation import FlowSeen, GroupObservation, MemberFact, PartitionOwnership
from partq.core.group.planner import GroupRules, plan
from partq.core.model import MemberId, PartitionId

MAX_ROUNDS: Final = 20
"""How many plans may follow on one change; more than two are never needed, as far as is known."""
LONG_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberChange:
    """Members that come and go."""

    joins: Sequence[MemberId] = ()
    leaves: Sequence[MemberId] = ()
    """They say so, and hand over."""
    facts: Mapping[MemberId, MemberFact] | None = None
    """What will be known of them by their pods."""


Step = Sequence[Move]
"""The moves of one plan: they start together, as far as the budget lets them."""


def forecast(
    observation: GroupObservation,
    rules: GroupRules,
    under_way: Mapping[PartitionId, MemberId | None],
    changes: Sequence[MemberChange],
) -> list[Step]:
    """Return what each plan would move, while one change follows on the other.

    Args:
        observation: what is known of the group now.
        rules: the group's.
        under_way: the targets of handoffs that run: they are taken as done.
        changes: each begins when the moves of the one before are over.
    """
    now = _after_handoffs(observation, under_way)
    steps: list[Step] = []
    for change in changes:
        now = _changed(now, change)
        for _ in range(MAX_ROUNDS):
            moves = plan(now, assess(now, rules.membership), rules, {})
            if not moves:
                break
            steps.append(moves)
            now = _after_handoffs(now, {move.partition: move.target for move in moves})
        now = _without(now, change.leaves)
    return steps


def rollout(members: Sequence[MemberId], *, heeds_pods: bool) -> list[MemberChange]:
    """Return the changes of a rollout that replaces the members one by one.

    `heeds_pods`: whether newcomers are known to replace; else they join, and then one leaves.
    """
    changes = []
    for number, member in enumerate(members, start=1):
        new = MemberId(f"new-{number}")
        if heeds_pods:
            facts = {new: MemberFact.IS_REPLACEMENT, member: MemberFact.IS_BEING_REPLACED}
            changes.append(MemberChange(joins=[new], leaves=[member], facts=facts))
        else:
            changes += [MemberChange(joins=[new]), MemberChange(leaves=[member])]
    return changes


def paused_at_once(steps: Sequence[Step], budget: DisruptionBudget) -> int:
    """Return how many partitions are handed over at the same time, at most."""
    return max((_paused(step, budget) for step in steps), default=0)


def duration_ms(
    steps: Sequence[Step], budget: DisruptionBudget, pauses_ms: Sequence[int]
) -> int | None:
    """Return how long the moves take, by the pauses of earlier ones; None: there were none.

    Handoffs run side by side, so one takes as long as many; the budget makes them take turns.
    `minMoveIntervalSeconds` is left out: it depends on when each partition moved last.
    """
    if not pauses_ms:
        return None
    turns = sum(_turns(step, budget) for step in steps)
    waiting = sum(move.may_wait for step in steps for move in step)
    minutes = (waiting - 1) // budget.max_per_minute if budget.max_per_minute and waiting else 0
    return max(round(turns * median(pauses_ms)), minutes * MINUTE_MS)


def _paused(step: Step, budget: DisruptionBudget) -> int:
    must = sum(not move.may_wait and move.ownership.member is not None for move in step)
    waiting = sum(move.may_wait for move in step)
    limits = [limit for limit in (budget.max_paused, budget.max_per_minute) if limit]
    return max(must, min([must + waiting, *limits]))


def _turns(step: Step, budget: DisruptionBudget) -> int:
    waiting = sum(move.may_wait for move in step)
    return max(1, math.ceil(waiting / budget.max_paused)) if budget.max_paused else 1


def _after_handoffs(
    observation: GroupObservation, targets: Mapping[PartitionId, MemberId | None]
) -> GroupObservation:
    """Return the observation after handoffs to these targets."""
    bound = {(flow.member, flow.broker) for flow in observation.flows}

    def ownership_of(ownership: PartitionOwnership) -> PartitionOwnership:
        if ownership.partition not in targets:
            return ownership
        member = targets[ownership.partition]
        is_bound = member is not None and (member, ownership.broker) in bound
        return replace(ownership, member=member, is_bound=is_bound, pause_attempt=None)

    return replace(
        observation,
        partitions={p: ownership_of(ownership) for p, ownership in observation.partitions.items()},
    )


def _changed(observation: GroupObservation, change: MemberChange) -> GroupObservation:
    brokers = sorted(
        {
            ownership.broker
            for ownership in observation.partitions.values()
            if ownership.broker is not None
        }
    )
    stay = [
        replace(flow, is_leaving=flow.is_leaving or flow.member in change.leaves)
        for flow in observation.flows
    ]
    come = [
        FlowSeen(member=member, broker=broker, incarnation="", age_ms=LONG_MS)
        for member in change.joins
        for broker in brokers
    ]
    return replace(
        observation, flows=[*stay, *come], facts={**observation.facts, **(change.facts or {})}
    )


def _without(observation: GroupObservation, members: Collection[MemberId]) -> GroupObservation:
    """Return the observation when members have gone; what they still hold waits for nobody."""
    gone = set(members)
    return replace(
        observation,
        flows=[flow for flow in observation.flows if flow.member not in gone],
        facts={
            **observation.facts,
            **dict.fromkeys(gone, MemberFact.IS_GONE_FOR_GOOD),
        },
    )
