"""Members that stand by: what is taken over before the rebalance delay is over, and by whom."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.group.assignors import failover, sticky
from partq.core.group.membership import assess
from partq.core.group.move_reason import MoveReason, reason_of
from partq.core.group.moves import Forced, Trigger
from partq.core.group.observation import FlowSeen, LossSeen, MemberFact
from partq.core.group.planner import GroupRules, GroupType, may_be_balanced
from partq.core.group.standby import StandbyPolicy, failover_order
from partq.core.model import MemberId, PartitionId
from tests.core.group.test_planner import (
    AFTER_DELAY,
    B0,
    B1,
    LONG,
    RULES,
    A,
    B,
    C,
    D,
    after,
    group,
    moves_of,
)

E = MemberId("e")
FAILOVER = GroupRules(type=GroupType.FAILOVER)
EXCLUSIVE = GroupRules(type=GroupType.EXCLUSIVE)
MEMBERS = [MemberId(f"m{number}") for number in range(7)]


def owners(observation, rules=RULES):
    return "".join(after(observation, moves_of(observation, rules)).values())


def standing(owned, bound, lost, **more):
    """Return a group that has just lost members, in the sight of their brokers."""
    return group(list(owned), bound=list(bound), lost=dict.fromkeys(lost, 0), **more)


# ---- one standby takes one set ------------------------------------------------------------------


@pytest.mark.req("SOL-29", "SOL-U07", "SOL-U03")
@pytest.mark.parametrize(
    ("owned", "bound", "lost", "expected"),
    [
        pytest.param("abc", "bcd", "a", "dbc", id="one is lost, one stands by"),
        pytest.param("aabb", "bc", "a", "ccbb", id="whole sets: a newcomer is a standby, too"),
        pytest.param("abc", "cde", "ab", "dec", id="two are lost, two stand by"),
        pytest.param("abc", "cd", "ab", "dbc", id="two are lost, one stands by: one set waits"),
        pytest.param("aabb", "b", "a", "aabb", id="nobody stands by: it waits"),
        pytest.param("aaaa", "cd", "a", "aaaa", id="more than an even share: it waits"),
        pytest.param("aaaa", "d", "a", "dddd", id="it was alone, and so is the standby"),
    ],
)
def test_a_standby_takes_the_whole_set_of_one_lost_member_at_once(owned, bound, lost, expected):
    assert owners(standing(owned, bound, lost)) == expected
    assert owners(standing(owned, bound, lost), AFTER_DELAY) == owned


def test_it_is_a_forced_commit_with_its_cause_and_is_written_down_as_one_set():
    seen = standing("aabb", "bc", "a")
    assessment = assess(seen, GroupRules().membership)
    for move in moves_of(seen):
        assert (move.trigger, move.forced) == (Trigger.MEMBER_LOST, Forced.SOURCE_LOST)
        assert move.is_inherited
        assert not move.may_wait
        assert reason_of(move, seen, assessment, GroupRules()) is MoveReason.STANDBY


@pytest.mark.req("SOL-29")
@given(st.integers(1, 24), st.integers(2, 6), st.integers(0, 5))
def test_in_a_balanced_group_nothing_but_the_lost_set_moves(count, member_count, lost_index):
    names, spare = MEMBERS[:member_count], MEMBERS[-1]
    partitions = [PartitionId(1, index) for index in range(count)]
    owned = list(sticky(partitions, names, {}).values())
    lost = names[lost_index % member_count]
    seen = group(owned, bound=[*(m for m in names if m != lost), spare], lost={lost: 0})
    mine = [partition for partition, owner in zip(partitions, owned, strict=True) if owner == lost]
    moves = moves_of(seen)
    assert [(move.partition, move.ownership.member) for move in moves] == [(p, lost) for p in mine]
    sizes = Counter(after(seen, moves).values())
    assert max(sizes.values()) - min(sizes[m] for m in {*names, spare} - {lost}) <= 1
    # One of the standbys that were there takes them, and all of them.
    targets = {move.target for move in moves}
    assert len(targets) == bool(mine)
    assert targets.isdisjoint(set(owned))


def test_the_rest_of_a_set_follows_after_a_crash_of_the_coordinator():
    """C holds a part of A's set already, so it would stand by no more; the pair is recorded."""
    seen = standing("caabbb", "bc", "a", replacements={A: C})
    assert owners(seen) == "cccbbb"
    assert owners(standing("caabbb", "bc", "a")) == "caabbb"


def test_who_is_promised_a_set_takes_no_second_one():
    seen = standing("aabbcc", "cd", "ab", replacements={B: D})
    assert owners(seen) == "aaddcc"
    under_way = {PartitionId(1, 2): D, PartitionId(1, 3): D}
    assert moves_of(standing("aabbcc", "cd", "ab"), under_way=under_way) == []


def test_what_is_under_way_of_a_set_is_not_moved_again():
    seen = standing("aabb", "bc", "a", replacements={A: C})
    moves = moves_of(seen, under_way={PartitionId(1, 0): C})
    assert [(move.partition.index, move.target) for move in moves] == [(1, C)]


