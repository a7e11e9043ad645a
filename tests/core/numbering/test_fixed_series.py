"""Series of fixed numbers: where a change of the partition count begins another one."""

from dataclasses import replace

import pytest

from partq.core.layout import MAX_COUNTS, Layout
from partq.core.model import PartitionId
from partq.core.numbering.fixed_series import (
    FixedSeries,
    earlier_series,
    first_layout,
    last_series,
    series_of,
)
from partq.core.rescale.layout_steps import abort, commit, prepare
from partq.core.slot_table import SlotTable, size_of, tables_of
from partq.errors import ConflictError, InternalError

TWO = Layout.first(2)


def changed(layout, *counts):
    for count in counts:
        # As if all that came before were read.
        layout = commit(prepare(replace(layout, lineage={}), count), 1_700_000_000_000)
    return layout


def names(series):
    return [(str(each.partition), each.generation) for each in series]


def test_without_a_change_each_partition_has_one_series():
    assert names(series_of(TWO)) == [("1.0", 1), ("1.1", 1)]
    assert earlier_series(series_of(TWO)) == []


def test_a_partition_that_loses_slots_begins_another_one_and_the_others_go_on():
    series = series_of(changed(TWO, 4, 5))
    assert names(series) == [
        *[("1.0", 1), ("1.1", 1)],
        *[("1.0", 2), ("1.1", 2), ("2.2", 2), ("2.3", 2)],
        *[("1.0", 3), ("1.1", 3), ("2.2", 3), ("2.3", 3), ("3.4", 3)],
    ]
    odd = series_of(changed(TWO, 3, 2, 3))
    assert all(size_of(each.slots) for each in odd if each.generation == each.partition.generation)


def test_a_partition_without_slots_ends_with_a_series_that_stays_empty():
    layout = changed(TWO, 1)
    series = series_of(layout)
    assert names(series) == [("1.0", 1), ("1.1", 1), ("1.0", 2), ("1.1", 2), ("2.0", 2)]
    last = last_series(series)
    assert (last[PartitionId(1, 1)].slots, last[PartitionId(2, 0)].slots) == ((), (range(65_536),))
    assert names(earlier_series(series)) == [("1.0", 1), ("1.1", 1)]


def test_the_last_series_are_those_of_the_table_after_many_changes():
    layout = changed(TWO, 24, 10, 12, 40, 7, 16)
    last = last_series(series_of(layout))
    assert {p: each.slots for p, each in last.items() if each.slots} == layout.table.slots
    for each in series_of(layout):
        assert isinstance(each, FixedSeries)
        assert each.generation >= each.partition.generation
    assert list(tables_of(layout.counts)) == [1, 2, 3, 4, 5, 6, 7]
    assert first_layout(layout).table == TWO.table


def test_a_change_that_was_aborted_leaves_a_number_out():
    layout = changed(abort(prepare(TWO, 9)), 3)
    assert layout.counts == {1: 2, 3: 3}
    assert PartitionId(3, 2) in last_series(series_of(layout))


def test_counts_that_do_not_lead_to_the_table_are_found():
    with pytest.raises(InternalError, match="do not lead to the table"):
        series_of(replace(changed(TWO, 3), counts={1: 2, 2: 4}))


def test_fixed_numbers_are_refused_once_counts_may_be_forgotten():
    """The replay of the rest leads to another table, or to the same one by other series."""
    layout = TWO
    for number in range(1, MAX_COUNTS + 3):
        layout = changed(layout, 2 + number % 3)
        layout = replace(layout, lineage={}, retired={})
        if number == MAX_COUNTS - 2:
            last = last_series(series_of(layout))
            assert {p: each.slots for p, each in last.items() if each.slots} == layout.table.slots
        if number >= MAX_COUNTS - 1:
            with pytest.raises(ConflictError, match="changed 999 times or more"):
                series_of(layout)
    assert first_layout(layout).table == TWO.table


def test_counts_that_did_not_change_are_not_gone_through_again(monkeypatch):
    layout = changed(TWO, 5, 3)
    found = series_of(layout)
    monkeypatch.setattr(SlotTable, "resized", None)
    assert series_of(replace(layout, revision=9)) is found
