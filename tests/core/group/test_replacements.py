"""Rollouts and members that are about to go: who takes over whole sets, and who gets nothing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.group.membership import assess
from partq.core.group.observation import LossSeen, MemberFact
from partq.core.group.planner import GroupRules, GroupType
from partq.core.group.replacements import needless_replacements
from partq.core.model import PartitionId
from tests.core.group.test_planner import A, B, C, D, after, group, members, moves_of, observations

P0, P1, P2, P3 = (PartitionId(1, index) for index in range(4))
EXISTS, AVOIDED = MemberFact.EXISTS, MemberFact.IS_AVOIDED
TERMINATING, REPLACED = MemberFact.IS_TERMINATING, MemberFact.IS_BEING_REPLACED
GONE, REPLACEMENT = MemberFact.IS_GONE_FOR_GOOD, MemberFact.IS_REPLACEMENT
ROLLOUT = {A: EXISTS, B: EXISTS, C: REPLACEMENT, D: REPLACEMENT}
AABB = [A, A, B, B]


def owners_after(observation, **more):
    owners = after(observation, moves_of(observation, **more))
    return [owners[each] for each in (P0, P1, P2, P3)]


@pytest.mark.parametrize(
    ("owned", "bound", "facts", "expected"),
    [
        pytest.param(AABB, [A, B, C, D], {}, AABB, id="they stand by"),
        pytest.param(
            AABB, [A, B, C, D], {A: TERMINATING}, [C, C, B, B], id="one leaves: one inherits all"
        ),
        pytest.param(AABB, [A, B, C, D], {A: REPLACED, B: REPLACED}, [C, C, D, D], id="both leave"),
        pytest.param(
            AABB, [A, B], {A: REPLACED}, AABB, id="its replacement is not there yet: it continues"
        ),
        pytest.param(
            AABB, [A, B], {A: TERMINATING}, [B] * 4, id="its time is over: the others take over"
        ),
        pytest.param(
            AABB, [B], {A: REPLACED}, [B] * 4, id="it is gone before its time: the others take over"
        ),
        pytest.param(
            AABB, [B, C], {A: GONE}, [C, C, B, B], id="gone for good: its replacement inherits"
        ),
        pytest.param([None] * 4, [C, D], {}, [C, C, D, D], id="nobody but they is there"),
        pytest.param(
            [None, A, B, B], [A, B, C], {}, [A, A, B, B], id="what nobody has: those that work"
        ),
    ],
)
def test_rollout(owned, bound, facts, expected):
    assert owners_after(group(owned, bound=bound, facts=ROLLOUT | facts)) == expected


def test_without_a_rollout_all_share():
    observation = group(AABB, bound=[A, B, C, D], facts={A: TERMINATING})
    assert owners_after(observation) == [C, D, B, B]


def test_a_lost_member_is_waited_for_and_then_one_replacement_inherits_all():
    waits = group(AABB, bound=[B, C, D], lost={A: 4_999}, facts=ROLLOUT)
    assert moves_of(waits) == []
    late = group(AABB, bound=[B, C, D], lost={A: 5_000}, facts=ROLLOUT)
    assert owners_after(late) == [C, C, B, B]


# ---- pairs --------------------------------------------------------------------------------------


@pytest.mark.req("MEM-07")
def test_the_rest_of_a_set_goes_to_the_recorded_replacement():
    """One of A's partitions has passed to D already, and nothing of it is under way any more."""
    facts = ROLLOUT | {A: TERMINATING}
    observation = group([D, A, B, B], bound=[A, B, C, D], facts=facts, replacements={A: D})
    assert owners_after(observation) == [D, D, B, B]
    nothing_yet = group(AABB, bound=[A, B, C, D], facts=facts, replacements={A: D})
    assert owners_after(nothing_yet) == [D, D, B, B]


def test_a_partition_on_its_way_for_balance_makes_no_replacement():
    """A was about to give one to D when it was told to end: D gets no more than that."""
    observation = group([A, A, A, B], bound=[A, B, C, D], facts=ROLLOUT | {A: TERMINATING})
    moves = moves_of(observation, under_way={P0: D})
    assert {move.partition: move.target for move in moves} == {P1: C, P2: C}


def test_who_replaces_one_already_gets_no_second_set():
    facts = ROLLOUT | {A: REPLACED, B: REPLACED}
    observation = group(AABB, bound=[A, B, C, D], facts=facts, replacements={B: C})
    assert owners_after(observation) == [D, D, C, C]


@pytest.mark.parametrize("bound", [[A, B, C], [A, B, C, D]], ids=["it is gone", "it shall go"])
def test_a_replacement_that_cannot_go_on_is_replaced(bound):
    facts = ROLLOUT | {A: TERMINATING, D: AVOIDED}
    observation = group(AABB, bound=bound, facts=facts, replacements={A: D})
    assert owners_after(observation) == [C, C, B, B]


def test_inherited_moves_say_so_and_others_do_not():
    facts = ROLLOUT | {A: TERMINATING}
    inherited = moves_of(group(AABB, bound=[A, B, C, D], facts=facts))
    assert [move.is_inherited for move in inherited] == [True, True]
    spread = moves_of(group(AABB, bound=[A, B], facts=facts))
    assert [move.is_inherited for move in spread] == [False, False]