def test_a_standby_has_to_be_bound_at_the_brokers_of_the_whole_set():
    seen = standing("aabb", "bc", "a")
    for broker in (B0, B1):
        flows = [flow for flow in seen.flows if (flow.member, flow.broker) != (C, broker)]
        assert owners(replace(seen, flows=flows)) == "aabb"


@pytest.mark.parametrize("fact", [MemberFact.IS_REPLACEMENT, MemberFact.IS_AVOIDED])
def test_a_pod_of_a_rollout_or_one_to_be_avoided_does_not_stand_by(fact):
    assert owners(standing("aabb", "bc", "a", facts={C: fact})) == "aabb"


@pytest.mark.req("SOL-37")
def test_a_member_that_returns_after_a_takeover_stands_by():
    assert owners(group(list("dbc"), bound=[A, B, C, D])) == "dbc"


# ---- a loss that is not certain waits -----------------------------------------------------------


def test_a_broker_that_does_not_answer_proves_no_loss():
    assert moves_of(standing("abc", "bcd", "a", is_complete=False)) == []


def test_a_member_that_is_bound_elsewhere_is_not_lost():
    seen = standing("abab", "bc", "a")
    flows = [*seen.flows, FlowSeen(member=A, broker=B1, incarnation="i", age_ms=LONG)]
    assert moves_of(replace(seen, flows=flows)) == []


@pytest.mark.parametrize("rules", [GroupRules(), FAILOVER, EXCLUSIVE], ids=lambda each: each.type)
def test_a_broker_that_has_just_claimed_a_partition_proves_no_loss(rules):
    """The flow was lost together with the broker that had the partition before."""
    seen = standing("aabb" if rules.type is not GroupType.EXCLUSIVE else "aaaa", "bc", "a")
    there = [loss for loss in seen.losses if loss.broker == B0]
    partitions = {
        partition: replace(each, held_ms=100) if each.broker == B1 else each
        for partition, each in seen.partitions.items()
    }
    assert moves_of(replace(seen, losses=there, partitions=partitions), rules) == []
    assert moves_of(replace(seen, losses=there), rules) == []
    assert moves_of(seen, rules) != []


@pytest.mark.parametrize("rules", [GroupRules(), FAILOVER, EXCLUSIVE], ids=lambda each: each.type)
@pytest.mark.parametrize(
    ("held_ms", "age_ms", "is_lost"),
    [
        pytest.param(100, LONG, False, id="older than the claim"),
        pytest.param(1_999, 2_000, False, id="older than the claim, just before the bind time"),
        pytest.param(2_000, LONG, True, id="older than the claim, and the bind time is over"),
        pytest.param(100, 100, True, id="younger than the claim"),
    ],
)
def test_a_loss_from_before_the_claim_counts_once_the_member_has_had_time_to_bind(
    rules, held_ms, age_ms, is_lost
):
    """A lost its flow at B1, worked on at B0, and B1 has claimed the partitions of B0."""
    owned = "aaaa" if rules.type is GroupType.EXCLUSIVE else "aabb"
    seen = standing(owned, "bc", "", brokers=(B1,))
    losses = [LossSeen(member=A, broker=B1, age_ms=age_ms)]
    partitions = {p: replace(each, held_ms=held_ms) for p, each in seen.partitions.items()}
    moves = moves_of(replace(seen, losses=losses, partitions=partitions), rules)
    assert {move.ownership.member for move in moves} == ({A} if is_lost else set())


@pytest.mark.parametrize("strategy", ["range", "modulo", "failover"])
def test_where_names_decide_the_map_a_newcomer_is_no_standby(strategy):
    seen = standing("abcabc", "bcd", "a")
    assert moves_of(seen, GroupRules(strategy=strategy)) == []


# ---- Failover and Exclusive: everybody stands by for everybody -----------------------------------


@pytest.mark.req("PUL-108", "PUL-109", "PUL-113", "PUL-114", "PUL-115", "PUL-116")
@pytest.mark.parametrize(
    ("owned", "bound", "lost", "expected"),
    [
        pytest.param("..", "abcd", "", "ab", id="PUL-114"),
        pytest.param("ab", "cd", "ab", "cd", id="PUL-115"),
        pytest.param("." * 9, "abc", "", "abcabcabc", id="PUL-116"),
        pytest.param("abcabcabc", "bc", "a", "bbccbcbbc", id="the master of three is lost"),
    ],
)
def test_failover(owned, bound, lost, expected):
    seen = group([None if each == "." else each for each in owned], bound=list(bound),
                 lost=dict.fromkeys(lost, 0))  # fmt: skip
    assert owners(seen, FAILOVER) == expected
    patient = replace(FAILOVER, standby=StandbyPolicy.AFTER_DELAY)
    assert owners(seen, patient) == (owned if lost else expected)


