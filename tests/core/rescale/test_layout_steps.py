"""The layout record through changes: numbers grow, nothing is dropped that somebody waits for."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partq.core.layout import MAX_COUNTS, Layout
from partq.core.model import PartitionId
from partq.core.rescale.layout_steps import (
    MAX_CHANGES,
    MAX_UNSETTLED,
    abort,
    commit,
    counts_after,
    prepare,
    remove,
    settle,
    unsettled,
)
from partq.core.rescale.settlement import ready_to_settle
from partq.errors import ConflictError
from partq.wire.layout_record import encode_layout

NOW = 1_700_000_000_000
OLD = PartitionId(1, 0)


def layout_of(partition_count):
    return Layout.first(partition_count)


def oldest(layout):
    """Return a predecessor that can settle: its own ones have."""
    givers = {giver for each in layout.lineage.values() for giver in each}
    return min(givers - set(layout.lineage))


def test_people_are_told_of_the_latest_changes():
    layout = layout_of(16)
    for number, count in enumerate((24, 16, 17, 40, 16, 24), start=1):
        layout = commit(
            prepare(replace(layout, lineage={}), count, NOW + number), NOW + 10 * number
        )
    assert len(layout.changes) == MAX_CHANGES
    last = layout.changes[-1]
    assert (last.generation, last.from_count, last.to_count) == (7, 16, 24)
    assert (last.started_at_ms, last.committed_at_ms) == (NOW + 6, NOW + 60)
    assert (last.predecessors, last.successors) == (16, 8)
    assert last.moved_slots == 8 * (65_536 // 24)


# ---- one change ---------------------------------------------------------------------------------


def test_a_prepared_change_is_not_in_force():
    before = layout_of(2)
    layout = prepare(before, 3)
    assert (layout.table, layout.generation, layout.revision) == (before.table, 1, 1)
    assert layout.all_partitions() == (*before.partitions(), PartitionId(2, 2))
    assert layout.partitions() == before.partitions()
    assert layout.lineage == {}


def test_an_abort_leaves_the_number_used_and_nothing_else():
    layout = abort(prepare(layout_of(2), 3))
    empty = Layout(table=layout.table, last_generation=2, revision=2)
    assert replace(layout, changes=()) == empty
    assert [(each.generation, each.is_aborted) for each in layout.changes] == [(2, True)]
    assert commit(prepare(layout, 3), NOW).generation == 3


def test_a_commit_brings_the_table_and_the_lineage():
    layout = commit(prepare(layout_of(2), 3), NOW)
    assert (layout.table.partition_count, layout.generation, layout.next) == (3, 2, None)
    assert set(layout.lineage) == {PartitionId(2, 2)}
    assert layout.retired == {}, "the survivors of a growth keep slots"


def test_what_has_no_slots_any_more_is_retired():
    layout = commit(prepare(layout_of(3), 2), NOW)
    assert layout.retired == dict.fromkeys([PartitionId(1, i) for i in range(3)], NOW)
    assert len(layout.partitions()) == 5


@pytest.mark.req("SOL-U11")
def test_a_partition_settles_then_is_removed():
    layout = commit(prepare(layout_of(2), 1), NOW)
    with pytest.raises(ConflictError, match="not settled"):
        remove(layout, OLD)
    layout = settle(layout, OLD)
    assert layout.lineage == {PartitionId(2, 0): {PartitionId(1, 1): (range(32_768, 65_536),)}}
    layout = remove(settle(layout, PartitionId(1, 1)), OLD)
    assert (layout.lineage, layout.retired) == ({}, {PartitionId(1, 1): NOW})


def test_predecessors_settle_from_the_oldest_on():
    layout = commit(prepare(commit(prepare(layout_of(2), 1), NOW), 2), NOW)
    with pytest.raises(ConflictError, match="predecessors are not settled"):
        settle(layout, PartitionId(2, 0))


def test_a_partition_with_slots_is_not_removed():
    with pytest.raises(ConflictError, match="it has slots"):
        remove(layout_of(2), OLD)


@pytest.mark.parametrize(
    "step", [lambda p: commit(p, NOW), lambda p: abort(p)], ids=["commit", "abort"]
)
def test_without_a_prepared_change_there_is_nothing_to_end(step):
    with pytest.raises(ConflictError, match="no change is being prepared"):
        step(commit(prepare(layout_of(2), 3), NOW))


def test_one_change_is_prepared_at_a_time():
    with pytest.raises(ConflictError, match="change 2 is being prepared"):
        prepare(prepare(layout_of(2), 3), 4)


def test_the_same_count_is_no_change():
    with pytest.raises(ConflictError, match="nothing changes"):
        prepare(layout_of(2), 2)


def test_changes_that_are_not_settled_are_bounded():
    layout = layout_of(1)
    for count in range(2, 2 + MAX_UNSETTLED):
        layout = commit(prepare(layout, count), NOW)
    with pytest.raises(ConflictError, match=r"\[2, 3, 4, 5\] are not settled"):
        prepare(layout, 9)
    while len(unsettled(layout)) == MAX_UNSETTLED:
        layout = settle(layout, oldest(layout))
    prepare(layout, 9)


# ---- any changes --------------------------------------------------------------------------------

STEPS = st.one_of(st.integers(1, 40), st.sampled_from(["commit", "abort", "settle", "remove"]))


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=25))
def test_any_steps(steps):
    layout, numbers = layout_of(4), []
    for step in steps:
        before = layout
        try:
            if isinstance(step, int):
                layout = prepare(layout, step)
                numbers.append(layout.last_generation)
            elif step == "commit":
                layout = commit(layout, NOW)
            elif step == "abort":
                layout = abort(layout)
            elif step == "settle" and layout.lineage:
                layout = settle(layout, oldest(layout))
            elif step == "remove" and layout.retired:
                layout = remove(layout, min(layout.retired))
        except ConflictError:
            assert layout == before
            continue
        if layout is not before:
            assert layout.revision == before.revision + 1
        for slot in (0, 9_999, 40_000, 65_535):
            was, now = before.table.partition_of(slot), layout.table.partition_of(slot)
            assert was == now or was.generation < now.generation
        waited_for = {giver for givers in layout.lineage.values() for giver in givers}
        assert waited_for | set(layout.lineage) <= set(layout.partitions())
        assert not set(layout.retired) & set(layout.table.slots)
    assert numbers == sorted(set(numbers)), "no number is used twice"


def test_a_change_that_was_committed_comes_to_its_end():
    layout = layout_of(16)
    for count in (24, 10, 16):
        layout = commit(prepare(layout, count), NOW)
    while layout.lineage:
        layout = settle(layout, oldest(layout))
    for partition in list(layout.retired):
        layout = remove(layout, partition)
    assert layout.partitions() == tuple(sorted(layout.table.slots))


def record_bytes(layout):
    """Return how large each field of the stored layout is."""
    return {field: len(text) for field, text in encode_layout(layout).items()}


def changed(layout, count):
    layout = commit(prepare(layout, count), NOW)
    while layout.lineage:
        layout = settle(layout, *ready_to_settle(layout))
    return remove(layout, *layout.retired)


def test_the_record_does_not_grow_with_changes():
    """Two hundred changes; only the counts are kept, ten bytes each."""
    chance, layout, seals = Random(7), Layout.first(16), Counter()
    table_bytes = []
    for number in range(200):
        count = chance.choice([n for n in range(1, 25) if n != layout.partition_count])
        seals.update(prepare(layout, count).next.sealed.keys())
        layout = changed(layout, count)
        table_bytes.append(record_bytes(layout)["table"])
        assert len(layout.changes) <= MAX_CHANGES
        assert len(layout.counts) == number + 2
    assert max(table_bytes[100:]) < 1.5 * max(table_bytes[:100])
    rest = {field: n for field, n in record_bytes(layout).items() if field != "table"}
    assert rest.pop("counts") < 200 * 10
    assert sum(rest.values()) < 500
    assert max(seals.values()) < 16, "a partition ends with a fall of the count, and its seals too"


def test_counts_of_before_are_bounded():
    """The first one stays: what is drawn by it never changes."""
    layout = Layout.first(2)
    for number in range(2, MAX_COUNTS + 5):
        layout = replace(layout, counts=counts_after(layout, number, 3))
    assert len(layout.counts) == MAX_COUNTS
    assert [*layout.counts][:2] == [1, 6]
    assert max(layout.counts) == MAX_COUNTS + 4
