"""What a partition waits for, one line for each answer; what members to come would move."""

from dataclasses import replace

import pytest

from partq.core.group.disruption_budget import DisruptionBudget
from partq.core.group.forecast import MemberChange, duration_ms, forecast, paused_at_once, rollout
from partq.core.group.observation import MemberFact
from partq.core.group.partition_wait import PartitionWait, WaitsFor, wait_of
from partq.core.group.planner import GroupRules
from partq.core.group.records import HandoffRecord, WaitingMove
from partq.core.model import MemberId, PartitionId
from tests.core.group.test_planner import AFTER_DELAY, A, B, C, D, after, group

P0 = PartitionId(1, 0)
NOW = 1_000_000
PAUSED = GroupRules(is_paused=True)
HELD = WaitingMove(target=C, limit="maxMovesPerMinute", since_ms=NOW - 5, until_ms=NOW + 9_000)


def handoff(phase, attempt=7):
    return {P0: HandoffRecord(A, B, attempt, phase, NOW + 2_000)}


def pausing(attempt):
    seen = group([A, B], bound=[A, B])
    return replace(
        seen,
        partitions={**seen.partitions, P0: replace(seen.partitions[P0], pause_attempt=attempt)},
    )


def unserved():
    seen = group([A, B], bound=[A, B])
    return replace(
        seen, partitions={**seen.partitions, P0: replace(seen.partitions[P0], broker=None)}
    )


def waits(seen, rules=None, *, handoffs=None, held=None, blocked="", is_withheld=False, **keys):
    return wait_of(
        P0,
        observation=seen,
        rules=rules or GroupRules(),
        handoffs=handoffs or {},
        held=held or {},
        now_ms=NOW,
        blocked=blocked,
        is_withheld=is_withheld,
        **keys,
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            waits(group([A, B], bound=[A, B])), PartitionWait(what=WaitsFor.NOTHING), id="nothing"
        ),
        pytest.param(
            waits(group([A, B], bound=[A, B]), blocked="no such queue"),
            PartitionWait(what=WaitsFor.DEAD_LETTERS),
            id="nothing but its dead letters",
        ),
        pytest.param(
            waits(pausing(7), handoffs=handoff("Draining"), blocked="no such queue"),
            PartitionWait(what=WaitsFor.DRAIN, target=B, left_ms=2_000),
            id="a handoff comes before what stops its deliveries",
        ),
        pytest.param(waits(unserved()), PartitionWait(what=WaitsFor.BROKER), id="no broker"),
        pytest.param(
            waits(group([A, B, A, B], bound=[B], joined={C: 100}, lost={A: 1_500}), AFTER_DELAY),
            PartitionWait(what=WaitsFor.MEMBER, left_ms=3_500),
            id="a lost member: its own delay, whoever joins meanwhile",
        ),
        pytest.param(
            waits(group([A, B, A, B], bound=[B], joined={C: 100}, lost={A: 1_500})),
            PartitionWait(what=WaitsFor.COORDINATOR, target=C),
            id="a lost member that another one stands by for",
        ),
        pytest.param(
            waits(group([A, B], bound=[A, B]), is_withheld=True),
            PartitionWait(what=WaitsFor.APPLICATION),
            id="its application",
        ),
        pytest.param(
            waits(group([A, B], bound=[A, B]), blocked_keys=1),
            PartitionWait(what=WaitsFor.BLOCKED_KEYS),
            id="keys that somebody has to release",
        ),
        pytest.param(
            waits(group([A, B], bound=[A, B]), stands_still="full", blocked_keys=1),
            PartitionWait(what=WaitsFor.PARKED_KEYS),
            id="keys of which too many wait",
        ),
        pytest.param(
            waits(group([A, B], bound=[A, B]), is_withheld=True, blocked_keys=1),
            PartitionWait(what=WaitsFor.APPLICATION),
            id="its application, which holds up the other keys, too",
        ),
        pytest.param(
            waits(group([A, B], bound=[A, B]), blocked="no such queue", is_withheld=True),
            PartitionWait(what=WaitsFor.DEAD_LETTERS),
            id="dead letters, which a resume would not help",
        ),
        pytest.param(
            waits(pausing(7), handoffs=handoff("Draining"), is_withheld=True),
            PartitionWait(what=WaitsFor.DRAIN, target=B, left_ms=2_000),
            id="a drain of what its application has paused",
        ),
        pytest.param(
            waits(pausing(7), handoffs=handoff("Draining")),
            PartitionWait(what=WaitsFor.DRAIN, target=B, left_ms=2_000),
            id="a drain",
        ),
        pytest.param(
            waits(pausing(None), handoffs=handoff("Draining")),
            PartitionWait(what=WaitsFor.PAUSE, target=B, left_ms=2_000),
            id="a pause that lapsed or has not begun",
        ),
        pytest.param(
            waits(pausing(7), handoffs=handoff("Committing")),
            PartitionWait(what=WaitsFor.COMMIT, target=B),
            id="a commit",
        ),
        pytest.param(
            waits(group([A, A], bound=[A, C]), held={P0: HELD}, rules=GroupRules()),
            PartitionWait(what=WaitsFor.BUDGET, target=C, left_ms=9_000, limit="maxMovesPerMinute"),
            id="the budget, as promised",
        ),
        pytest.param(
            waits(group([A, A], bound=[A], leaving=[A]), held={P0: HELD}),
            PartitionWait(what=WaitsFor.COORDINATOR),
            id="what cannot wait any more does not wait for the budget",
        ),
        pytest.param(
            waits(group([B, B], bound=[A]), PAUSED),
            PartitionWait(what=WaitsFor.MEMBER, left_ms=5_000),
            id="no sign of a loss yet",
        ),
        pytest.param(
            waits(group([A, B], bound=[B], lost={A: 9_000})),
            PartitionWait(what=WaitsFor.COORDINATOR, target=B),
            id="the delay is over and nobody acts",
        ),
        pytest.param(
            waits(group([None, A], bound=[A], joined={B: 100})),
            PartitionWait(what=WaitsFor.JOINS, left_ms=400),
            id="joins",
        ),
        pytest.param(
            waits(group([None, None], bound=[])),
            PartitionWait(what=WaitsFor.NO_MEMBER),
            id="no member",
        ),
        pytest.param(
            waits(
                group([A, B], bound=[A, B], facts={A: MemberFact.IS_BEING_REPLACED}, leaving=[A])
            ),
            PartitionWait(what=WaitsFor.REPLACEMENT),
            id="a replacement that is late",
        ),
    ],
)
def test_what_a_partition_waits_for(found, expected):
    assert found == expected


