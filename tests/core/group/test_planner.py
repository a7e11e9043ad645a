from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.group.membership import MemberState, OwnershipState, assess
from partq.core.group.moves import Forced, Trigger
from partq.core.group.observation import (
    FlowSeen,
    GroupObservation,
    LossSeen,
    MemberFact,
    PartitionOwnership,
)
from partq.core.group.planner import GroupRules, GroupType, plan
from partq.core.group.rebalance_delay import MembershipRules
from partq.core.group.standby import StandbyPolicy
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId, PartitionId

B0, B1 = BrokerId("b-0"), BrokerId("b-1")
BROKERS = (B0, B1)
A, B, C, D = map(MemberId, "abcd")
LONG = 60_000
RULES = GroupRules()
AFTER_DELAY = GroupRules(standby=StandbyPolicy.AFTER_DELAY)


def group(owned, *, bound, joined=(), leaving=(), lost=None, facts=None, brokers=BROKERS, **more):
    """Return a observation: `owned` is a member or None per partition; ages in milliseconds."""
    lost = lost or {}
    ages = {**dict.fromkeys(bound, LONG), **dict(joined)}
    partitions = {}
    for index, member in enumerate(owned):
        partition = PartitionId(1, index)
        partitions[partition] = PartitionOwnership(
            partition=partition,
            broker=brokers[index % len(brokers)],
            broker_epoch=BrokerEpoch(7),
            held_ms=LONG,
            member=member,
            epoch=Epoch(3),
            is_bound=member in ages,
        )
    return GroupObservation(
        partitions=partitions,
        flows=[
            FlowSeen(
                member=member,
                broker=broker,
                incarnation="i",
                age_ms=age_ms,
                is_leaving=member in leaving,
            )
            for member, age_ms in ages.items()
            for broker in dict.fromkeys(brokers)
        ],
        losses=[
            LossSeen(member=member, broker=broker, age_ms=age_ms)
            for member, age_ms in lost.items()
            for broker in dict.fromkeys(brokers)
        ],
        facts=facts or {},
        **more,
    )


def moves_of(observation, rules=RULES, under_way=None):
    return plan(observation, assess(observation, rules.membership), rules, under_way or {})


def after(observation, moves):
    """Return who owns what once the moves are done."""
    owned = {partition: ownership.member for partition, ownership in observation.partitions.items()}
    owned.update({move.partition: move.target for move in moves})
    return owned


def sizes(observation, moves):
    return Counter(after(observation, moves).values())


def test_the_first_members_share_everything():
    seen = group([None] * 16, bound=[], joined={A: 600, B: 500})
    moves = moves_of(seen)
    assert sizes(seen, moves) == {A: 8, B: 8}
    assert {(move.trigger, move.forced) for move in moves} == {
        (Trigger.MEMBER_JOINED, Forced.UNASSIGNED)
    }


@pytest.mark.req("TUB-03")
def test_joins_wait_for_each_other():
    assert moves_of(group([None] * 4, bound=[], joined={A: 499})) == []
    assert moves_of(group([A] * 4, bound=[A], joined={B: 499})) == []
    assert len(moves_of(group([A] * 4, bound=[A], joined={B: 500}))) == 2


@pytest.mark.req("SOL-24", "HND-01", "PUL-101", "PUL-131")
def test_a_join_moves_what_balance_asks_for_and_no_more():
    seen = group([A, B] * 8, bound=[A, B], joined={C: 700, D: 600})
    moves = moves_of(seen)
    assert sizes(seen, moves) == {A: 4, B: 4, C: 4, D: 4}
    assert len(moves) == 8
    assert {(move.trigger, move.forced) for move in moves} == {(Trigger.MEMBER_JOINED, None)}


@pytest.mark.req("SOL-25")
@pytest.mark.parametrize("strategy", ["sticky", "range", "modulo"])
def test_with_a_member_for_each_partition_another_join_moves_nothing(strategy):
    seen = group([B, C], bound=[B, C], joined={A: LONG})
    assert moves_of(seen, GroupRules(strategy=strategy)) == []


