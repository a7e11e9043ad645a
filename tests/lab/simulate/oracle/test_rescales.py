"""What the oracle says of changes of the partition count, by records that are made by hand."""

from collections import Counter

import pytest

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale import layout_steps
from partq.core.slot_table import SlotTable
from partq.lab.simulate.machine.memory_redis import MemoryRedis
from partq.lab.simulate.oracle.facts import GROUP
from partq.lab.simulate.oracle.records import Records
from partq.lab.simulate.processes.coordinators import KEYS, LETTER_KEYS
from partq.store.codec import encode_predecessors, encode_slots
from partq.wire.layout_record import encode_layout

OLD, NEW = PartitionId(1, 0), PartitionId(2, 1)
KEPT, MOVED = 100, 60_000
"""Slots that stay in the partition and leave it when one partition becomes two."""


class Queue:
    """A queue that goes from one partition to two, with its oracle."""

    def __init__(self):
        self.found = []
        self.memory = MemoryRedis(lambda: 0.0)
        self.layout = Layout.first(1)
        self.records = Records(
            self.memory, KEYS, LETTER_KEYS, self.layout.partitions(), {GROUP: None},
            lambda invariant, text: self.found.append(invariant), lambda: 0.0, lambda: 0.0,
        )  # fmt: skip
        self.rescales = self.records.rescales
        self.memory.keys[KEYS.layout().encode()] = {b"generations": b"1:1"}
        self.records._layout_changed()
        self.meta(OLD, next="0")

    def meta(self, partition, **fields):
        key = KEYS.meta(partition).encode()
        known = self.memory.keys.setdefault(key, {})
        known.update({name.replace("_", ":").encode(): v.encode() for name, v in fields.items()})

    def step(self, layout):
        self.layout = layout
        fields = {name.encode(): v.encode() for name, v in encode_layout(layout).items() if v}
        self.memory.keys[KEYS.layout().encode()] = {
            b"revision": b"%d" % layout.revision, **fields
        }  # fmt: skip
        self.records._layout_changed()

    def prepare(self):
        self.step(layout_steps.prepare(self.layout, 2))
        slots = {OLD: (range(32_768, 65_536),)}
        self.meta(NEW, layout="2", slots=encode_slots(slots[OLD]), preds=encode_predecessors(slots))

    def commit(self):
        self.prepare()
        self.step(layout_steps.commit(self.layout, 1))

    def seal(self):
        log = self.records.logs[str(OLD)]
        self.meta(OLD, seal_2=str(len(log.ids)), slots="0-32768", layout="2")
        self.rescales.sealed(log, [b"1", b"2"], [len(log.ids)])

    def open(self):
        self.meta(NEW, open="1")
        self.rescales.opened(self.records.logs[str(NEW)], [], 1)

    def store(self, partition, message, slot, *, numbered=True, run=1):
        log = self.records.logs[str(partition)]
        first = len(log.ids)
        log.ids.append(message)
        log.slots.append(slot)
        self.rescales.sources[message] = run
        if numbered:
            self.records.numbered.add(message)
        self.rescales.stored(log, first, [slot], {message} if numbered else set())

    def at(self, partition, cursor):
        facts = self.records.group_partitions[str(partition)]
        facts.is_there, facts.cursor = True, cursor
        return facts


@pytest.fixture
def queue():
    return Queue()


@pytest.fixture
def changed(queue):
    """A queue with a message in its first partition, which is sealed, and another one in the new
    partition, which is open."""
    queue.store(OLD, 1, MOVED)
    queue.commit()
    queue.seal()
    queue.open()
    queue.store(NEW, 2, MOVED)
    assert queue.found == []
    return queue


def test_the_facts_of_new_partitions_come_with_the_layout(changed):
    assert [facts.name for facts in changed.records.living()] == ["1.0", "2.1"]
    assert changed.records.effects == Counter({"rescaled": 1, "sealed": 1, "opened": 1})


def test_a_message_that_is_stored_in_two_partitions(changed):
    changed.store(NEW, 1, MOVED)
    assert "R1" in changed.found


def test_a_message_without_a_number_may_be_stored_twice(changed):
    changed.store(NEW, 1, MOVED, numbered=False)
    assert changed.found == []


@pytest.mark.parametrize("slot", [MOVED, KEPT])
def test_a_predecessor_stores_what_has_left_it(changed, slot):
    changed.store(OLD, 3, slot)
    assert changed.found == (["R2", "R2"] if slot == MOVED else [])


def test_a_partition_that_opens_before_its_predecessors_are_sealed(queue):
    queue.commit()
    queue.open()
    assert queue.found == ["R2"]


def test_messages_of_one_producer_that_are_stored_in_another_order(changed):
    changed.store(NEW, 4, MOVED)
    changed.store(NEW, 3, MOVED, run=2)
    assert changed.found == []
    changed.store(NEW, 0, MOVED)
    assert changed.found == ["R3"]


def test_a_message_that_is_sent_before_the_older_ones_are_acknowledged(changed):
    changed.at(OLD, 0)
    changed.rescales.sent(changed.at(NEW, 0), [0])
    assert changed.found == ["R4"]


def test_a_message_that_is_sent_when_the_older_ones_are_acknowledged(changed):
    changed.at(OLD, 1)
    changed.rescales.sent(changed.at(NEW, 0), [0])
    assert changed.found == []


