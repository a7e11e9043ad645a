"""Groups of the types Shared and Session: no partition has a member, and none waits for one."""

import pytest

from partq.core.group.membership import assess
from partq.core.group.partition_wait import WaitsFor, standbys_of
from partq.core.group.planner import GroupRules, GroupType, plan
from partq.core.model import PartitionId
from tests.core.group.test_partition_wait import waits
from tests.core.group.test_planner import A, B, group

P0 = PartitionId(1, 0)


@pytest.mark.parametrize("kind", [GroupType.SHARED, GroupType.SESSION])
def test_nothing_is_planned_and_nobody_stands_by(kind):
    rules = GroupRules(type=kind)
    seen = group([None, None], bound=[A, B])
    assert kind.is_open
    assert plan(seen, assess(seen, rules.membership), rules, {}) == []
    assert standbys_of(P0, observation=seen, rules=rules) == []
    assert waits(seen, rules).what is WaitsFor.NOTHING


@pytest.mark.parametrize("kind", [GroupType.SHARED, GroupType.SESSION])
def test_without_a_member_a_partition_waits_for_one(kind):
    seen = group([None, None], bound=[])
    assert waits(seen, GroupRules(type=kind)).what is not WaitsFor.NOTHING


def test_the_other_types_give_partitions_to_members():
    assert [kind for kind in GroupType if kind.is_open] == [GroupType.SHARED, GroupType.SESSION]
