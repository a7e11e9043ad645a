"""A change of the partition count moves the fewest slots, and only to new partitions."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partq.core.layout import Layout
from partq.core.model import SLOT_COUNT, PartitionId
from partq.core.slot_table import SlotTable, size_of
from partq.errors import SettingsError

COUNTS = st.one_of(st.integers(1, 70), st.integers(1, 4096))


def of(partition_count):
    """Return the table of a new queue."""
    return SlotTable.first(partition_count)


def partitions_of(slots):
    """Return the generation and the index of each slot's partition, as one number; 0: it has none.

    A slot that stands in two ranges fails the test.
    """
    found = np.zeros(SLOT_COUNT, dtype=np.int64)
    for partition, ranges in slots.items():
        for each in ranges:
            place = slice(each.start, each.stop)
            assert not found[place].any()
            found[place] = number_of(partition)
    return found


def number_of(partition):
    return partition.generation << 20 | partition.index


def fewest(before, partition_count):
    """Return how many slots have to move, from the sizes alone.

    An index keeps at most what an even share allows. Only so many indexes may have one slot more,
    and it spares a move where there is one more to keep.
    """
    share, extra = divmod(SLOT_COUNT, partition_count)
    sizes = [size_of(ranges) for _, ranges in sorted(before.slots.items(), key=lambda p: p[0][1])]
    kept = sizes[:partition_count]
    spared = min(extra, sum(size > share for size in kept))
    return sum(max(0, size - share) for size in kept) - spared + sum(sizes[partition_count:])


def check(before, change, partition_count, generation):
    """Check what has to hold for every change; the table itself refuses gaps and uneven sizes."""
    after = change.table
    was, became = partitions_of(before.slots), partitions_of(after.slots)
    assert after.partition_count == partition_count
    has_other_index = (was & 0xFFFFF) != (became & 0xFFFFF)
    assert change.moved_count == has_other_index.sum() == fewest(before, partition_count)
    assert set(became[was != became] >> 20) <= {generation}, "only new partitions get slots"
    assert set(change.lineage) == set(after.slots) - set(before.slots)

    came_from = np.zeros(SLOT_COUNT, dtype=np.int64)
    for successor, givers in change.lineage.items():
        assert all(ranges for ranges in givers.values())
        given = partitions_of(givers)
        came_from[given != 0] = given[given != 0]
        assert ((given != 0) == (became == number_of(successor))).all()
    assert (came_from == np.where(was != became, was, 0)).all()

    losing = {partition for partition in before.slots if partition not in after.slots}
    losing |= {p for p in after.slots if after.slots[p] != before.slots.get(p, after.slots[p])}
    assert change.sealed == {p: after.slots.get(p, ()) for p in losing}


@settings(max_examples=25)
@given(COUNTS, COUNTS)
def test_a_change_moves_the_fewest_slots_to_new_partitions(before, after):
    check(of(before), of(before).resized(after, 2), after, 2)


@pytest.mark.parametrize("before", range(1, 21))
def test_every_change_between_small_counts(before):
    for after in range(1, 21):
        change = of(before).resized(after, 2)
        check(of(before), change, after, 2)
        assert abs(change.moved_count - SLOT_COUNT * abs(after - before) / max(after, before)) < 20


@settings(max_examples=10)
@given(st.lists(COUNTS, min_size=3, max_size=5))
def test_changes_one_after_the_other(counts):
    table = of(counts[0])
    for generation, count in enumerate(counts[1:], 2):
        change = table.resized(count, generation)
        check(table, change, count, generation)
        table = change.table


@pytest.mark.parametrize(
    ("before", "after", "successors", "most_predecessors"),
    [(16, 24, 8, 2), (24, 10, 10, 4), (16, 32, 16, 1), (16, 17, 1, 16), (24, 23, 23, 2)],
)
def test_how_many_partitions_take_part(before, after, successors, most_predecessors):
    lineage = of(before).resized(after, 2).lineage
    assert len(lineage) == successors
    assert max(map(len, lineage.values())) == most_predecessors


def test_a_growing_queue_keeps_its_partitions():
    change = of(2).resized(3, 5)
    assert change.table.slots == {
        PartitionId(1, 0): (range(21_846),),
        PartitionId(1, 1): (range(32_768, 54_613),),
        PartitionId(5, 2): (range(21_846, 32_768), range(54_613, SLOT_COUNT)),
    }
    assert change.lineage == {
        PartitionId(5, 2): {
            PartitionId(1, 0): (range(21_846, 32_768),),
            PartitionId(1, 1): (range(54_613, SLOT_COUNT),),
        }
    }
    assert change.sealed == {
        PartitionId(1, 0): (range(21_846),),
        PartitionId(1, 1): (range(32_768, 54_613),),
    }


def test_a_shrinking_queue_continues_its_partitions_under_a_new_generation():
    """A partition that gets slots is a new one, with its earlier self among its predecessors."""
    change = of(3).resized(2, 2)
    assert set(change.table.slots) == {PartitionId(2, 0), PartitionId(2, 1)}
    assert set(change.lineage[PartitionId(2, 0)]) == {PartitionId(1, 0), PartitionId(1, 2)}
    assert change.sealed == dict.fromkeys(of(3).slots, ())
    assert change.moved_count == 21_845


def test_a_survivor_that_gets_nothing_stays_as_it_is():
    before = of(40_000)
    change = before.resized(39_999, 2)
    unchanged = set(change.table.slots) & set(before.slots)
    assert len(unchanged) == 39_998
    assert change.moved_count == 1


def test_the_same_count_moves_nothing():
    change = of(7).resized(7, 2)
    assert (change.table, change.lineage, change.moved_count) == (of(7), {}, 0)


def test_ranges_and_predecessors_stay_few():
    table = of(16)
    most_ranges = most_predecessors = 0
    for generation, count in enumerate((24, 10, 12, 40, 7, 16, 64, 100, 16), 2):
        change = table.resized(count, generation)
        table = change.table
        most_ranges = max(most_ranges, sum(map(len, table.slots.values())))
        most_predecessors = max(most_predecessors, *map(len, change.lineage.values()))
    assert most_ranges <= 172
    assert most_predecessors <= 8


@settings(max_examples=30)
@given(COUNTS, st.integers(0, SLOT_COUNT - 1))
def test_a_table_that_was_never_changed_is_the_first_layout(count, slot):
    assert of(count).partition_of(slot) == Layout.first(count).partition_of(slot)


@settings(max_examples=30)
@given(COUNTS, COUNTS, st.integers(0, SLOT_COUNT - 1))
def test_a_slot_is_found_in_the_ranges_of_its_partition(before, after, slot):
    table = of(before).resized(after, 2).table
    assert any(slot in each for each in table.slots[table.partition_of(slot)])


@pytest.mark.parametrize(
    ("slots", "problem"),
    [
        ({}, "indexes"),
        ({PartitionId(1, 1): (range(SLOT_COUNT),)}, "indexes"),
        ({PartitionId(1, 0): (range(1), range(2, SLOT_COUNT))}, "behind slot 1"),
        ({PartitionId(1, 0): (range(SLOT_COUNT - 1),)}, "up to 65535"),
        ({PartitionId(1, 0): (range(2), range(1, SLOT_COUNT))}, "behind slot 2"),
        (
            {PartitionId(1, 0): (range(9),), PartitionId(1, 1): (range(9, SLOT_COUNT),)},
            "9 to 65527 slots",
        ),
    ],
)
def test_a_table_that_is_not_whole_is_refused(slots, problem):
    with pytest.raises(SettingsError, match=problem):
        SlotTable(slots)


@pytest.mark.parametrize("count", [0, -1, 65_537])
def test_a_count_out_of_range_is_refused(count):
    with pytest.raises(SettingsError, match="expected 1 to 65536"):
        of(count)
    with pytest.raises(SettingsError, match="expected 1 to 65536"):
        of(4).resized(count, 2)


@pytest.mark.parametrize("generation", [0, 1])
def test_a_generation_is_never_used_twice(generation):
    with pytest.raises(SettingsError, match="expected one above 1"):
        of(4).resized(5, generation)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((1,), "c4f6bec7081e4e1c"),
        ((16,), "8b5ea8081c190cf3"),
        ((16, 24), "051a4d04b911c2a5"),
        ((24, 10), "644449df28230cf1"),
        ((16, 24, 10, 12, 40, 7, 16, 64, 100, 16), "0dd5ea51b31914bf"),
        ((3, 2, 3, 1, 4096, 4095, 5), "31748e3bb0001144"),
    ],
)
def test_the_tables_of_earlier_versions_stay_as_they_are(counts, expected):
    """Never change these: fixed numbers of producers are told apart by such tables."""
    table = of(counts[0])
    for generation, count in enumerate(counts[1:], 2):
        table = table.resized(count, generation).table
    text = ";".join(
        f"{partition}:" + ",".join(f"{each.start}-{each.stop}" for each in ranges)
        for partition, ranges in sorted(table.slots.items())
    )
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == expected