def test_what_an_annotation_holds_up_is_told():
    """The sticky strategy takes the last ones of who has too many: not the first partition."""
    seen = group([A] * 4, bound=[A, C])
    last = PartitionId(1, 3)
    told = wait_of(last, observation=seen, rules=PAUSED, handoffs={}, held={}, now_ms=NOW)
    assert told == PartitionWait(what=WaitsFor.REBALANCE_PAUSED, target=C)
    assert waits(seen, PAUSED) == PartitionWait(what=WaitsFor.NOTHING)


def ends(seen, steps):
    return list(after(seen, [move for step in steps for move in step]).values())


def test_a_scale_is_forecast():
    seen = group([A, B] * 4, bound=[A, B])
    (step,) = forecast(seen, GroupRules(), {}, [MemberChange(joins=[C, D])])
    assert sorted(ends(seen, [step])) == [A, A, B, B, C, C, D, D]
    (step,) = forecast(seen, GroupRules(), {}, [MemberChange(leaves=[B])])
    assert ends(seen, [step]) == [A] * 8
    assert not any(move.may_wait for move in step)
    assert forecast(seen, PAUSED, {}, [MemberChange(joins=[C])]) == []


def test_a_forecast_begins_where_the_handoffs_that_run_will_end():
    seen = group([A] * 4, bound=[A, B])
    under_way = {PartitionId(1, 2): B, PartitionId(1, 3): B}
    assert forecast(seen, GroupRules(), under_way, []) == []
    assert forecast(seen, GroupRules(), under_way, [MemberChange()]) == []
    assert len(forecast(seen, GroupRules(), {}, [MemberChange()])) == 1


@pytest.mark.parametrize(("heeds_pods", "moves", "paused"), [(True, 8, 4), (False, 10, 3)])
def test_a_rollout_is_forecast(heeds_pods, moves, paused):
    """With knowledge of the pods each partition moves once; without, some move twice."""
    seen = group([A, B] * 4, bound=[A, B])
    steps = forecast(seen, GroupRules(), {}, rollout([A, B], heeds_pods=heeds_pods))
    assert sum(map(len, steps)) == moves
    assert sorted(set(ends(seen, steps))) == ["new-1", "new-2"]
    assert paused_at_once(steps, DisruptionBudget(max_paused=1)) == paused, (
        "what leaves is not held up"
    )


@pytest.mark.parametrize(
    ("budget", "paused", "takes_ms"),
    [
        (DisruptionBudget(), 4, 40),
        (DisruptionBudget(max_paused=1), 1, 160),
        (DisruptionBudget(max_paused=3), 3, 80),
        (DisruptionBudget(max_per_minute=2), 2, 60_000),
        (DisruptionBudget(max_paused=8, max_per_minute=4), 4, 40),
    ],
)
def test_the_budget_makes_moves_take_turns(budget, paused, takes_ms):
    seen = group([A, B] * 4, bound=[A, B])
    steps = forecast(seen, GroupRules(), {}, [MemberChange(joins=[MemberId("c"), MemberId("d")])])
    assert paused_at_once(steps, budget) == paused
    assert duration_ms(steps, budget, [10, 40, 90]) == takes_ms
    assert duration_ms(steps, budget, []) is None
    assert duration_ms([], budget, [10]) == 0


def test_a_message_that_is_missing_goes_before_dead_letters():
    at_rest = group([A, B], bound=[A, B])
    told = wait_of(
        P0, observation=at_rest, rules=GroupRules(), handoffs={}, held={}, now_ms=NOW,
        blocked="why", missing="why",
    )  # fmt: skip
    assert told == PartitionWait(what=WaitsFor.MESSAGES)
