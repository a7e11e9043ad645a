"""What another number of members would move, from a snapshot."""

from dataclasses import replace

import msgspec
import pytest

from partq.broker.operations.group_snapshot import succession_detail
from partq.coordinator.group_snapshot import GroupSnapshot, read_snapshot
from partq.coordinator.plan_forecast import plan_forecast, read_complete_snapshot, scaled
from partq.coordinator.reports.rescale_forecast import forecast_members
from partq.core.group.disruption_budget import DisruptionBudget
from partq.core.group.forecast import MemberChange
from partq.core.group.planner import GroupRules
from partq.core.layout import Layout
from partq.core.model import MemberId, PartitionId
from partq.core.parts.part_id import PartId
from partq.core.rescale.layout_steps import commit, prepare
from partq.errors import UnavailableError
from partq.wire.calls.state import BrokerAnswer, Picture
from tests.core.group.test_planner import A, B, group
from tests.parted_group import parted_picture


def snapshot(owned, *, bound, **rules):
    return GroupSnapshot(
        now_ms=1,
        rules=GroupRules(**rules),
        observation=group(owned, bound=bound),
        handoffs={},
        past={},
        waiting={},
        heeds_pods=False,
        silent={},
    )


def test_more_members_get_an_equal_share_and_fewer_leave_theirs():
    seen = snapshot([A, B] * 3, bound=[A, B], budget=DisruptionBudget(max_paused=1))
    found = plan_forecast("workers", seen, [scaled(3, seen)])
    assert (found.moved, found.assigned, found.paused_at_once) == (2, 0, 1)
    assert {move.target for move in found.moves} == {"new-1"}
    assert all(move.may_wait for move in found.moves)
    counts = {name: (each.before, each.after) for name, each in found.members.items()}
    assert counts == {"a": (3, 2), "b": (3, 2), "new-1": (0, 2)}
    found = plan_forecast("workers", seen, [scaled(1, seen)])
    assert (found.moved, found.members["b"].after) == (3, 6)
    assert plan_forecast("workers", seen, [scaled(2, seen)]).moves == []


def test_partitions_without_slots_are_in_no_count_of_a_member():
    seen = snapshot([A, B] * 2, bound=[A, B])
    seen = replace(seen, retired=frozenset({PartitionId(1, 1), PartitionId(1, 2)}))
    found = plan_forecast("workers", seen, [scaled(1, seen)])
    counts = {name: (each.before, each.after) for name, each in found.members.items()}
    assert counts == {"a": (1, 0), "b": (1, 2)}
    assert {move.partition: move.is_retired for move in found.moves} == {
        "1.0": msgspec.UNSET,
        "1.2": True,
    }


def test_a_new_member_gets_no_name_that_another_one_has():
    named = MemberId("new-1")
    seen = snapshot([A, named], bound=[A, named])
    assert scaled(4, seen) == MemberChange(joins=[MemberId("new-2"), MemberId("new-3")])


def test_partitions_without_a_member_get_their_first_one():
    seen = snapshot([None, None], bound=[A])
    found = plan_forecast("workers", seen, [scaled(2, seen)])
    assert (found.moved, found.assigned) == (0, 2)
    assert sorted(move.partition for move in found.moves) == [
        str(PartitionId(1, 0)), str(PartitionId(1, 1)),
    ]  # fmt: skip
    assert found.estimate_ms is None


def test_there_is_no_plan_while_a_broker_is_silent():
    body = Picture(
        now_ms=1, queue_spec={}, group_spec={}, partitions=[], members={}, heirs={}, assignment={},
        handoffs={}, past={}, waiting={}, brokers={"b-1": BrokerAnswer(error="timed out")},
    )  # fmt: skip
    with pytest.raises(UnavailableError, match="b-1: timed out; try again when all do"):
        read_complete_snapshot("workers", body)


PREPARED = prepare(Layout.first(4), 3)


@pytest.mark.parametrize("layout", [Layout.first(4), PREPARED, commit(PREPARED, 1)])
def test_a_plan_knows_which_partitions_follow_which(layout):
    body = Picture(
        now_ms=1, queue_spec={}, group_spec={}, partitions=[], members={}, heirs={}, assignment={},
        handoffs={}, past={}, waiting={}, brokers={}, succession=succession_detail(layout),
    )  # fmt: skip
    sent = msgspec.json.decode(msgspec.json.encode(body), type=Picture)
    found = read_snapshot("workers", sent)
    assert found.observation.succession == layout.succession()
    assert found.retired == layout.retired.keys()


def test_a_plan_of_a_key_shared_group_is_one_of_parts():
    layout = Layout.first(2)
    sent = msgspec.json.decode(msgspec.json.encode(parted_picture("AutoSplit")), type=Picture)
    seen = read_complete_snapshot("workers", sent)
    assert seen.observation.ring[PartId(1, 1, 2)] == 49_152
    found = plan_forecast("workers", seen, [scaled(3, seen)])
    assert [move.partition for move in found.moves] == ["1.0/0", "1.0/1"]
    assert (found.parts, found.members["new-1"].after) == (4, 2)
    assert (seen.details[PartitionId(1, 0)].epoch, len(seen.details)) == (3, 2)
    rescaled = forecast_members(seen, layout.table, layout.table.resized(3, 2).table)
    assert sum(rescaled.after.values()) == 12
