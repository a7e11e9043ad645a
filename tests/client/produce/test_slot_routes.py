"""Where a producer sends slots while they move, partition by partition."""

import random

from partq.client.produce.slot_routes import SlotRoutes
from partq.core.model import SLOT_COUNT, PartitionId
from partq.core.slot_table import SlotTable

TWO = SlotTable.first(2)
THREE = TWO.resized(3, 2).table
FIVE = THREE.resized(5, 3).table
SLOTS = range(0, SLOT_COUNT, 97)


def places(routes):
    return [routes.partition_of(slot) for slot in SLOTS]


def test_before_a_change_the_routes_are_those_of_the_table():
    assert places(SlotRoutes.of(TWO)) == [TWO.partition_of(slot) for slot in SLOTS]


def test_slots_of_a_partition_follow_the_table_and_those_of_others_stay():
    first, second = TWO.slots
    half = SlotRoutes.of(TWO).switched({first}, THREE)
    for slot in SLOTS:
        table = THREE if TWO.partition_of(slot) == first else TWO
        assert half.partition_of(slot) == table.partition_of(slot)
    assert half.current_partitions == (first, second, PartitionId(2, 2))
    whole = half.switched({second}, THREE)
    assert (whole.ranges, places(whole)) == (THREE.slots, [THREE.partition_of(s) for s in SLOTS])


def test_whatever_the_order_and_the_changes_the_end_is_the_last_table():
    chance = random.Random(3)
    for _ in range(20):
        routes = SlotRoutes.of(TWO)
        for table in (THREE, FIVE):
            for _ in range(chance.randrange(4)):
                partition = chance.choice(routes.current_partitions)
                routes = routes.switched({partition}, table)
        while routes.ranges != FIVE.slots:
            leaving = [p for p in routes.ranges if routes.slots(p) != FIVE.slots.get(p, ())]
            routes = routes.switched({chance.choice(leaving)}, FIVE)
        assert places(routes) == [FIVE.partition_of(slot) for slot in SLOTS]


def test_a_partition_without_slots_is_not_among_them():
    one = FIVE.resized(1, 4).table
    routes = SlotRoutes.of(FIVE).switched(set(FIVE.slots), one)
    assert routes.current_partitions == (PartitionId(4, 0),)
    assert routes.slots(PartitionId(1, 0)) == ()
