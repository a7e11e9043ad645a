"""A coordinator under a budget: what starts, what waits, what is written down for the next one."""

from types import SimpleNamespace

import pytest

from partq.core.group.records import HandoffRecord
from partq.core.model import PartitionId
from partq.testing import eventually
from tests.coordinator.timing import looks

P0 = PartitionId(1, 0)


def limit(system, **fields):
    system.store.groups["workers"] = SimpleNamespace(spec={"rebalance": fields}, groups=(), born=1)


def waiting(coordinator_or_system):
    return {p.index: each.limit for p, each in coordinator_or_system.store.waiting.items()}


async def test_one_after_the_other(system):
    """A has all four, B joins: two move, never two at once, and the rebalance is one."""
    limit(system, maxPausedPartitions=1)
    system.begin("aaaa", bound="ab")
    for record in system.brokers.records.values():
        record.in_flight = 1
    async with system.running():
        await eventually(lambda: len(waiting(system)) == 1)
        assert waiting(system) == {3: "maxPausedPartitions"}
        await eventually(lambda: system.said("drain"))
        assert {index for index, _ in system.said("pause")} == {2}
        for record in system.brokers.records.values():
            record.in_flight = 0
        await eventually(lambda: system.brokers.owners() == {0: "a", 1: "a", 2: "b", 3: "b"})
        await eventually(lambda: not system.store.waiting)
        await eventually(lambda: system.store.rebalances)
    starts = [name for name, index, _ in system.journal if name in ("record", "committed")]
    assert starts == ["record", "committed"] * 2
    (rebalance,) = system.store.rebalances
    assert rebalance.moved == 2


async def test_the_next_coordinator_counts_what_the_last_one_did(system):
    limit(system, maxMovesPerMinute=1)
    system.clock.stop()
    system.begin("aaaa", bound="ab")
    async with system.running():
        await eventually(lambda: len(system.store.past) == 1)
        await eventually(lambda: waiting(system) == {3: "maxMovesPerMinute"})
    (move,) = system.store.past[PartitionId(1, 2)]
    assert (move.source, move.target, move.trigger) == ("a", "b", "member_joined")
    assert (move.evidence, move.forced) == ("newcomer", None)
    told = system.store.waiting[PartitionId(1, 3)]
    assert (told.target, told.until_ms) == ("b", move.at_ms + 60_000)

    system.clock.skipped_s += 59.9
    looks = system.store.looks
    async with system.running():
        await eventually(lambda: system.store.looks > looks + 10)
        assert len(system.said("record")) == 1
        assert system.store.waiting == {PartitionId(1, 3): told}
        system.clock.skipped_s += 0.2
        await eventually(lambda: system.brokers.owners()[3] == "b")


async def test_a_lost_member_is_replaced_whatever_the_budget_says(system):
    limit(system, maxMovesPerMinute=1, minMoveIntervalSeconds=3600, maxPausedPartitions=1)
    system.begin("aabb", bound="ab")
    system.brokers.lose("b", age_s=60.0)
    async with system.running():
        await eventually(lambda: set(system.brokers.owners().values()) == {"a"})
        await eventually(lambda: len(system.store.past) == 2)
    moves = [move for each in system.store.past.values() for move in each]
    assert {(move.trigger, move.evidence, move.forced) for move in moves} == {
        ("member_lost", "delay_over", "source_lost")
    }


@pytest.mark.parametrize("is_ours", [True, False], ids=["its attempt", "another attempt"])
async def test_a_move_that_nobody_saw_committed_is_noted(system, is_ours):
    """The coordinator died after the commit: its record of the attempt says what moved."""
    system.begin("baab", bound="ab")
    system.brokers.records[P0].closed = 41
    number = 41 if is_ours else 40
    system.store.handoffs[P0] = HandoffRecord(
        "a", "b", number, "Draining", 0, "member_left", "pod_terminating", None
    )
    async with system.running():
        await eventually(lambda: not system.store.handoffs)
    if is_ours:
        (move,) = system.store.past[P0]
        assert (move.source, move.target, move.evidence) == ("a", "b", "pod_terminating")
        assert (move.attempt, move.pause_ms) == (41, None)
    else:
        assert not system.store.past


async def test_a_pause_of_the_annotation_ends_the_waiting(system):
    limit(system, maxMovesPerMinute=1)
    system.begin("aaaa", bound="ab")
    async with system.running():
        await eventually(lambda: len(waiting(system)) == 1)
        limit(system, maxMovesPerMinute=1, paused=True)
        await eventually(lambda: not waiting(system))


async def test_who_asks_for_a_rebalance_now_waits_for_no_budget(system):
    limit(system, maxMovesPerMinute=1)
    system.begin("aaaa", bound="ab")
    async with system.running() as coordinator:
        await eventually(lambda: len(waiting(system)) == 1)
        assert coordinator.rebalance_now("workers")
        await eventually(lambda: system.brokers.owners() == {0: "a", 1: "a", 2: "b", 3: "b"})


async def test_a_rebalance_asked_for_in_the_middle_of_a_look_is_not_forgotten(system):
    limit(system, paused=True)
    system.begin("aaaa", bound="ab")
    asked = []
    write = system.store._write_assignment

    async def ask_and_write(group, mapping):
        if not asked:
            asked.append(coordinator.rebalance_now("workers"))
        await write(group, mapping)

    system.store._write_assignment = ask_and_write
    coordinator = system.coordinator()
    await looks(coordinator)
    assert asked == [True]
    assert len(system.said("record")) == 2
    await coordinator.close()
