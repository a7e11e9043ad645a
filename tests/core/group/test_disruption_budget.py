"""What a budget lets through, and what it holds up."""

import pytest

from partq.core.group.disruption_budget import BudgetLimit, BudgetUse, DisruptionBudget, split_moves
from partq.core.group.moves import Forced, Move, Trigger
from partq.core.group.observation import PartitionOwnership
from partq.core.model import BrokerId, MemberId, PartitionId

NOW = 1_000_000
A, B, C, D = map(MemberId, "abcd")
NOTHING = BudgetUse(paused_count=0, moved_at_ms=(), last_at_ms={})


def move(index, target=C, source=A, *, may_wait=True, forced=None):
    ownership = PartitionOwnership(
        partition=PartitionId(1, index), broker=BrokerId("b-0"), member=source
    )
    return Move(ownership, target, Trigger.MEMBER_JOINED, forced, may_wait=may_wait)


def spent(*, paused=0, ages_ms=(), last_ms=None):
    last = {PartitionId(1, index): NOW - age for index, age in (last_ms or {}).items()}
    return BudgetUse(
        paused_count=paused, moved_at_ms=[NOW - age for age in ages_ms], last_at_ms=last
    )


def judged(moves, budget, spending=NOTHING):
    """Return the indexes that start, and {index: (limit, time to wait)} of the others."""
    parts = split_moves(moves, budget, spending, NOW)
    held = {
        each.move.partition.index: (each.limit, each.until_ms and each.until_ms - NOW)
        for each in parts.held
    }
    return [each.partition.index for each in parts.started], held


FOUR = [move(index) for index in range(4)]
PAUSED, PER_MINUTE, INTERVAL = BudgetLimit.PAUSED, BudgetLimit.PER_MINUTE, BudgetLimit.INTERVAL


@pytest.mark.parametrize(
    ("budget", "spending", "started", "held"),
    [
        pytest.param(
            DisruptionBudget(), spent(paused=99, ages_ms=[0] * 99), [0, 1, 2, 3], {}, id="no limit"
        ),
        pytest.param(
            DisruptionBudget(max_paused=3),
            spent(paused=1),
            [0, 1],
            {2: (PAUSED, None), 3: (PAUSED, None)},
            id="paused: what is under way counts",
        ),
        pytest.param(
            DisruptionBudget(max_per_minute=5),
            spent(ages_ms=[59_999, 40_000, 1]),
            [0, 1],
            {2: (PER_MINUTE, 1), 3: (PER_MINUTE, 1)},
            id="per minute: the oldest of the last minute makes room",
        ),
        pytest.param(
            DisruptionBudget(max_per_minute=2),
            spent(ages_ms=[60_000]),
            [0, 1],
            {2: (PER_MINUTE, None), 3: (PER_MINUTE, None)},
            id="per minute: what starts now counts, what is older does not",
        ),
        pytest.param(
            DisruptionBudget(max_per_minute=2),
            spent(paused=1, ages_ms=[10_000]),
            [],
            dict.fromkeys(range(4), (PER_MINUTE, 50_000)),
            id="per minute: what is under way will count",
        ),
        pytest.param(
            DisruptionBudget(min_interval_ms=30_000),
            spent(last_ms={0: 29_999, 1: 30_000, 3: 0}),
            [1, 2],
            {0: (INTERVAL, 1), 3: (INTERVAL, 30_000)},
            id="interval: each partition for itself",
        ),
        pytest.param(
            DisruptionBudget(max_paused=1, max_per_minute=1, min_interval_ms=10),
            spent(last_ms={0: 5}),
            [1],
            {0: (INTERVAL, 5), 2: (PER_MINUTE, None), 3: (PER_MINUTE, None)},
            id="all of them: one that has to stay holds up no other",
        ),
    ],
)
def test_a_budget_holds_up_what_is_too_much(budget, spending, started, held):
    assert judged(FOUR, budget, spending) == (started, held)


def test_what_cannot_wait_is_never_held_up_and_counts():
    leaving = [move(index, source=B, may_wait=False) for index in (0, 1)]
    lost = [move(2, source=B, may_wait=False, forced=Forced.SOURCE_LOST)]
    vacant = [move(3, source=None, may_wait=False, forced=Forced.UNASSIGNED)]
    tight = DisruptionBudget(max_paused=3, max_per_minute=3, min_interval_ms=3_600_000)
    full = spent(paused=5, ages_ms=[1] * 9, last_ms=dict.fromkeys(range(4), 1))

    assert judged([*leaving, *lost, *vacant], tight, full) == ([0, 1, 2, 3], {})
    started, held = judged([*leaving, *lost, *vacant, move(4)], DisruptionBudget(max_paused=3))
    assert (started, held) == ([0, 1, 2, 3], {4: (PAUSED, None)})
    started, _ = judged([*leaving, *vacant, move(4)], DisruptionBudget(max_paused=3))
    assert started == [0, 1, 3, 4], "nobody's work is interrupted by what nobody had"


def test_newcomers_fill_up_side_by_side():
    moves = [move(index, target=C) for index in range(3)] + [move(i, target=D) for i in (3, 4)]
    started, held = judged(moves, DisruptionBudget(max_paused=3))
    assert started == [0, 1, 3], "two of the three that C gets, one of the two that D gets"
    assert set(held) == {2, 4}
