"""A client-assigned group: nothing moves but what lost members had, which goes to nobody."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.group.membership import assess
from partq.core.group.moves import Forced, Trigger
from partq.core.group.observation import FlowSeen, LossSeen, MemberFact
from partq.core.group.partition_wait import PartitionWait, WaitsFor, wait_of
from partq.core.group.planner import GroupRules, plan
from partq.core.group.rebalance_delay import MembershipRules
from partq.core.model import PartitionId
from tests.core.group.test_planner import B1, A, B, C, group, moves_of

RULES = GroupRules(is_client_assigned=True)


@pytest.mark.req("TUB-13", "TUB-28")
@given(st.lists(st.sampled_from([None, A, B]), min_size=1, max_size=6), st.booleans())
def test_nothing_is_given_and_nothing_is_balanced(owned, is_joining):
    """Whoever holds what, whoever joins or says that it leaves: nobody is relieved."""
    joined = {C: 60_000} if is_joining else {}
    seen = group(owned, bound=[A, B], joined=joined, leaving=[B])
    assert moves_of(seen, RULES) == []


@pytest.mark.req("TUB-13", "TUB-28")
def test_what_a_lost_member_had_goes_to_nobody_after_the_delay():
    soon = group([A, B, B], bound=[A], lost={B: 4_000})
    assert moves_of(soon, RULES) == []
    late = group([A, B, B], bound=[A], lost={B: 6_000})
    moves = moves_of(late, RULES)
    assert [(m.partition.index, m.target, m.trigger, m.forced) for m in moves] == [
        (1, None, Trigger.MEMBER_LOST, Forced.SOURCE_LOST),
        (2, None, Trigger.MEMBER_LOST, Forced.SOURCE_LOST),
    ]
    assert moves_of(late, replace(RULES, is_paused=True)) == moves, "a pause of balance or not"


@pytest.mark.parametrize(
    "known",
    [
        pytest.param({"lost": {A: 600_000}}, id="its broker lost its flow long ago"),
        pytest.param({"lost_ms": {A: 600_000}}, id="the store marked it lost long ago"),
    ],
)
@pytest.mark.parametrize("has_flow", [False, True], ids=["nowhere bound", "bound elsewhere"])
def test_what_a_member_registers_waits_the_delay_from_then_on(known, has_flow):
    seen = group([A, None], bound=[B], **known)
    if has_flow:
        flows = [*seen.flows, FlowSeen(member=A, broker=B1, incarnation="i", age_ms=60_000)]
        seen = replace(seen, flows=flows)

    def moves_at(registered_ms):
        partitions = {
            p: replace(each, registered_ms=registered_ms if each.member else None)
            for p, each in seen.partitions.items()
        }
        return moves_of(replace(seen, partitions=partitions), RULES)

    assert moves_at(0) == moves_at(4_999) == []
    for registered_ms in (5_000, None):
        assert [move.ownership.member for move in moves_at(registered_ms)] == [A]


@pytest.mark.parametrize("delay_ms", [0, 500])
@pytest.mark.parametrize(("registered_ms", "waits"), [(0, True), (1_999, True), (2_000, False)])
def test_a_member_has_the_bind_time_for_what_it_registers(delay_ms, registered_ms, waits):
    """It may register through one broker before it is connected with the partition's own."""
    rules = replace(RULES, membership=MembershipRules(delay_ms=delay_ms, bind_ms=2_000))
    seen = group([A], bound=[], lost={A: 60_000})
    partitions = {
        p: replace(each, registered_ms=registered_ms) for p, each in seen.partitions.items()
    }
    moves = moves_of(replace(seen, partitions=partitions), rules)
    assert [move.ownership.member for move in moves] == ([] if waits else [A])


def test_what_a_member_had_that_left_goes_to_nobody_at_once():
    facts = {B: MemberFact.IS_GONE_FOR_GOOD}
    moves = moves_of(group([A, B], bound=[A], lost={B: 10}, facts=facts), RULES)
    assert [(m.partition.index, m.target) for m in moves] == [(1, None)]


def test_what_a_member_had_whose_pod_is_gone_is_drained_and_goes_to_nobody():
    """A member that pulls seems bound for half a minute after its last call."""
    facts = {B: MemberFact.IS_GONE_FOR_GOOD}
    moves = moves_of(group([A, B], bound=[A, B], facts=facts), RULES)
    assert [(m.partition.index, m.target, m.forced) for m in moves] == [(1, None, None)]
    facts = {B: MemberFact.IS_TERMINATING}
    assert moves_of(group([A, B], bound=[A, B], facts=facts), RULES) == [], "it may go on"


def test_what_is_under_way_is_left_alone():
    """As after a change of the group from Server to Client."""
    seen = group([A, B], bound=[A], lost={B: 6_000})
    under_way = {PartitionId(1, 1): A}
    assert plan(seen, assess(seen, RULES.membership), RULES, under_way) == []


@pytest.mark.parametrize(
    ("seen", "what"),
    [
        (group([None], bound=[A]), WaitsFor.REGISTRATION),
        (group([None], bound=[], joined={A: 100}), WaitsFor.REGISTRATION),
        (group([A], bound=[A]), WaitsFor.NOTHING),
        (group([A], bound=[A], leaving=[A]), WaitsFor.NOTHING),
        (group([A], bound=[], lost={A: 60_000}), WaitsFor.COORDINATOR),
    ],
)
def test_what_a_partition_waits_for(seen, what):
    rules = replace(RULES, membership=MembershipRules())
    found = wait_of(
        PartitionId(1, 0), observation=seen, rules=rules, handoffs={}, held={}, now_ms=0
    )
    assert found == PartitionWait(what=what)


@pytest.mark.parametrize(
    ("left_ms", "registered_ms", "waits"),
    [
        pytest.param(3_000, 50, True, id="registered after its last process had left: it is back"),
        pytest.param(9_000, 4_999, True, id="long ago, but since then"),
        pytest.param(9_000, 5_000, False, id="for as long as the delay, and it has not bound"),
        pytest.param(3_000, 4_000, False, id="before it left: at once"),
        pytest.param(3_000, None, False, id="not registered: at once"),
    ],
)
def test_what_is_registered_after_a_process_has_left_waits_the_delay(left_ms, registered_ms, waits):
    seen = group([A, B], bound=[B])
    (ownership,) = (each for each in seen.partitions.values() if each.member == A)
    registered = replace(ownership, registered_ms=registered_ms)
    partitions = {**seen.partitions, ownership.partition: registered}
    left = LossSeen(member=A, broker=ownership.broker, age_ms=left_ms, is_leaving=True)
    moves = moves_of(replace(seen, partitions=partitions, losses=[left]), RULES)
    assert [move.ownership.member for move in moves] == ([] if waits else [A])