def test_a_predecessor_that_settles_before_it_is_passed_and_trimmed(changed):
    changed.at(OLD, 0)
    changed.step(layout_steps.settle(changed.layout, OLD))
    assert changed.found == ["R5", "R5"]


def test_a_partition_that_is_removed_before_it_is_done_with():
    queue = Queue()
    queue.step(layout_steps.commit(layout_steps.prepare(queue.layout, 2), 1))
    queue.step(layout_steps.commit(layout_steps.prepare(queue.layout, 1), 2))
    gone = PartitionId(2, 1)
    queue.store(gone, 1, MOVED)
    queue.at(gone, 0)
    queue.found.clear()
    while queue.layout.lineage:
        oldest = min(p for givers in queue.layout.lineage.values() for p in givers)
        queue.step(layout_steps.settle(queue.layout, oldest))
    assert set(queue.found) <= {"R5"}
    queue.found.clear()
    queue.step(layout_steps.remove(queue.layout, gone))
    assert queue.found == ["R5"]
    assert queue.records.logs[str(gone)].is_gone


def test_more_slots_move_than_have_to(queue):
    shifted = {
        PartitionId(2, 1): (range(32_768),), PartitionId(2, 0): (range(32_768, 65_536),)
    }  # fmt: skip
    queue.rescales._judge_least_movement(SlotTable.first(2), SlotTable(shifted))
    assert queue.found == ["R7"]


def test_a_seal_before_the_commit(queue):
    queue.prepare()
    queue.seal()
    assert queue.found == ["R8"]


def test_a_change_that_is_aborted_after_a_seal(queue):
    queue.prepare()
    prepared = queue.layout
    queue.step(layout_steps.commit(prepared, 1))
    queue.seal()
    queue.step(prepared)  # as a store has it that was set back
    queue.step(layout_steps.abort(prepared))
    assert queue.found == ["R8"]


# ---- after the store has come back with older keys ----------------------------------------------


@pytest.fixture
def forgetful(changed):
    """The same queue, whose store forgets what is called: the rest stays as it is."""

    def forget(*, messages=0, seal=False, opening=False):
        old, new = (changed.memory.keys[KEYS.meta(each).encode()] for each in (OLD, NEW))
        old[b"next"], new[b"next"] = b"1", b"%d" % (1 - messages)
        if seal:
            del old[b"seal:2"], old[b"slots"]
        if opening:
            del new[b"open"]
        changed.records.roll_back()
        return changed

    return forget


def test_what_the_store_still_has_is_not_stored_in_another_partition(forgetful):
    changed = forgetful()
    changed.store(NEW, 1, MOVED, run=2)
    assert changed.found == ["R1"]


def test_what_the_store_has_forgotten_may_be_stored_in_another_partition(forgetful):
    changed = forgetful(messages=1, seal=True)
    changed.store(OLD, 2, MOVED)
    assert changed.found == []


def test_a_predecessor_stores_what_its_successor_still_has(forgetful):
    changed = forgetful(seal=True)
    changed.store(OLD, 3, MOVED)
    assert changed.found == ["R2"]


def test_a_partition_that_takes_messages_by_an_opening_that_is_forgotten(forgetful):
    changed = forgetful(opening=True)
    changed.store(NEW, 3, MOVED)
    assert changed.found == ["R2"]


def test_a_seal_by_a_commit_that_is_forgotten(queue):
    queue.commit()
    queue.memory.keys[KEYS.layout().encode()] = {b"generations": b"1:1"}
    queue.records.roll_back()
    queue.seal()
    assert queue.found == ["R8"]


@pytest.mark.parametrize("cursor", [0, 1])
def test_a_message_that_is_sent_by_acks_that_are_forgotten(forgetful, cursor):
    changed = forgetful()
    changed.at(OLD, cursor)
    changed.rescales.sent(changed.at(NEW, 0), [0])
    assert changed.found == ([] if cursor else ["R4"])


def test_messages_that_are_left_of_a_run_stay_in_their_order(forgetful):
    changed = forgetful()
    changed.store(NEW, 0, MOVED)
    assert changed.found == ["R3"]


def test_a_restored_layout_may_move_more_slots_than_one_change_has_to(forgetful):
    changed = forgetful()
    twice = layout_steps.commit(layout_steps.prepare(changed.layout, 1), 2)
    changed.step(layout_steps.commit(layout_steps.prepare(twice, 5), 3))
    assert (changed.found, changed.records.effects["layout restored"]) == ([], 1)


def test_a_partition_that_was_removed_before_keeps_what_it_had(changed):
    """So it is known what must not be stored once more."""
    changed.at(OLD, 1)
    changed.step(layout_steps.commit(layout_steps.prepare(changed.layout, 1), 2))
    while changed.layout.lineage:
        oldest = min(p for givers in changed.layout.lineage.values() for p in givers)
        changed.step(layout_steps.settle(changed.layout, oldest))
    changed.step(layout_steps.remove(changed.layout, OLD))
    del changed.memory.keys[KEYS.meta(OLD).encode()]
    changed.found.clear()
    changed.records.roll_back()
    changed.store(PartitionId(3, 0), 1, MOVED)
    assert changed.found == ["R1"]