@pytest.mark.req("SOL-29", "SOL-U07")
@pytest.mark.parametrize("strategy", ["sticky", "range", "modulo"])
def test_a_standby_takes_over_one_for_one(strategy):
    rules = GroupRules(strategy=strategy)
    patient = replace(AFTER_DELAY, strategy=strategy)
    early = group([A, B, C], bound=[A, C, D], lost={B: 0})
    waits = group([A, B, C], bound=[A, C, D], lost={B: 4_999})
    late = group([A, B, C], bound=[A, C, D], lost={B: 5_000})
    gone = group([A, B, C], bound=[A, C, D], lost={B: 0}, facts={B: MemberFact.IS_GONE_FOR_GOOD})
    leaves = group([A, B, C], bound=[A, B, C, D], leaving=[B])

    assert moves_of(early, patient) == moves_of(waits, patient) == []
    for seen, forced in (
        (early, Forced.SOURCE_LOST),
        (late, Forced.SOURCE_LOST),
        (gone, Forced.SOURCE_LOST),
        (leaves, None),
    ):
        (move,) = moves_of(seen, rules)
        assert (move.ownership.member, move.target, move.forced) == (B, D, forced)


@pytest.mark.req("SOL-26", "SOL-38")
def test_a_lost_member_waits_out_its_delay_and_nothing_else_moves():
    assert moves_of(group([A, B] * 4, bound=[A], lost={B: 4_999})) == []
    seen = group([A, B, C] * 4, bound=[A, C], joined={D: LONG}, lost={B: 4_999})
    assert moves_of(seen, AFTER_DELAY) == []


@pytest.mark.req("SOL-26", "SOL-41", "PUL-109", "PUL-132")
def test_past_the_delay_only_the_unbound_partitions_move():
    seen = group([A, B, C, D] * 4, bound=[A, B, C], lost={D: 5_000})
    moves = moves_of(seen)
    assert {move.ownership.member for move in moves} == {D}
    assert {(move.trigger, move.forced) for move in moves} == {
        (Trigger.MEMBER_LOST, Forced.SOURCE_LOST)
    }
    assert sorted(sizes(seen, moves).values()) == [5, 5, 6]


@pytest.mark.req("SOL-U08")
def test_a_leaving_member_hands_over_at_once_and_gracefully():
    seen = group([A, B] * 4, bound=[A, B], leaving=[B])
    moves = moves_of(seen)
    assert sizes(seen, moves) == {A: 8}
    assert {(move.trigger, move.forced) for move in moves} == {(Trigger.MEMBER_LEFT, None)}


def test_without_another_member_partitions_become_vacant():
    leaves = group([A] * 4, bound=[A], leaving=[A])
    assert [move.target for move in moves_of(leaves)] == [None] * 4
    late = group([A] * 4, bound=[], lost={A: 5_000})
    assert {(move.target, move.forced) for move in moves_of(late)} == {(None, Forced.SOURCE_LOST)}
    assert moves_of(group([None] * 4, bound=[])) == []


def test_no_balance_while_a_broker_is_silent_but_what_must_move_moves():
    seen = group([A] * 4, bound=[A], joined={B: LONG}, is_complete=False)
    assert moves_of(seen) == []
    late = group([A, C] * 2, bound=[A], lost={C: LONG}, is_complete=False)
    assert sizes(late, moves_of(late)) == {A: 4}


def test_a_member_that_a_broker_has_lost_is_avoided_there():
    seen = group([A] * 4, bound=[A], brokers=BROKERS)
    flows = [*seen.flows, FlowSeen(member=B, broker=B0, incarnation="i", age_ms=LONG)]
    seen = GroupObservation(partitions=seen.partitions, flows=flows)
    for move in moves_of(seen):
        assert move.target == B
        assert move.ownership.broker == B0

    # Bound at b-0 and lost for good at b-1: only what is at b-1 moves.
    half = group([A, B] * 2, bound=[A])
    half = GroupObservation(
        partitions={
            p: PartitionOwnership(
                partition=p, broker=s.broker, broker_epoch=s.broker_epoch, held_ms=LONG,
                member=B, epoch=s.epoch, is_bound=s.broker == B0,
            )
            for p, s in half.partitions.items()
        },
        flows=[f for f in half.flows if f.member == A]
        + [FlowSeen(member=B, broker=B0, incarnation="i", age_ms=LONG)],
        losses=[LossSeen(member=B, broker=B1, age_ms=5_000)],
    )  # fmt: skip
    moves = moves_of(half)
    assert {(m.ownership.broker, m.target, m.forced) for m in moves} == {
        (B1, A, Forced.SOURCE_UNBOUND)
    }
    assert len(moves) == 2


def test_partitions_under_way_count_for_their_targets_and_stay():
    seen = group([A, B] * 4, bound=[A, B], joined={C: 600})
    first = moves_of(seen)
    under_way = {move.partition: move.target for move in first}
    assert moves_of(seen, under_way=under_way) == []


