"""Where the partitions of a change of the count go: what exists stays, and keys stay with members.

Members and brokers are judged by the same rule.
"""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partq.core.brokers import balance, first_claims
from partq.core.group.assignors import modulo, sticky
from partq.core.group.membership import OwnershipState, assess
from partq.core.group.observation import FlowSeen, GroupObservation, PartitionOwnership
from partq.core.group.planner import GroupRules, GroupType, plan
from partq.core.layout import Layout
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId, PartitionId
from partq.core.rescale.layout_steps import commit, prepare
from tests.core.test_brokers import RULES, living

BROKER = BrokerId("b-0")
LONG = 60_000


def members_of(count):
    return [MemberId(f"m{number}") for number in range(count)]


def observed(layout, owned, members):
    """Return a group whose members are bound; `owned`: member of a partition, if it has one."""
    return GroupObservation(
        partitions={
            each: PartitionOwnership(
                partition=each,
                broker=BROKER,
                broker_epoch=BrokerEpoch(7),
                held_ms=LONG,
                member=owned.get(each),
                epoch=Epoch(3),
                is_bound=owned.get(each) in members,
            )
            for each in layout.all_partitions()
        },
        flows=[
            FlowSeen(member=each, broker=BROKER, incarnation="i", age_ms=LONG) for each in members
        ],
        succession=layout.succession(),
    )


def planned(layout, owned, members, rules=None):
    rules = rules or GroupRules()
    seen = observed(layout, owned, members)
    return plan(seen, assess(seen, rules.membership), rules, {})


def after(owned, moves):
    return {**owned, **{move.partition: move.target for move in moves}}


def shares(layout, owned, members):
    """Return how many partitions each member has that stay."""
    outgoing = layout.succession().outgoing
    counts = Counter(member for each, member in owned.items() if each not in outgoing)
    return [counts[member] for member in members]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 9))
@settings(max_examples=60)
def test_what_exists_stays_and_shares_are_even(before, wanted, member_count):
    layout, members = Layout.first(before), members_of(member_count)
    owned = sticky(layout.partitions(), members, {})
    for count in dict.fromkeys([wanted, (before + wanted) // 2 or 1]):
        if count == layout.partition_count:
            continue
        layout = prepare(layout, count)
        moves = planned(layout, owned, members)
        now = after(owned, moves)
        found = shares(layout, now, members)
        assert max(found) - min(found) <= 1
        assert now.keys() == set(layout.all_partitions())
        is_growth = layout.next.table.partition_count > layout.partition_count
        if is_growth and not layout.lineage:
            assert {move.ownership.member for move in moves} <= {None}, "nothing moves"
        assert planned(layout, now, members) == [], "and it stays so"
        layout, owned = commit(layout, 1), now
        assert planned(layout, now, members) == [], "the commit moves nothing"


def test_new_partitions_of_a_growth_go_to_the_members_that_give():
    layout, members = prepare(Layout.first(16), 24), members_of(8)
    owned = sticky(layout.partitions(), members, {})
    moves = planned(layout, owned, members)
    origins = layout.succession().origins
    assert {move.partition: move.target for move in moves} == {
        q: owned[p] for q, p in origins.items()
    }
    assert not any(move.may_wait for move in moves), "no disruption budget holds them up"


def test_a_shrink_leaves_an_index_with_its_member():
    layout, members = prepare(Layout.first(12), 8), members_of(4)
    owned = modulo(layout.partitions(), members, {})
    now = after(owned, planned(layout, owned, members))
    for index in range(8):
        assert now[PartitionId(2, index)] == owned[PartitionId(1, index)]


@pytest.mark.parametrize("strategy", ["range", "modulo"])
def test_strategies_by_name_count_the_partitions_that_stay(strategy):
    layout, members = prepare(Layout.first(6), 4), members_of(2)
    rules = GroupRules(strategy=strategy)
    owned = after({}, planned(Layout.first(6), {}, members, rules))
    now = after(owned, planned(layout, owned, members, rules))
    new = [now[PartitionId(2, index)] for index in range(4)]
    assert new == {"range": ["m0", "m0", "m1", "m1"], "modulo": ["m0", "m1"] * 2}[strategy]
    assert {p: now[p] for p in owned} == owned


def test_a_partition_that_goes_follows_its_heir_when_its_member_is_gone():
    layout, members = commit(prepare(Layout.first(6), 4), 1), members_of(3)
    owned = after({}, planned(layout, {}, members))
    left = [member for member in members if member != owned[PartitionId(1, 0)]]
    seen = observed(layout, owned, left)
    rules = GroupRules(membership=replace(GroupRules().membership, delay_ms=0))
    assessment = assess(seen, rules.membership)
    assert assessment.partitions[PartitionId(1, 0)] is OwnershipState.OVERDUE
    now = after(owned, plan(seen, assessment, rules, {}))
    heirs = layout.succession().heirs
    for partition in layout.retired:
        if owned[partition] not in left:
            assert now[partition] == now[heirs[partition]]
        else:
            assert now[partition] == owned[partition]


def test_the_one_member_of_an_exclusive_group_has_what_goes_too():
    layout, members = commit(prepare(Layout.first(3), 2), 1), members_of(2)
    owned = dict.fromkeys(layout.all_partitions(), members[0])
    rules = GroupRules(type=GroupType.EXCLUSIVE)
    assert planned(layout, owned, members, rules) == []
    owned[PartitionId(1, 0)] = members[1]
    (move,) = planned(layout, owned, members, rules)
    assert (move.partition, move.target) == (PartitionId(1, 0), members[0])


def test_new_partitions_go_to_the_brokers_of_those_they_begin_with():
    names = [BrokerId(f"b-{number}") for number in range(4)]
    layout = prepare(Layout.first(8), 12)
    served = sticky(layout.partitions(), names, {})
    held = {name: [p for p, each in served.items() if each == name] for name in names}
    claims = first_claims(
        layout.all_partitions(), living(*names), held, served, RULES, 1_000_000, layout.succession()
    )
    origins = layout.succession().origins
    assert {q: name for name, each in claims.items() for q in each} == {
        q: served[p] for q, p in origins.items()
    }


def test_what_goes_is_not_moved_between_brokers():
    names = [BrokerId("b-0"), BrokerId("b-1")]
    layout = commit(prepare(Layout.first(6), 2), 1)
    new = layout.current_partitions
    held = {names[0]: [*layout.retired, new[0]], names[1]: [new[1]]}
    succession = layout.succession()
    everything = layout.all_partitions()
    assert balance(everything, living(*names), held, RULES, 1_000_000, succession) == []
    assert balance(everything, living(*names), held, RULES, 1_000_000) != []
    held[names[0]].remove(PartitionId(1, 1))
    claims = first_claims(everything, living(*names), held, {}, RULES, 1_000_000, succession)
    assert claims == {names[1]: [PartitionId(1, 1)]}, "it goes where its heir is"
