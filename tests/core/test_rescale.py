"""The layout record through changes: numbers grow, nothing is dropped that somebody waits for."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale import (
    MAX_CHANGES,
    MAX_UNSETTLED,
    GroupProgress,
    PredecessorView,
    Preparation,
    abort,
    commit,
    due_seals,
    find_holds,
    has_given,
    has_passed,
    is_passed_by_all,
    new_reset_id,
    prepare,
    ready_to_remove,
    ready_to_settle,
    remove,
    seals_to_open,
    settle,
    unsettled,
    waits_before_commit,
)
from partq.errors import ConflictError

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


# ---- what records say ---------------------------------------------------------------------------


def view(sealed_at=10, trimmed=10, **groups):
    return PredecessorView(sealed_at, trimmed, groups)


@pytest.mark.parametrize(("predecessor", "passed"), [
    pytest.param(view(g=GroupProgress(10, True)), True, id="at the seal"),
    pytest.param(view(g=GroupProgress(12, True)), True, id="beyond it: the partition keeps slots"),
    pytest.param(view(g=GroupProgress(9, True)), False, id="a message is left"),
    pytest.param(view(None, g=GroupProgress(99, True)), False, id="not sealed: more may come"),
    pytest.param(view(0, g=GroupProgress(0, False)), False, id="sealed empty, gate closed"),
    pytest.param(view(), False, id="the group is not there yet"),
    pytest.param(view(g=GroupProgress(10, True, 3)), True, id="dead letters wait"),
])  # fmt: skip
def test_a_group_has_passed(predecessor, passed):
    assert has_passed(predecessor, "g") is passed


@pytest.mark.parametrize(("predecessor", "text"), [
    pytest.param(view(g=GroupProgress(9, True, member="m")),
                 "1 message before offset 10, at member m", id="messages are left"),
    pytest.param(view(g=GroupProgress(7, True)), "3 messages before offset 10, at no member",
                 id="nobody reads them"),
    pytest.param(view(), "10 messages before offset 10, at no member", id="no cursor yet"),
    pytest.param(view(0, g=GroupProgress(0, False)), "which waits for its own predecessors",
                 id="its gate is closed"),
    pytest.param(view(None, g=GroupProgress(9, True)), "whose broker has not sealed it yet",
                 id="not sealed"),
    pytest.param(view(g=GroupProgress(10, True, reset="r7")), "", id="passed, not reset"),
])  # fmt: skip
def test_what_holds_a_gate(predecessor, text):
    passed = PartitionId(1, 1)
    holds = find_holds({OLD: predecessor, passed: view(g=GroupProgress(10, True))}, "g")
    assert [each.predecessor for each in holds] == ([OLD] if text else [])
    assert "".join(each.text for each in holds).endswith(text)


def test_a_reset_holds_a_gate_until_it_has_reached_the_predecessors():
    reset = new_reset_id(NOW, "r7", 2)
    reached = view(g=GroupProgress(10, True, reset=reset))
    for before in ("", new_reset_id(NOW, "r8", 2)):
        (hold,) = find_holds({OLD: view(g=GroupProgress(10, True, reset=before))}, "g", reset)
        assert hold.text == "1.0, which the reset of the group has not reached yet"
    assert find_holds({OLD: reached}, "g", reset) == ()
    assert find_holds({OLD: reached}, "g", "another")
    assert find_holds({OLD: view(g=GroupProgress(0, True, reset=reset))}, "g", reset)


def test_what_waits_for_nobody_opens():
    assert seals_to_open([], {}) == {}
    assert find_holds({}, "g") == ()


def test_a_partition_opens_when_all_predecessors_are_sealed():
    other = PartitionId(1, 1)
    assert seals_to_open([OLD, other], {OLD: 10, other: 0}) == {OLD: 10, other: 0}
    assert seals_to_open([OLD, other], {OLD: 10, other: None}) is None
    assert seals_to_open([OLD, other], {OLD: 10}) is None


@pytest.mark.parametrize(("predecessor", "groups", "settled"), [
    pytest.param(view(g=GroupProgress(10, True)), ["g"], True, id="passed and trimmed"),
    pytest.param(view(g=GroupProgress(10, True)), ["g", "new"], False, id="a group lacks a cursor"),
    pytest.param(view(g=GroupProgress(10, True), x=GroupProgress(3, True)), ["g"], False,
                 id="a group that is being removed has a cursor"),
    pytest.param(view(10, 9, g=GroupProgress(10, True)), ["g"], False, id="a later group reads it"),
    pytest.param(view(g=GroupProgress(10, True, 1)), ["g"], False, id="a dead letter waits"),
    pytest.param(view(None, 10, g=GroupProgress(10, True)), ["g"], False, id="not sealed"),
    pytest.param(view(), [], True, id="nobody reads"),
])  # fmt: skip
def test_a_predecessor_is_passed_by_all(predecessor, groups, settled):
    assert is_passed_by_all(predecessor, groups) is settled


def test_seals_that_two_changes_ask_for():
    """Each with the slots that stayed at that time: a partition may have missed the first one."""
    first = commit(prepare(layout_of(4), 5), NOW)
    second = commit(prepare(first, 6), NOW)
    (only,) = due_seals(first)[OLD]
    assert only == (2, first.slots(OLD))
    seals = due_seals(second)
    assert seals[OLD] == [only, (3, second.slots(OLD))]
    assert seals[PartitionId(2, 4)] == [(3, second.slots(PartitionId(2, 4)))]
    third = commit(prepare(second, 2), NOW)
    assert due_seals(third)[OLD] == [*seals[OLD], (4, ())]
    assert due_seals(layout_of(4)) == {}
    assert due_seals(settle(second, OLD)).keys() == seals.keys() - {OLD}


# ---- what the coordinator waits for --------------------------------------------------------------

FIRST, SECOND, ADDED = PartitionId(1, 0), PartitionId(1, 1), PartitionId(2, 2)
ALL_GROUPS = {each: {"workers"} for each in (FIRST, SECOND, ADDED)}


@pytest.mark.parametrize(
    ("lacks", "text"),
    [
        ({}, None),
        ({"outdated": ["b-0"]}, "earlier version: b-0"),
        ({"owned": [FIRST, SECOND]}, "without a broker: 2.2"),
        ({"named": {"workers", "late"}}, "every group: 2.2"),
        ({"groups": ALL_GROUPS | {FIRST: {"workers", "begun"}}}, "every group: 2.2"),
        ({"groups": {FIRST: {"workers"}, SECOND: {"workers"}}}, "every group: 2.2"),
        ({"unopened": [ADDED]}, None),
        ({"unopened": [SECOND]}, "not open: 1.1"),
    ],
    ids=["nothing", "version", "broker", "named", "begun", "record", "its own", "not open"],
)
def test_what_a_commit_waits_for(lacks, text):
    found = {"outdated": [], "owned": [*ALL_GROUPS], "groups": ALL_GROUPS, "named": {"workers"}}
    preparation = Preparation(**({**found, "unopened": []} | lacks))
    waits = waits_before_commit(prepare(layout_of(2), 3), preparation)
    assert len(waits) == (text is not None)
    assert text is None or text in waits[0]


def test_a_predecessor_settles_by_the_last_change_that_took_its_slots():
    layout = commit(prepare(commit(prepare(layout_of(2), 3), NOW), 4), NOW)
    assert ready_to_settle(layout) == {FIRST: 3, SECOND: 3}


def test_a_partition_without_slots_has_given_them_and_waits_for_its_successors():
    layout = commit(prepare(layout_of(3), 2), NOW)
    retired = PartitionId(1, 2)
    assert ready_to_remove(layout, NOW + 1) == []
    settled = settle(layout, *ready_to_settle(layout))
    assert has_given(settled, retired)
    assert not has_given(settled, PartitionId(2, 0))
    assert ready_to_remove(settled, NOW - 1) == []
    assert sorted(ready_to_remove(settled, NOW)) == sorted(layout.retired)