@pytest.mark.req("PUL-99", "PUL-105", "PUL-106")
def test_exclusive_gives_all_to_one_and_keeps_it_there():
    rules = GroupRules(type=GroupType.EXCLUSIVE)
    first = group([None] * 4, bound=[], joined={B: 700, C: 700})
    assert sizes(first, moves_of(first, rules)) == {B: 4}
    joined = group([B] * 4, bound=[B, C], joined={A: 700})
    assert moves_of(joined, rules) == []
    late = group([B] * 4, bound=[A, C], lost={B: 5_000})
    assert sizes(late, moves_of(late, rules)) == {A: 4}


def test_exclusive_stays_with_one_while_a_part_still_waits():
    """The lost one has the rest, and cannot be who gets all: the others must not share."""
    seen = group([A] * 6, bound=[B, C, D], lost={A: 5_000})
    just_claimed = {
        partition: replace(ownership, held_ms=100)
        for partition, ownership in seen.partitions.items()
        if ownership.broker == B1
    }
    seen = replace(seen, partitions={**seen.partitions, **just_claimed})
    rules = replace(AFTER_DELAY, type=GroupType.EXCLUSIVE)
    assert sizes(seen, moves_of(seen, rules)) == {A: 3, B: 3}

    # Who cannot be reached at a broker leaves it to one other, too.
    seen = group([None] * 4, bound=[A, B, C])
    only_there = [f for f in seen.flows if (f.member, f.broker) != (A, B1)]
    seen = replace(seen, flows=only_there)
    assert sizes(seen, moves_of(seen, rules)) == {A: 2, B: 2}


def test_who_cannot_be_reached_at_one_broker_gets_its_share_at_the_other():
    """What it cannot take goes to another, who is not given more for balance then."""
    seen = group([A] * 4, bound=[A, B, C, D], lost={A: 5_000}, brokers=(B0, B0, B1, B1))
    flows = [f for f in seen.flows if (f.member, f.broker) not in {(A, B1), (D, B1)}]
    partitions = {p: replace(s, is_bound=s.broker == B0) for p, s in seen.partitions.items()}
    losses = [each for each in seen.losses if each.broker == B1]
    seen = replace(seen, flows=flows, partitions=partitions, losses=losses)
    moves = moves_of(seen)
    assert sizes(seen, moves) == {A: 1, B: 1, C: 1, D: 1}
    assert [m.target for m in moves if m.may_wait] == [D]


@pytest.mark.req("PUL-103", "PUL-104")
def test_another_type_moves_partitions_by_handoffs():
    """The type is the group's; members, who know none, stay bound and drain what they hand over."""
    seen = group([A, B], bound=[A, B])
    moves = moves_of(seen, GroupRules(type=GroupType.EXCLUSIVE))
    (owner,) = set(after(seen, moves).values())
    back = group([owner] * 2, bound=[A, B])
    moves += moves_of(back)
    assert [move.forced for move in moves] == [None, None]
    assert set(after(back, moves[1:]).values()) == {A, B}


@pytest.mark.req("PUL-99", "PUL-101", "PUL-108", "PUL-114", "PUL-115", "PUL-117")
def test_failover_follows_the_order_of_names():
    rules = GroupRules(type=GroupType.FAILOVER, strategy="failover")
    first = group([None] * 2, bound=[A, B, C, D])
    assert list(after(first, moves_of(first, rules)).values()) == [A, B]
    late = group([A, B], bound=[C, D], lost={A: 5_000, B: 5_000})
    assert list(after(late, moves_of(late, rules)).values()) == [C, D]


def unseen(observation, partition):
    """Return the observation without the broker of a partition."""
    ownership = replace(observation.partitions[partition], broker=None, is_bound=False)
    return replace(observation, partitions={**observation.partitions, partition: ownership})


GONE_A = {"bound": [B, C, D], "facts": {A: MemberFact.IS_GONE_FOR_GOOD}, "lost_ms": {A: 100}}
LEAVING_A = {"bound": [A, B, C, D], "leaving": [A]}
MODULO = GroupRules(strategy="modulo")
P2 = PartitionId(1, 2)


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(GroupRules(type=GroupType.FAILOVER, strategy="failover"), id="Failover"),
        pytest.param(MODULO, id="modulo"),
    ],
)
@pytest.mark.parametrize("members", [GONE_A, LEAVING_A], ids=["gone", "leaving"])
def test_an_outgoing_member_has_no_share_while_a_partition_of_it_cannot_move(rules, members):
    """Else partitions of others would move now, and again when it can."""
    seen = unseen(group([B, C, A, B, C, D], **members), P2)
    assert moves_of(seen, rules) == []
    seen = group([B, C, D, B, C, D], **members)
    assert moves_of(seen, rules, under_way={P2: A}) == []


