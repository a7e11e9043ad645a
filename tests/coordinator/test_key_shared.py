"""The coordinator gives parts of partitions to members: no pause, no drain, one call per broker."""

from collections import Counter

import pytest

from partq.core.model import PartitionId
from partq.core.parts.part_id import PartId
from partq.testing import eventually

PARTS = 4


@pytest.fixture
def shared(system):
    """A system whose group is KeyShared, and whose partitions have four parts each."""
    return share(system, "Balanced")


def share(system, hash_range):
    group = {"type": "KeyShared", "keyShared": {"parts": PARTS, "hashRange": hash_range}}
    system.store.groups["workers"].spec = group
    for record in system.brokers.records.values():
        record.parts = [(None, 0)] * PARTS
    return system


def owners(system):
    return [
        member for _, record in sorted(system.brokers.records.items()) for member, _ in record.parts
    ]


def is_settled(system, **counts):
    return Counter(owners(system)) == counts and not system.store.handoffs


@pytest.mark.parametrize("hash_range", ["Balanced", "AutoSplit"])
async def test_members_share_the_parts(system, hash_range):
    share(system, hash_range)
    system.brokers.bind("a")
    system.brokers.bind("b")
    async with system.running():
        await eventually(lambda: is_settled(system, a=8, b=8))
        system.brokers.bind("c")
        sizes = {"a": 5, "b": 5, "c": 6} if hash_range == "Balanced" else {"a": 8, "b": 4, "c": 4}
        await eventually(lambda: sorted(Counter(owners(system)).values()) == sorted(sizes.values()))
        system.brokers.leave("c")
        await eventually(lambda: "c" not in owners(system))
        await eventually(
            lambda: (
                [each.member for _, each in sorted(system.store.assignment.items())]
                == owners(system)
            )
        )
    assert system.said("pause") == system.said("drain") == system.said("commit") == []
    assert {str(part) for part in system.store.assignment} >= {"1.0/0", "1.3/3"}
    assert {each.state for each in system.store.assignment.values()} == {"Ready"}


async def test_a_move_is_recorded_before_the_call_and_is_not_forced(shared):
    for record in shared.brokers.records.values():
        record.parts = [("a", 0)] * PARTS
    shared.brokers.bind("a")
    shared.brokers.bind("b")
    async with shared.running():
        await eventually(lambda: is_settled(shared, a=8, b=8))
        await eventually(lambda: shared.store.rebalances)
    assert {forced for _, forced in shared.said("committed")} == {None}
    steps = [name for name, *_ in shared.journal if name in ("record", "commit_parts", "remove")]
    first = steps.index("commit_parts")
    assert set(steps[:first]) == {"record"}
    (rebalance,) = shared.store.rebalances
    assert (rebalance.moved, rebalance.timed_out) == (8, 0)


async def test_a_lost_answer_is_no_second_move(shared):
    shared.brokers.deaf = {"commit_parts"}
    shared.brokers.bind("a")
    async with shared.running():
        await eventually(lambda: is_settled(shared, a=16))
    numbers = [attempt for _, attempt in shared.said("commit_parts")]
    assert len(set(numbers)) == 16
    assert len(shared.said("committed")) == 16


async def test_lost_and_leaving_members_are_judged_as_in_other_groups(shared):
    for index, record in enumerate(shared.brokers.records.values()):
        record.parts = [("ab"[index % 2], 0)] * PARTS
    shared.brokers.bind("a")
    shared.brokers.bind("b")
    async with shared.running() as coordinator:
        shared.brokers.lose("b")
        await eventually(lambda: (view := shared_view(coordinator)) is not None and view.is_waiting)
        assert Counter(owners(shared)) == {"a": 8, "b": 8}
        view = shared_view(coordinator)
        assert view.states == {
            PartitionId(1, index): "Unbound" if index % 2 else "Ready" for index in range(4)
        }
        shared.brokers.losses = dict.fromkeys(shared.brokers.losses, 6.0)
        shared.clock.skipped_s += 6
        await eventually(lambda: is_settled(shared, a=16))
    assert {forced for _, forced in shared.said("committed")} == {"source_lost"}


def shared_view(coordinator):
    return coordinator._groups["workers"].worker.view if coordinator._groups else None


async def test_where_a_broker_does_not_know_parts_nothing_is_done(shared):
    """As one of an earlier version, or before it has read the group's new type."""
    shared.brokers.records[PartitionId(1, 0)].parts = []
    shared.brokers.bind("a")
    async with shared.running():
        await eventually(lambda: Counter(owners(shared)) == {"a": 12})
        await eventually(lambda: len(shared.store.assignment) == 16)
    assert shared.store.assignment[PartId(1, 0, 0)].state == "Unassigned"


async def test_a_partition_count_with_too_many_parts_changes_nothing(system, caplog):
    system.store.groups["workers"].spec = {"type": "KeyShared", "keyShared": {"parts": 32}}
    for record in system.brokers.records.values():
        record.parts = [(None, 0)] * 32
    system.store.queue.spec = {**system.store.queue.spec, "partitions": 4096}
    system.brokers.bind("a")
    async with system.running():
        await eventually(lambda: is_settled(system, a=4 * 32))
    assert system.store.layout.layout.next is None
    refused = [line for line in caplog.messages if "group workers would have 32 parts" in line]
    assert len(refused) == 1, "told once"
    assert "partition count: partitions: got 4096" in refused[0]
