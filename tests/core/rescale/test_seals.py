"""Seals that committed changes ask for, and those that a new partition opens by."""

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.layout_steps import commit, prepare, settle
from partq.core.rescale.seals import due_seals, seals_to_open

NOW = 1_700_000_000_000
OLD = PartitionId(1, 0)


def test_a_partition_opens_when_all_predecessors_are_sealed():
    assert seals_to_open([], {}) == {}
    other = PartitionId(1, 1)
    assert seals_to_open([OLD, other], {OLD: 10, other: 0}) == {OLD: 10, other: 0}
    assert seals_to_open([OLD, other], {OLD: 10, other: None}) is None
    assert seals_to_open([OLD, other], {OLD: 10}) is None


def test_seals_that_two_changes_ask_for():
    """Each with the slots that stayed at that time: a partition may have missed the first one."""
    first = commit(prepare(Layout.first(4), 5), NOW)
    second = commit(prepare(first, 6), NOW)
    (only,) = due_seals(first)[OLD]
    assert only == (2, first.slots(OLD))
    seals = due_seals(second)
    assert seals[OLD] == [only, (3, second.slots(OLD))]
    assert seals[PartitionId(2, 4)] == [(3, second.slots(PartitionId(2, 4)))]
    third = commit(prepare(second, 2), NOW)
    assert due_seals(third)[OLD] == [*seals[OLD], (4, ())]
    assert due_seals(Layout.first(4)) == {}
    assert due_seals(settle(second, OLD)).keys() == seals.keys() - {OLD}


def test_a_change_that_is_only_prepared_asks_for_no_seal():
    assert due_seals(prepare(Layout.first(4), 5)) == {}