def test_healthy_masters_wait_for_the_lost_one_and_move_when_its_time_is_over():
    """Modulo over fewer masters moves others' partitions: back again if the lost one returns."""
    taken = group(list("bbccbcbbc"), bound=[B, C], lost={A: 100}, lost_ms={A: 100})
    assert not may_be_balanced(taken, assess(taken, FAILOVER.membership), FAILOVER)
    assert moves_of(taken, FAILOVER) == []
    back = group(list("bbccbcbbc"), bound=[A, B, C])
    assert owners(back, FAILOVER) == "abcabcabc"
    assert {m.ownership.member for m in moves_of(back, FAILOVER)} == {B, C}
    late = replace(taken, lost_ms={A: 5_000})
    assert owners(late, FAILOVER) == "bcbcbcbcb"
    assert {move.trigger for move in moves_of(late, FAILOVER)} == {Trigger.MEMBER_LOST}
    assert {move.forced for move in moves_of(late, FAILOVER)} == {None}


@pytest.mark.req("PUL-111", "PUL-112")
def test_only_the_highest_priority_has_partitions_and_the_next_one_follows():
    priorities = {C: 1, D: 1, E: 2}
    first = group([None] * 4, bound=[E, D, C, B, A], priorities=priorities)
    assert owners(first, FAILOVER) == "abab"
    one_lost = standing("abab", "bcde", "a", priorities=priorities)
    assert owners(one_lost, FAILOVER) == "bbbb", "C and D hold nothing, but are of the second rank"
    both_lost = standing("abab", "cde", "ab", priorities=priorities)
    assert owners(both_lost, FAILOVER) == "cdcd"


@pytest.mark.parametrize("rules", [FAILOVER, EXCLUSIVE], ids=["Failover", "Exclusive"])
def test_a_member_of_higher_priority_that_joins_takes_over_by_handoffs(rules):
    seen = group([B] * 4, bound=[B, C], joined={A: 700}, priorities={B: 1, C: 1})
    moves = moves_of(seen, rules)
    assert set(after(seen, moves).values()) == {A}
    assert {(move.trigger, move.forced, move.may_wait) for move in moves} == {
        (Trigger.MEMBER_JOINED, None, True)
    }
    assessment = assess(seen, rules.membership)
    assert {reason_of(move, seen, assessment, rules) for move in moves} == {MoveReason.PRIORITY}
    balanced = {reason_of(move, seen, assessment, GroupRules()) for move in moves}
    assert balanced == {MoveReason.NEWCOMER}, "the type Partitioned knows no priorities"


@pytest.mark.req("PUL-111", "PUL-109")
def test_exclusive_goes_to_the_next_by_priority_then_by_name():
    seen = standing("aaaa", "bcd", "a", priorities={B: 1})
    assert owners(seen, EXCLUSIVE) == "cccc"
    assert owners(seen, replace(EXCLUSIVE, standby=StandbyPolicy.AFTER_DELAY)) == "aaaa"


def test_who_cannot_be_reached_at_a_broker_leaves_it_to_the_next_by_priority():
    seen = group([None] * 4, bound=[A, B, C], priorities={B: 1})
    flows = [flow for flow in seen.flows if (flow.member, flow.broker) != (A, B1)]
    assert owners(replace(seen, flows=flows), FAILOVER) == "acac"
    assert owners(replace(seen, flows=flows), EXCLUSIVE) == "acac"


def test_groups_of_the_type_partitioned_know_no_priority():
    seen = group([None] * 4, bound=[A, B], priorities={A: 9})
    assert owners(seen) == "aabb"
    assert owners(seen, GroupRules(strategy="failover")) == "abab"


@pytest.mark.parametrize("rules", [FAILOVER, EXCLUSIVE], ids=["Failover", "Exclusive"])
def test_nobody_loses_a_partition_to_nobody_before_the_delay_is_over(rules):
    seen = standing("aaaa", "b", "a")
    flows = [flow for flow in seen.flows if flow.broker == B0]
    assert owners(replace(seen, flows=flows), rules) == "baba"


@pytest.mark.req("PUL-108", "PUL-111")
@given(
    st.integers(0, 12),
    st.sets(st.sampled_from(MEMBERS)),
    st.dictionaries(st.sampled_from(MEMBERS), st.integers(0, 2)),
)
def test_the_order_says_who_becomes_master_when_those_before_it_are_away(
    index, members, priorities
):
    partition = PartitionId(1, index)
    order = failover_order(partition, members, priorities)
    assert sorted(order) == sorted(members)
    for place, member in enumerate(order):
        left = members - set(order[:place])
        assert failover([partition], left, {}, priorities=priorities) == {partition: member}


def test_a_loss_that_said_good_bye_is_no_matter_of_standbys():
    """It has departed: its partitions are spread as they always were."""
    seen = standing("aabb", "bc", "")
    losses = [LossSeen(member=A, broker=b, age_ms=0, is_leaving=True) for b in (B0, B1)]
    moves = moves_of(replace(seen, losses=losses))
    assert {move.trigger for move in moves} == {Trigger.MEMBER_LEFT}
