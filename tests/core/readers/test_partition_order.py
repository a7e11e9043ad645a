"""Reading partitions in the order of their lineage, over changes of their number."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.readers.partition_order import PartitionOrder, whole_lineage
from partq.core.rescale.layout_steps import commit, prepare, settle

A, B, NEW = PartitionId(1, 0), PartitionId(1, 1), PartitionId(2, 2)
SLOTS = range(0, 65_536, 4_096)


class Queue:
    """Logs of messages, each a slot and its number within it, and what is known of their seals."""

    def __init__(self, count):
        self.layout = Layout.first(count)
        self.logs = {each: [] for each in self.layout.partitions()}
        self.seals = {each: {} for each in self.logs}
        self.numbers = dict.fromkeys(SLOTS, 0)

    def publish(self, slots):
        for slot in slots:
            self.logs[self.layout.partition_of(slot)].append((slot, self.numbers[slot]))
            self.numbers[slot] += 1

    def resize(self, count):
        if count == self.layout.partition_count:
            return
        self.layout = commit(prepare(self.layout, count), 0)
        generation = self.layout.generation
        for partition, givers in self.layout.lineage.items():
            self.logs.setdefault(partition, [])
            self.seals.setdefault(partition, {})
            if partition.generation == generation:
                for giver in givers:
                    self.seals[giver][generation] = len(self.logs[giver])

    def order(self):
        return PartitionOrder.of(self.layout.lineage, self.seals)


@given(
    st.integers(1, 6),
    st.lists(
        st.tuples(st.integers(1, 8), st.lists(st.sampled_from(SLOTS), max_size=12)), max_size=4
    ),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_messages_of_a_slot_are_read_in_their_order_and_nothing_starves(count, steps, random):
    queue = Queue(count)
    for following, slots in steps:
        queue.publish(slots)
        queue.resize(following)
    queue.publish(SLOTS)
    reached, read = dict.fromkeys(queue.logs, 0), []
    while left := [each for each, log in queue.logs.items() if reached[each] < len(log)]:
        due = queue.order().due(left, reached)
        assert due == sorted(due)
        partition = random.choice(due)
        read.append(queue.logs[partition][reached[partition]])
        reached[partition] += 1
    for slot in SLOTS:
        ours = [number for each, number in read if each == slot]
        assert ours == list(range(queue.numbers[slot]))


def test_a_partition_that_is_sealed_empty_does_not_stand_for_its_own_predecessors():
    order = PartitionOrder({NEW: {A: 5}, PartitionId(3, 0): {NEW: 0}})
    assert order.due([PartitionId(3, 0)], {A: 4, NEW: 0}) == []
    assert order.due([PartitionId(3, 0)], {A: 5, NEW: 0}) == [PartitionId(3, 0)]


def test_nothing_is_read_before_the_seal_of_a_predecessor_is_known():
    layout = commit(prepare(Layout.first(2), 3), 0)
    order = PartitionOrder.of(layout.lineage, {A: {2: 4}, B: {}})
    assert not order.is_due(NEW, {A: 9, B: 9})
    assert order.is_due(NEW, {A: 9}), "a partition that is read no more was read to its end"
    assert PartitionOrder.of(layout.lineage, {A: {2: 4}, B: {2: 0}}).is_due(NEW, {A: 4, B: 0})


def test_a_lineage_is_whole_until_a_predecessor_is_settled():
    layout = commit(prepare(Layout.first(2), 3), 0)
    assert whole_lineage(layout) == layout.lineage

    twice = commit(prepare(layout, 6), 0)
    assert whole_lineage(twice) == twice.lineage, "also of one that has given slots on"

    settled = settle(twice, A)
    assert NEW not in whole_lineage(settled)
    gone = replace(layout, lineage={})
    assert whole_lineage(gone) == {}