def test_a_member_that_may_return_has_its_share_while_no_broker_shows_its_partition():
    seen = unseen(group([B, C, A, B, B, C], bound=[B, C]), P2)
    assert [(move.partition.index, move.target) for move in moves_of(seen, MODULO)] == [(1, B)]


members = st.sampled_from([A, B, C, D])


@st.composite
def observations(draw):
    lost = draw(st.dictionaries(members, st.integers(0, 9_000), max_size=2))
    bound = draw(st.sets(members)) - lost.keys()
    joined = draw(st.dictionaries(members, st.integers(0, 3_000), max_size=2))
    joined = {m: age for m, age in joined.items() if m not in bound and m not in lost}
    return group(
        draw(st.lists(st.one_of(st.none(), members), min_size=1, max_size=9)),
        bound=bound,
        joined=joined,
        leaving=draw(st.sets(members, max_size=2)),
        lost=lost,
        is_complete=draw(st.booleans()),
    )


strategies = st.sampled_from(["sticky", "range", "modulo", "failover"])


dealt_types = st.sampled_from([each for each in GroupType if not each.is_open])


@pytest.mark.req("HND-02")
@given(observations(), strategies, dealt_types, st.sampled_from(StandbyPolicy))
def test_every_plan_is_sound(seen, strategy, group_type, standby):
    rules = GroupRules(strategy=strategy, type=group_type, standby=standby)
    assessment = assess(seen, MembershipRules())
    moves = plan(seen, assessment, rules, {})
    assert len({move.partition for move in moves}) == len(moves)
    for move in moves:
        state = assessment.partitions[move.partition]
        assert state is not OwnershipState.UNSEEN
        if state is OwnershipState.WAITING:
            assert standby is StandbyPolicy.AT_ONCE
            assert seen.is_complete
            assert move.ownership.member not in assessment.bound_at
        assert move.target != move.ownership.member
        if move.target is not None:
            assert assessment.is_free(move.target, move.ownership.broker)
        # Only a source that is bound is drained, and it always is.
        is_bound = move.ownership.member is not None and move.ownership.is_bound
        assert (move.forced is None) == is_bound
        if state is OwnershipState.SETTLED:
            assert seen.is_complete
            assert OwnershipState.WAITING not in assessment.partitions.values()
    if group_type is GroupType.SHARED:
        assert moves == [], "any member gets any message"
        return
    is_free = any(each is MemberState.BOUND for each in assessment.members.values())
    if is_free and not assessment.join_wait_ms:
        moving = {move.partition for move in moves}
        for partition, state in assessment.partitions.items():
            if state in (OwnershipState.VACANT, OwnershipState.LEAVING, OwnershipState.OVERDUE):
                assert partition in moving, "nothing waits that a member could serve"


@given(observations())
def test_what_was_planned_and_done_is_not_planned_again(seen):
    """Of the strategy `sticky`, the default."""
    bound = {flow.member for flow in seen.flows}
    owners = after(seen, moves_of(seen, RULES))
    done = {
        partition: replace(
            ownership, held_ms=LONG, member=owners[partition], is_bound=owners[partition] in bound
        )
        for partition, ownership in seen.partitions.items()
    }
    settled = replace(seen, partitions=done)
    # While newcomers are waited for, what nobody holds waits too, and is planned after that.
    if not any(assess(each, RULES.membership).join_wait_ms for each in (seen, settled)):
        assert moves_of(settled, RULES) == []


def test_a_plan_of_many_moves_looks_at_the_states_as_often_as_one_of_few():
    """Once per move was minutes for 65,536 partitions."""

    def looks(partition_count):
        seen = group([A] * partition_count, bound=[A, B])
        assessment = assess(seen, RULES.membership)
        states = CountedStates(assessment.partitions)
        moves = plan(seen, replace(assessment, partitions=states), RULES, {})
        assert len(moves) == partition_count // 2
        return states.looks

    assert looks(8) == looks(64)


class CountedStates(dict):
    """Counts how often all of its values are looked at."""

    looks = 0

    def values(self):
        self.looks += 1
        return super().values()
