"""The partitions of a queue as the entries of its archive tell them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.layout import Layout
from partq.core.rescale.layout_steps import commit, prepare
from partq.core.slot_table import SlotTable
from partq.pipeline.advise.advice import partition_rates, table_of
from partq.pipeline.advise.archived_table import archived_table
from partq.pipeline.advise.loads import KeySpread, Loads
from partq.pipeline.manifest import ArchiveState, Predecessor


def archive_of(counts):
    """Return the layout after some changes, and what an archive says that has seen all of them."""
    layout = Layout.first(counts[0])
    beginnings = {str(each): 0 for each in layout.partitions()}
    lineage = {}
    for count in counts[1:]:
        if count == layout.partition_count or len({p.generation for p in layout.lineage}) >= 4:
            continue
        layout = commit(prepare(layout, count), 0)
        for partition, givers in layout.lineage.items():
            beginnings[str(partition)] = 0
            lineage[str(partition)] = {
                str(each): Predecessor(tuple((r.start, r.stop) for r in slots), 0)
                for each, slots in givers.items()
            }
    return layout, ArchiveState(beginnings={"messages": beginnings}, lineage=lineage)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=5))
def test_the_table_follows_all_changes(counts):
    layout, state = archive_of(counts)
    assert archived_table(state) == layout.table


def test_nothing_is_said_where_something_is_not_known():
    _, state = archive_of([4, 6])
    del state.lineage["2.5"]
    assert archived_table(state) is None

    _, state = archive_of([4])
    del state.beginnings["messages"]["1.2"]
    assert archived_table(state) is None
    assert archived_table(ArchiveState()) is None


def test_rates_are_those_of_the_slots_that_a_partition_has():
    layout, _ = archive_of([4, 6])
    by_slot = np.arange(65_536)[None, :] % 97
    load = Loads(0, 1, by_slot, np.array([6]), KeySpread(1, 1, 1, ()))
    rates = partition_rates(load, layout.table)
    for partition, ranges in layout.table.slots.items():
        expected = sum(int(by_slot[0, each.start : each.stop].sum()) for each in ranges) + 1
        assert rates[0, partition.index] == pytest.approx(expected)


def test_another_number_is_tried_as_a_change_to_it():
    layout, _ = archive_of([4, 6])
    assert table_of(6, layout.table) is layout.table
    assert table_of(5, layout.table) == layout.table.resized(5, 3).table
    assert table_of(5, None) == SlotTable.first(5)
