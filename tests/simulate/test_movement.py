"""What the oracle takes for a move that balance does not require."""

from types import SimpleNamespace

import pytest

from partq.core.membership import SeatState
from partq.core.model import PartitionId
from partq.core.rebalance import GroupType
from partq.simulate import movement
from partq.simulate.movement import Movement, superfluous

P0, P1 = PartitionId(1, 0), PartitionId(1, 1)


@pytest.fixture
def failed():
    return []


@pytest.fixture
def judge(failed):
    """Of a store where P1 has just passed to pod-4, and P0 is still with pod-1, which is gone."""
    partitions = {"1.0": SimpleNamespace(member="pod-1"), "1.1": SimpleNamespace(member="pod-4")}
    return Movement(
        SimpleNamespace(logs=partitions, seats=partitions),
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


def test_what_is_on_its_way_to_the_source_counts(judge, failed, monkeypatch):
    """Its broker stands still: so the move that was planned after it is stored before it."""
    seats = {P0: SimpleNamespace(member="pod-1"), P1: SimpleNamespace(member="pod-2")}
    move = SimpleNamespace(partition=P1, seat=seats[P1], target="pod-4")
    monkeypatch.setattr(movement, "plan", lambda *_: [move])
    judge.plan(
        SimpleNamespace(seats=seats, listed=()),
        SimpleNamespace(seats={P0: SeatState.OVERDUE, P1: SeatState.SETTLED}),
        SimpleNamespace(type=GroupType.PARTITIONED),
        {P0: "pod-2"},
        {},
    )
    commit(judge)
    assert failed == []


def test_an_exclusive_group_goes_to_whoever_has_as_much_where_nobody_looks():
    """What a member holds at a broker that is not seen counts as well."""
    held = {P0: "pod-3", P1: "pod-6"}
    seats = {p: SimpleNamespace(member=member) for p, member in held.items()}
    sight = SimpleNamespace(seats=seats, listed=())
    table = SimpleNamespace(seats={P0: SeatState.UNSEEN, P1: SeatState.SETTLED})
    move = SimpleNamespace(partition=P1, seat=seats[P1], target="pod-3")
    assert [*superfluous(sight, table, GroupType.EXCLUSIVE, {}, [move])] == []
    move.target = "pod-7"
    assert [*superfluous(sight, table, GroupType.EXCLUSIVE, {}, [move])] == [
        "1.1 leaves pod-6, which has most"
    ]
