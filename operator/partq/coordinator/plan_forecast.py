"""What a change of a group's members would move, from a snapshot: for the CLI and for the page.

Nothing is changed by it. `core/group/forecast.py` asks the planner.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import count

from partq.coordinator.group_snapshot import GroupSnapshot, read_snapshot
from partq.core.group.forecast import (
    MemberChange,
    Step,
    duration_ms,
    forecast,
    paused_at_once,
)
from partq.core.group.membership import GroupAssessment, MemberState, assess
from partq.core.group.planner import may_be_balanced
from partq.core.model import MemberId
from partq.errors import UnavailableError
from partq.wire.calls.answers import UNSET
from partq.wire.calls.state import Picture
from partq.wire.calls.status import MemberCounts, PlanForecast, PlannedMove


def read_complete_snapshot(group: str, body: Picture) -> GroupSnapshot:
    """Read a snapshot to plan with; raises as `read_snapshot`.

    Raises:
        UnavailableError: a broker is silent, and a plan without its partitions would be a guess.
    """
    snapshot = read_snapshot(group, body)
    if snapshot.silent:
        reasons = "; ".join(f"{broker}: {why}" for broker, why in sorted(snapshot.silent.items()))
        raise UnavailableError(
            f"not every broker answers, and a plan would be a guess: {reasons}; try again when "
            "all do"
        )
    return snapshot


def bound_members(snapshot: GroupSnapshot) -> list[MemberId]:
    """Return the connected members, in order."""
    members = _assessment(snapshot).members
    return sorted(m for m, state in members.items() if state is MemberState.BOUND)


def scaled(member_count: int, snapshot: GroupSnapshot) -> MemberChange:
    """Return the change to a number of members.

    New ones are called `new-1` and so on. The member that has the fewest partitions leaves first.
    """
    members = bound_members(snapshot)
    missing = member_count - len(members)
    held = Counter(ownership.member for ownership in snapshot.observation.partitions.values())
    if missing >= 0:
        taken = {*members, *held}
        names = (MemberId(f"new-{number}") for number in count(1))
        free = (name for name in names if name not in taken)
        return MemberChange(joins=[next(free) for _ in range(missing)])
    by_size = sorted(members, key=lambda member: (held[member], member))
    return MemberChange(leaves=by_size[:-missing])


def plan_forecast(
    group: str, snapshot: GroupSnapshot, changes: Sequence[MemberChange]
) -> PlanForecast:
    """Return what the coordinator's planner would move while one change follows on the other."""
    rules = snapshot.rules
    steps = forecast(snapshot.observation, rules, snapshot.under_way, changes)
    moves = [move for step in steps for move in step]
    pauses_ms = [
        move.pause_ms
        for past in snapshot.past.values()
        for move in past
        if move.pause_ms is not None and move.source is not None and move.forced is None
    ]
    return PlanForecast(
        group=group,
        moved=sum(move.ownership.member is not None for move in moves),
        assigned=sum(move.ownership.member is None for move in moves),
        paused_at_once=paused_at_once(steps, rules.budget),
        moves=[
            PlannedMove(
                partition=str(move.partition),
                source=move.ownership.member,
                target=move.target,
                may_wait=move.may_wait,
                is_retired=move.partition in snapshot.retired or UNSET,
            )
            for move in moves
        ],
        members=_counts(snapshot, steps),
        is_paused=rules.is_paused,
        is_settled=rules.is_paused
        or may_be_balanced(snapshot.observation, _assessment(snapshot), rules),
        estimate_ms=duration_ms(steps, rules.budget, pauses_ms),
        estimated_from=len(pauses_ms),
        parts=rules.parts or UNSET,
    )


def _counts(snapshot: GroupSnapshot, steps: Sequence[Step]) -> dict[str, MemberCounts]:
    """Return how many of the partitions that take messages each member has before and after."""
    held = {p: ownership.member for p, ownership in snapshot.observation.partitions.items()}
    planned = {move.partition: move.target for step in steps for move in step}
    then = held | snapshot.under_way | planned
    before = Counter(member for p, member in held.items() if p not in snapshot.retired)
    after = Counter(member for p, member in then.items() if p not in snapshot.retired)
    members = {*bound_members(snapshot), *before, *after}
    named = sorted(member for member in members if member is not None)
    return {member: MemberCounts(before[member], after[member]) for member in named}


def _assessment(snapshot: GroupSnapshot) -> GroupAssessment:
    return assess(snapshot.observation, snapshot.rules.membership)
