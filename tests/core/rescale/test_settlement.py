"""When a predecessor is settled, and when one without slots is removed."""

import pytest

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.gates import GroupProgress, PredecessorView
from partq.core.rescale.layout_steps import commit, prepare, settle
from partq.core.rescale.seals import has_given
from partq.core.rescale.settlement import is_passed_by_all, ready_to_remove, ready_to_settle

NOW = 1_700_000_000_000
FIRST, SECOND = PartitionId(1, 0), PartitionId(1, 1)


def view(sealed_at=10, trimmed=10, **groups):
    return PredecessorView(sealed_at, trimmed, groups)


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


def test_a_predecessor_settles_by_the_last_change_that_took_its_slots():
    layout = commit(prepare(commit(prepare(Layout.first(2), 3), NOW), 4), NOW)
    assert ready_to_settle(layout) == {FIRST: 3, SECOND: 3}


def test_a_partition_without_slots_has_given_them_and_waits_for_its_successors():
    layout = commit(prepare(Layout.first(3), 2), NOW)
    retired = PartitionId(1, 2)
    assert ready_to_remove(layout, NOW + 1) == []
    settled = settle(layout, *ready_to_settle(layout))
    assert has_given(settled, retired)
    assert not has_given(settled, PartitionId(2, 0))
    assert ready_to_remove(settled, NOW - 1) == []
    assert sorted(ready_to_remove(settled, NOW)) == sorted(layout.retired)
