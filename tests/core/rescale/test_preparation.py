"""What the commit of a change waits for."""

import pytest

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.layout_steps import commit, prepare, remove, settle
from partq.core.rescale.preparation import MAX_RETIRED, Preparation, waits_before_commit
from partq.core.rescale.settlement import ready_to_settle

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
    waits = waits_before_commit(prepare(Layout.first(2), 3), preparation)
    assert len(waits) == (text is not None)
    assert text is None or text in waits[0]


def waits(layout):
    """Return what a commit waits for where all but the number of partitions is there."""
    partitions = layout.all_partitions()
    return waits_before_commit(
        layout, Preparation(outdated=[], owned=partitions, groups={}, named=[], unopened=[])
    )


def settled(layout):
    while ready := ready_to_settle(layout):
        layout = settle(layout, *ready)
    return layout


def test_partitions_without_slots_are_bounded_however_fast_changes_come():
    """Each change takes all slots of what there is; nobody has to read anything first."""
    layout, now_ms, most = Layout.first(16), 0, 0
    waited = 0
    for number in range(200):
        prepared = prepare(layout, (15, 16)[number % 2])
        if waits(prepared):
            assert "at most 1024 may be" in waits(prepared)[0]
            waited += 1
            layout = remove(settled(layout), *layout.retired)  # ten minutes later
            prepared = prepare(layout, (15, 16)[number % 2])
            assert waits(prepared) == ()
        layout = settled(commit(prepared, now_ms))
        most = max(most, len(layout.retired))
    assert MAX_RETIRED - 16 <= most <= MAX_RETIRED
    assert waited == 1


def test_one_change_alone_may_leave_more():
    layout = prepare(Layout.first(MAX_RETIRED + 1), 1)
    assert waits(layout) == ()
    layout = settled(commit(layout, 0))
    assert waits(prepare(layout, 2)) == (), "it leaves no partition without slots"
    assert len(waits(prepare(settled(commit(prepare(layout, 2), 0)), 1))) == 1
