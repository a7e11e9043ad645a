"""The layout record through changes: numbers grow, nothing is dropped that somebody waits for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partq.core.model import PartitionId
from partq.core.rescale import (
    MAX_UNSETTLED,
    GroupProgress,
    PredecessorView,
    RescalePlan,
    has_passed,
    is_passed_by_all,
    may_open,
    may_open_gate,
)
from partq.core.slot_table import SlotTable
from partq.errors import ConflictError

NOW = 1_700_000_000_000
OLD = PartitionId(1, 0)


def plan_of(partition_count):
    return RescalePlan(table=SlotTable.first(partition_count))


def oldest(plan):
    """Return a predecessor that can settle: its own ones have."""
    givers = {giver for each in plan.lineage.values() for giver in each}
    return min(givers - set(plan.lineage))


# ---- one change ---------------------------------------------------------------------------------


def test_a_prepared_change_is_not_in_force():
    before = plan_of(2)
    plan = before.prepared(3)
    assert (plan.table, plan.generation, plan.revision) == (before.table, 1, 1)
    assert plan.partitions() == (*before.partitions(), PartitionId(2, 2))
    assert plan.lineage == {}


def test_an_abort_leaves_the_number_used_and_nothing_else():
    plan = plan_of(2).prepared(3).aborted()
    assert plan == RescalePlan(table=plan.table, last_generation=2, revision=2)
    assert plan.prepared(3).committed(NOW).generation == 3


def test_a_commit_brings_the_table_and_the_lineage():
    plan = plan_of(2).prepared(3).committed(NOW)
    assert (plan.table.partition_count, plan.generation, plan.next) == (3, 2, None)
    assert set(plan.lineage) == {PartitionId(2, 2)}
    assert plan.retired == {}, "the survivors of a growth keep slots"


def test_what_has_no_slots_any_more_is_retired():
    plan = plan_of(3).prepared(2).committed(NOW)
    assert plan.retired == dict.fromkeys([PartitionId(1, i) for i in range(3)], NOW)
    assert len(plan.partitions()) == 5


def test_a_partition_settles_then_is_removed():
    plan = plan_of(2).prepared(1).committed(NOW)
    with pytest.raises(ConflictError, match="not settled"):
        plan.removed(OLD)
    plan = plan.without_predecessor(OLD)
    assert plan.lineage == {PartitionId(2, 0): {PartitionId(1, 1): (range(32_768, 65_536),)}}
    plan = plan.without_predecessor(PartitionId(1, 1)).removed(OLD)
    assert (plan.lineage, plan.retired) == ({}, {PartitionId(1, 1): NOW})


def test_predecessors_settle_from_the_oldest_on():
    plan = plan_of(2).prepared(1).committed(NOW).prepared(2).committed(NOW)
    with pytest.raises(ConflictError, match="predecessors are not settled"):
        plan.without_predecessor(PartitionId(2, 0))


def test_a_partition_with_slots_is_not_removed():
    with pytest.raises(ConflictError, match="it has slots"):
        plan_of(2).removed(OLD)


@pytest.mark.parametrize(
    "step", [lambda p: p.committed(NOW), lambda p: p.aborted()], ids=["commit", "abort"]
)
def test_without_a_prepared_change_there_is_nothing_to_end(step):
    with pytest.raises(ConflictError, match="no change is being prepared"):
        step(plan_of(2).prepared(3).committed(NOW))


def test_one_change_is_prepared_at_a_time():
    with pytest.raises(ConflictError, match="change 2 is being prepared"):
        plan_of(2).prepared(3).prepared(4)


def test_the_same_count_is_no_change():
    with pytest.raises(ConflictError, match="nothing changes"):
        plan_of(2).prepared(2)


def test_changes_that_are_not_settled_are_bounded():
    plan = plan_of(1)
    for count in range(2, 2 + MAX_UNSETTLED):
        plan = plan.prepared(count).committed(NOW)
    with pytest.raises(ConflictError, match=r"\[2, 3, 4, 5\] are not settled"):
        plan.prepared(9)
    while len(plan.unsettled()) == MAX_UNSETTLED:
        plan = plan.without_predecessor(oldest(plan))
    plan.prepared(9)


# ---- any changes --------------------------------------------------------------------------------

STEPS = st.one_of(st.integers(1, 40), st.sampled_from(["commit", "abort", "settle", "remove"]))


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=25))
def test_any_steps(steps):
    plan, numbers = plan_of(4), []
    for step in steps:
        before = plan
        try:
            if isinstance(step, int):
                plan = plan.prepared(step)
                numbers.append(plan.last_generation)
            elif step == "commit":
                plan = plan.committed(NOW)
            elif step == "abort":
                plan = plan.aborted()
            elif step == "settle" and plan.lineage:
                plan = plan.without_predecessor(oldest(plan))
            elif step == "remove" and plan.retired:
                plan = plan.removed(min(plan.retired))
        except ConflictError:
            assert plan == before
            continue
        if plan is not before:
            assert plan.revision == before.revision + 1
        for slot in (0, 9_999, 40_000, 65_535):
            was, now = before.table.partition_of(slot), plan.table.partition_of(slot)
            assert was == now or was.generation < now.generation
        waited_for = {giver for givers in plan.lineage.values() for giver in givers}
        assert waited_for | set(plan.lineage) <= set(plan.partitions())
        assert not set(plan.retired) & set(plan.table.slots)
    assert numbers == sorted(set(numbers)), "no number is used twice"


def test_a_change_that_was_committed_comes_to_its_end():
    plan = plan_of(16)
    for count in (24, 10, 16):
        plan = plan.prepared(count).committed(NOW)
    while plan.lineage:
        plan = plan.without_predecessor(oldest(plan))
    for partition in list(plan.retired):
        plan = plan.removed(partition)
    assert plan.partitions() == tuple(sorted(plan.table.slots))


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
    assert may_open_gate([predecessor], "g") is passed
    assert not may_open_gate([predecessor, view(g=GroupProgress(9, True))], "g")


def test_what_waits_for_nobody_opens():
    assert may_open([])
    assert may_open_gate([], "g")


def test_a_partition_opens_when_all_predecessors_are_sealed():
    assert may_open([view(), view(0)])
    assert not may_open([view(), view(None)])


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
