"""Messages without a key: which partitions get them, by either policy."""

import random
from collections import Counter
from itertools import count

import pytest

from partq.core.keyless_partitioner import KeylessPartitioner
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.layout_steps import commit, prepare

LAYOUT = Layout.first(4)
ALL = LAYOUT.partitions()
POLICY = pytest.mark.parametrize("policy", ["Random", "RoundRobin"])


def chooser(policy, *, unavailable=(), turns=None, layout=LAYOUT, seed=1):
    chance = random.Random(seed)
    return KeylessPartitioner(layout, policy, chance, unavailable=unavailable, turns=turns)


def chosen(partitioner, number=200):
    return [LAYOUT.partition_of(partitioner.slot()) for _ in range(number)]


@POLICY
def test_partitions_that_are_unavailable_get_none_until_they_are_back(policy):
    partitioner = chooser(policy, unavailable={ALL[2]})
    assert set(chosen(partitioner)) == {ALL[0], ALL[1], ALL[3]}
    partitioner.avoid({ALL[0], ALL[1]})
    assert set(chosen(partitioner)) == {ALL[2], ALL[3]}
    partitioner.avoid(())
    assert set(chosen(partitioner)) == set(ALL)


@POLICY
def test_when_all_are_unavailable_any_will_do(policy):
    assert set(chosen(chooser(policy, unavailable=set(ALL)))) == set(ALL)


@POLICY
def test_every_slot_of_a_partition_is_used(policy):
    layout = Layout.first(65_536 // 2)
    one = PartitionId(1, 7)
    others = set(layout.partitions()) - {one}
    partitioner = chooser(policy, unavailable=others, layout=layout)
    assert {partitioner.slot() for _ in range(200)} == set(*layout.slots(one))


def test_turns_are_fair_and_begin_in_different_orders():
    orders = set()
    for seed in range(20):
        order = chosen(chooser("RoundRobin", seed=seed), 8)
        assert order[:4] == order[4:]
        assert Counter(order) == dict.fromkeys(ALL, 2)
        orders.add(tuple(order[:4]))
    assert len(orders) > 1


def test_partitioners_that_share_turns_go_on_where_another_has_stopped():
    turns = count()
    order = [
        LAYOUT.partition_of(chooser("RoundRobin", turns=turns, seed=seed).slot())
        for seed in range(8)
    ]
    assert order == [*ALL, *ALL]


@POLICY
def test_after_a_change_of_the_count_all_slots_of_the_table_are_used(policy):
    layout = Layout.first(4)
    for number in (6, 3):
        layout = commit(prepare(layout, number), 1_700_000_000_000)
    partitioner = chooser(policy, layout=layout)
    used = Counter(layout.partition_of(partitioner.slot()) for _ in range(3000))
    assert set(used) == set(layout.current_partitions)
    one = layout.current_partitions[0]
    assert len(layout.slots(one)) > 1
    partitioner.avoid(set(layout.current_partitions) - {one})
    slots = {partitioner.slot() for _ in range(3000)}
    assert all(layout.partition_of(slot) == one for slot in slots)
    assert sum(any(slot in each for slot in slots) for each in layout.slots(one)) > 1
