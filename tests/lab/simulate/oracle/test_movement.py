"""What the oracle takes for a move that balance does not require."""

from types import SimpleNamespace

import pytest

from partq.core.group.membership import MemberState, OwnershipState
from partq.core.group.planner import GroupRules, GroupType
from partq.core.model import PartitionId
from partq.lab.simulate.oracle import movement
from partq.lab.simulate.oracle.movement import Movement, superfluous

P0, P1 = PartitionId(1, 0), PartitionId(1, 1)
NO_CHANGE = SimpleNamespace(outgoing=frozenset())


@pytest.fixture
def failed():
    return []


@pytest.fixture
def judge(failed):
    """Of a store where P1 has just passed to pod-4, and P0 is still with pod-1, which is gone."""
    partitions = {
        "1.0": SimpleNamespace(member="pod-1", old_epoch=5),
        "1.1": SimpleNamespace(member="pod-4", old_epoch=5),
    }
    return Movement(
        SimpleNamespace(
            logs=partitions, group_partitions=partitions, rescales=SimpleNamespace(layout=None)
        ),
        GroupType.PARTITIONED,
        lambda *what: failed.append(what),
        lambda *_: True,
    )


def commit(judge):
    judge.asked_to_pause("1.1", 7)
    judge.committed("1.1", 7, "pod-2", "pod-4", is_bound=True)


def test_a_move_from_one_to_none_is_superfluous(judge, failed):
    commit(judge)
    assert failed == [("G5", "1.1 moves from pod-2, which has 1, to pod-4, which has 0")]


@pytest.mark.parametrize(
    ("epoch", "under_way", "expected"),
    [
        pytest.param(6, {P0: "pod-2"}, 0, id="its broker stands still"),
        pytest.param(5, {}, 0, id="its broker still shows the group of that name before"),
        pytest.param(6, {}, 1, id="neither"),
    ],
)
def test_what_the_coordinator_counted_on_counts(
    judge, failed, monkeypatch, epoch, under_way, expected
):
    """So the move that was planned after it is stored before it, or without it."""
    shown = {P0: "pod-1" if under_way else "pod-2", P1: "pod-2"}
    partitions = {
        p: SimpleNamespace(partition=p, member=member, epoch=epoch) for p, member in shown.items()
    }
    move = SimpleNamespace(partition=P1, ownership=partitions[P1], target="pod-4")
    monkeypatch.setattr(movement, "plan", lambda *_: [move])
    judge.plan(
        SimpleNamespace(
            partitions=partitions, listed=(), flows=(), losses=(), succession=NO_CHANGE
        ),
        SimpleNamespace(partitions={P0: OwnershipState.OVERDUE, P1: OwnershipState.SETTLED}),
        GroupRules(),
        under_way,
        {},
    )
    commit(judge)
    assert len(failed) == expected


def test_an_exclusive_group_goes_to_whoever_has_as_much_where_nobody_looks():
    """What a member holds at a broker that is not seen counts as well."""
    held = {P0: "pod-3", P1: "pod-6"}
    partitions = {p: SimpleNamespace(member=member) for p, member in held.items()}
    observation = SimpleNamespace(
        partitions=partitions, listed=(), flows=(), losses=(), priorities={}
    )
    assessment = SimpleNamespace(partitions={P0: OwnershipState.UNSEEN, P1: OwnershipState.SETTLED})
    move = SimpleNamespace(partition=P1, ownership=partitions[P1], target="pod-3")
    assert [
        *superfluous(observation, assessment, GroupRules(type=GroupType.EXCLUSIVE), {}, [move])
    ] == []
    move.target = "pod-7"
    assert [
        *superfluous(observation, assessment, GroupRules(type=GroupType.EXCLUSIVE), {}, [move])
    ] == ["1.1 leaves pod-6, which has most"]


def test_a_failover_group_has_no_master_that_is_leaving():
    """A handoff to it that runs still does not make it one."""
    held = {P0: "pod-3", P1: "pod-3"}
    partitions = {p: SimpleNamespace(partition=p, member=member) for p, member in held.items()}
    observation = SimpleNamespace(
        partitions=partitions, flows=(), losses=(), priorities={}, facts={}
    )
    bound = dict.fromkeys(("pod-2", "pod-3"), MemberState.BOUND)
    assessment = SimpleNamespace(
        partitions={P0: OwnershipState.SETTLED, P1: OwnershipState.SETTLED},
        members={"pod-1": MemberState.LEAVING, **bound},
        is_outgoing=lambda member: member == "pod-1",
    )
    move = SimpleNamespace(partition=P0, ownership=partitions[P0], target="pod-2")
    rules = GroupRules(type=GroupType.FAILOVER)
    assert [*superfluous(observation, assessment, rules, {P1: "pod-1"}, [move])] == []
