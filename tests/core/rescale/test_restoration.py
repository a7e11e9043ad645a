"""A layout that a store has set back: it is made again from what the partitions have recorded."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.layout_steps import abort, commit, prepare, remove, settle
from partq.core.rescale.restoration import is_set_back, restored
from partq.core.rescale.seals import due_seals
from partq.core.rescale.settlement import ready_to_remove, ready_to_settle
from partq.errors import ConflictError

NOW = 1_700_000_000_000
LATER = NOW + 1000


@dataclass
class Recorded:
    """What the record of a partition says of changes."""

    generation: int
    predecessors: dict = field(default_factory=dict)
    is_open: bool = True
    seals: dict = field(default_factory=dict)


class Queue:
    """A layout, and the records of partitions as coordinator and owners write them."""

    def __init__(self, partition_count):
        self.layout = Layout.first(partition_count)
        self.records = {each: Recorded(1) for each in self.layout.partitions()}
        self.versions = [self.layout]

    def step(self, layout):
        self.layout = layout
        self.versions.append(layout)
        for each in layout.all_partitions():
            if each not in self.records:
                givers = dict(layout.predecessors(each))
                self.records[each] = Recorded(each.generation, givers, is_open=not givers)
        self.records = {each: self.records[each] for each in layout.all_partitions()}

    def prepare(self, count):
        self.step(prepare(self.layout, count))

    def commit(self):
        self.step(commit(self.layout, NOW))

    def open(self):
        """Seal and open as the owners of the partitions do."""
        for partition, seals in due_seals(self.layout).items():
            record = self.records[partition]
            awaited = {due.generation for due in seals}
            for due in seals:
                if due.generation > record.generation:
                    record.generation = due.generation
                    kept = {number: at for number, at in record.seals.items() if number in awaited}
                    record.seals = {**kept, due.generation: 7}
        for partition in self.layout.lineage:
            self.records[partition].is_open = True

    def change(self, count):
        self.prepare(count)
        self.commit()
        self.open()

    def settle(self):
        while ready := ready_to_settle(self.layout):
            self.step(settle(self.layout, *ready))
        self.step(remove(self.layout, *ready_to_remove(self.layout, NOW)))

    def restored(self, version):
        assert is_set_back(version, self.records)
        found = restored(version, self.records, LATER)
        assert not is_set_back(found.layout, self.records)
        assert found.layout.revision == version.revision + 1
        return found


def expect_same(found, layout):
    """Expect what producers, consumers and brokers go by; times are of people."""
    assert found.table == layout.table
    assert (found.generation, found.last_generation) == (layout.generation, layout.last_generation)
    assert (found.lineage, found.counts) == (layout.lineage, layout.counts)
    assert found.retired.keys() == layout.retired.keys()


@pytest.mark.parametrize("count", [5, 3, 9, 1])
def test_a_change_in_force_is_in_force_again(count):
    queue = Queue(4)
    first = queue.layout
    queue.change(count)
    for version in queue.versions[:2]:
        found = queue.restored(version)
        expect_same(found.layout, queue.layout)
        assert (found.layout.next, found.removed) == (None, [])
        last = found.layout.changes[-1]
        assert (last.generation, last.from_count, last.to_count) == (2, 4, count)
        assert (last.committed_at_ms, last.is_aborted) == (LATER, False)
    assert set(found.layout.retired.values()) <= {LATER}
    assert not is_set_back(first, {each: Recorded(1) for each in first.partitions()})
    assert not is_set_back(queue.layout, queue.records)


def test_one_seal_says_that_the_change_was_in_force():
    queue = Queue(4)
    queue.prepare(5)
    before = queue.layout
    queue.commit()
    record = queue.records[PartitionId(1, 0)]
    record.generation, record.seals = 2, {2: 0}
    expect_same(queue.restored(before).layout, queue.layout)


def test_a_change_that_may_have_been_in_force_is_prepared_again():
    queue = Queue(4)
    first = queue.layout
    queue.prepare(5)
    found = queue.restored(first)
    assert found.layout.next == queue.layout.next
    assert (found.layout.generation, found.layout.last_generation) == (1, 2)
    assert found.removed == []


def test_what_an_aborted_change_has_left_is_removed_and_its_number_is_used():
    """Its keys were being erased when the store lost that."""
    queue = Queue(4)
    first = queue.layout
    queue.prepare(6)
    left = PartitionId(2, 4)
    record = queue.records[left]
    queue.step(abort(queue.layout))
    queue.records[left] = record
    found = queue.restored(first)
    assert (found.layout.next, found.removed) == (None, [left])
    assert (found.layout.table, found.layout.last_generation) == (first.table, 2)
    queue.change(5)
    found = queue.restored(first)
    assert found.layout.table == queue.layout.table
    assert found.removed == []


def test_what_is_settled_and_removed_does_not_come_back():
    queue = Queue(4)
    first = queue.layout
    queue.change(3)
    queue.settle()
    found = queue.restored(first)
    expect_same(found.layout, queue.layout)
    assert (found.layout.lineage, found.layout.retired) == ({}, {})


@pytest.mark.parametrize("back", [1, 2])
def test_removed_partitions_that_a_layout_names_again_are_left_out(back):
    """Of the two steps, settlement and removal, the last one is lost, or both are."""
    queue = Queue(4)
    queue.change(3)
    queue.settle()
    found = queue.restored(queue.versions[-1 - back])
    expect_same(found.layout, queue.layout)
    assert found.removed == []


def test_a_predecessor_that_has_removed_its_seal_does_not_come_back():
    """Nobody could pass it: the end of its log at that time is not known any more."""
    queue = Queue(4)
    queue.change(5)
    queue.settle()
    queue.change(6)
    assert queue.records[PartitionId(1, 0)].seals.keys() == {3}
    unsettled = next(each for each in queue.versions if each.lineage)
    expect_same(queue.restored(unsettled).layout, queue.layout)


def test_a_predecessor_that_has_lost_its_seal_is_sealed_again():
    queue = Queue(4)
    first = queue.layout
    queue.change(5)
    queue.records[PartitionId(1, 0)] = Recorded(1)
    expect_same(queue.restored(first).layout, queue.layout)


def test_partitions_between_that_are_removed_are_not_needed():
    queue = Queue(4)
    first = queue.layout
    queue.change(5)
    queue.change(4)
    queue.settle()
    assert {each.generation for each in queue.records} == {3}
    found = queue.restored(first).layout
    assert (found.table, found.generation) == (queue.layout.table, 3)


def test_records_that_do_not_add_up_are_refused():
    queue = Queue(4)
    first = queue.layout
    queue.change(6)
    del queue.records[PartitionId(2, 4)]
    with pytest.raises(ConflictError, match="change 2 was in force and is lost"):
        restored(first, queue.records, LATER)


STEPS = st.one_of(st.integers(1, 12), st.sampled_from(["commit", "open", "abort", "settle"]))


@settings(max_examples=150)
@given(st.lists(STEPS, max_size=14), st.integers(0, 40))
def test_whatever_was_lost(steps, at):
    queue = Queue(4)
    for step in steps:
        try:
            if step == "commit":
                queue.commit()
            elif step == "abort":
                queue.step(abort(queue.layout))
            elif step == "settle":
                if all(self.is_open for self in queue.records.values()):
                    queue.settle()
            elif step == "open":
                queue.open()
            elif all(queue.records[each].is_open for each in queue.layout.lineage):
                queue.prepare(step)
        except ConflictError:
            continue
    layout, version = queue.layout, queue.versions[at % len(queue.versions)]
    if not is_set_back(version, queue.records):
        return
    found = queue.restored(version).layout
    if found.next is not None and layout.next is None:
        found = commit(found, NOW)  # nothing said that it was in force
    assert found.table == layout.table
    assert found.next is None or found.next == layout.next
    for successor, givers in layout.lineage.items():
        assert found.lineage[successor] == givers
    assert found.retired.keys() >= layout.retired.keys()
    assert replace(found, counts={}).generation == layout.generation