def test_a_pair_is_over_when_nothing_is_left_of_the_set():
    facts = {A: REPLACED}
    observation = group([D, A, B, B], bound=[A, B, C, D], facts=facts, replacements={A: D, C: B})
    assert needless_replacements(observation, assess(observation, GroupRules().membership)) == {C}


def test_a_pair_is_over_when_the_member_is_back_and_keeps_the_rest():
    lost = group([D, A, B, B], bound=[B, C, D], lost={A: 100}, replacements={A: D})
    back = group([D, A, B, B], bound=[A, B, C, D], replacements={A: D})
    membership = GroupRules().membership
    assert needless_replacements(lost, assess(lost, membership)) == set()
    assert needless_replacements(back, assess(back, membership)) == {A}


# ---- who gets nothing more ----------------------------------------------------------------------


@pytest.mark.req("MEM-13")
def test_a_member_about_to_go_gets_nothing_and_keeps_what_it_has():
    leaves = group(AABB, bound=[A, B, C, D], leaving=[A], facts={B: AVOIDED, C: AVOIDED})
    assert owners_after(leaves) == [D, D, B, B]
    joins = group([A] * 4, bound=[A, B, C], facts={A: AVOIDED, B: AVOIDED})
    assert moves_of(joins) == [], "it keeps all: the others have nothing to share"
    uneven = group([A, B, B, B], bound=[A, B, C], facts={A: AVOIDED})
    assert sorted(owners_after(uneven)) == [A, B, B, C], "the others share what they have"


def test_a_member_about_to_go_is_better_than_nobody():
    facts = dict.fromkeys([B, C], AVOIDED)
    assert sorted(owners_after(group([A] * 4, bound=[A, B, C], leaving=[A], facts=facts))) == [
        B, B, C, C,
    ]  # fmt: skip


def test_where_only_such_a_member_is_bound_it_takes_over():
    """C is at one broker only: of what is at the other, B takes what would have nobody."""
    observation = group([A] * 4, bound=[A, B, C], leaving=[A], facts={B: AVOIDED})
    brokers = {ownership.broker for ownership in observation.partitions.values()}
    flows = [f for f in observation.flows if (f.member, f.broker) != (C, max(brokers))]
    observation = replace(observation, flows=flows)
    assert owners_after(observation) == [C, B, C, B]


def test_a_member_about_to_go_gets_nothing_beside_what_waits_for_it():
    """B has lost its flow at one broker; at the other it is bound, and still to be avoided."""
    observation = group([A, B, A, D], bound=[A, B, D], leaving=[A], facts={B: AVOIDED})
    lost_at = observation.partitions[P1].broker
    flows = [f for f in observation.flows if (f.member, f.broker) != (B, lost_at)]
    losses = [LossSeen(member=B, broker=lost_at, age_ms=100)]
    waiting = {P1: replace(observation.partitions[P1], is_bound=False)}
    observation = replace(
        observation, flows=flows, losses=losses, partitions=observation.partitions | waiting
    )
    assert owners_after(observation) == [D, B, D, D]


@pytest.mark.req("MEM-13")
@given(observations(), st.sets(members))
def test_nothing_goes_to_an_avoided_member_while_another_can_have_it(seen, avoided):
    seen = replace(seen, facts=dict.fromkeys(avoided, AVOIDED))
    assessment = assess(seen, GroupRules().membership)
    for move in moves_of(seen):
        if move.target in avoided:
            able = {m for m in assessment.members if assessment.is_free(m, move.ownership.broker)}
            assert able <= avoided


@pytest.mark.parametrize("strategy", ["range", "modulo", "failover"])
def test_strategies_that_go_by_name_know_nobody_to_avoid(strategy):
    joins = group(AABB, bound=[A, B], joined={C: 600}, facts={B: AVOIDED})
    plain = replace(joins, facts={})
    rules = GroupRules(strategy=strategy)
    assert owners_after(joins, rules=rules) == owners_after(plain, rules=rules)


def test_an_exclusive_member_is_chosen_among_those_that_stay_and_stays_whole():
    rules = GroupRules(type=GroupType.EXCLUSIVE)
    first = group([None] * 4, bound=[A, B], facts={A: AVOIDED})
    assert owners_after(first, rules=rules) == [B] * 4
    one_lost = group([A] * 4, bound=[A, B], facts={A: AVOIDED})
    partitions = one_lost.partitions | {
        P0: replace(one_lost.partitions[P0], member=None, is_bound=False)
    }
    assert owners_after(replace(one_lost, partitions=partitions), rules=rules) == [A] * 4


def test_who_is_held_back_is_not_waited_for_and_is_a_member_when_it_is_back():
    gone = group(AABB, bound=[B], lost={A: 0}, facts={A: MemberFact.IS_HELD_BACK})
    assert owners_after(gone) == [B] * 4
    back = group(AABB, bound=[A, B], facts={A: MemberFact.IS_HELD_BACK})
    assert moves_of(back) == []
