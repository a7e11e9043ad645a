"""What a change of the partition count did, by rows that are made by hand."""

import pytest

from partq.core.hashing import slot_of
from partq.core.slot_table import SlotTable
from partq.lab.verdict.journal_rows import DeliveredRow, PublishedRow
from partq.lab.verdict.rescale_figures import (
    least_moved_slots,
    measure_rescale,
    publish_pauses_ms,
)
from partq.lab.verdict.timeline import RunChange

MS = 1_000_000
BEFORE = SlotTable.first(1)
AFTER = BEFORE.resized(2, 2).table
KEYS = [f"key-{number}" for number in range(40)]
MOVED = [key for key in KEYS if str(AFTER.partition_of(slot_of(key))) == "2.1"]
KEPT = [key for key in KEYS if key not in MOVED]


def published(at_ms, partition, offset, key, took_ms=1):
    return PublishedRow(at_ms * MS, partition, offset, key, 1, took_ms * 1000)


def delivered(at_ms, partition, offset, key):
    return DeliveredRow(at_ms * MS, "m", partition, offset, 1, 1, 0, key, 1)


def measure(rows, deliveries=(), *, until_ms=1000):
    change = RunChange(trigger="1 -> 2", at_ns=100 * MS, until_ns=until_ms * MS)
    return measure_rescale(change, BEFORE, AFTER, rows, deliveries)


def test_the_slots_and_keys_that_move():
    rows = [published(at, "1.0", at, key) for at, key in enumerate(KEYS)]
    found = measure(rows)
    assert (found.moved_slots, found.least_slots, found.new_partitions) == (32_768, 32_768, 1)
    assert (found.moved_keys, found.key_count) == (len(MOVED), len(KEYS))
    assert found.is_least
    assert (found.from_count, found.to_count) == (1, 2)


def test_the_pause_is_the_publish_of_a_key_that_waited_for_its_new_partition():
    rows = [
        published(90, "1.0", 0, MOVED[0], took_ms=70),
        published(120, "1.0", 2, KEPT[0], took_ms=80),
        published(145, "2.1", 0, MOVED[0], took_ms=45),
        published(146, "2.1", 1, MOVED[0], took_ms=60),
        published(150, "2.1", 2, MOVED[1], took_ms=20),
        published(400, "2.1", 3, MOVED[2], took_ms=90),
    ]
    assert measure(rows).publish_pause_ms == 45
    change = RunChange(trigger="", at_ns=100 * MS, until_ns=1000 * MS)
    waited = publish_pauses_ms(change, {"2.1"}, rows)
    assert waited == {MOVED[0]: 45, MOVED[1]: 20}, "the last one was sent when it was open"
    assert measure(rows, until_ms=140).publish_pause_ms == 0, "it belongs to the next change"


def test_a_message_of_a_new_partition_is_held_from_its_confirmation_to_its_processing():
    rows = [published(100, "1.0", 0, MOVED[0]), published(150, "2.1", 0, MOVED[0])]
    deliveries = [
        delivered(170, "1.0", 0, MOVED[0]),
        delivered(230, "2.1", 0, MOVED[0]),
        delivered(900, "2.1", 0, MOVED[0]),
    ]
    assert measure(rows, deliveries).hold_ms == 80, "a repeat is none"


@pytest.mark.parametrize("counts", [(16, 24), (24, 10), (10, 16), (5, 6), (6, 3), (17, 5)])
def test_no_table_moves_less(counts):
    before, after = counts
    table = SlotTable.first(before)
    assert table.resized(after, 2).moved_count == least_moved_slots(table, after)
