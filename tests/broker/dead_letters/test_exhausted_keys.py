"""Keys of a group of order Key whose message failed too often: blocked, or in quarantine."""

import pytest

from partq.broker.operations.parked_keys import list_parked, release
from partq.core.dead_letters import REASON_HEADER
from partq.core.hashing import slot_of
from partq.core.lanes.lane_book import LaneBook
from partq.core.model import Cause, PartitionId
from partq.resources import group_document, queue_document, resources_of
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import open_producer
from tests.broker.dead_letters.test_dead_letters import TARGET, run, start_target, stored, target
from tests.broker.delivery.keyed import (
    KEY_ORDER,
    SLOTS,
    KeyedScene,
    follow,
    open_keyed,
    publish,
)
from tests.broker.rescale.change import ChangeByHand, give, keys_for_five, outcome

__all__ = ["start_target", "stored", "target"]
A = SLOTS["a"]
OLD, NEW = PartitionId(1, 0), PartitionId(2, 4)


@pytest.fixture
def resources():
    return resources_of(
        queue_document("orders", partitions=4),
        queue_document(TARGET, partitions=2),
        group_document("workers", "orders", ack={"maxRedeliveries": 0}),
    )


async def exhaust(running, on_exhausted, *values):
    """Have the first of some messages fail too often; the rest of its key is given back."""
    await follow(running, ack={"onExhausted": on_exhausted})
    scene = await KeyedScene().set(running, *values)
    scene.held, _ = await scene.source.deliver()
    assert await scene.source.nack(scene.held, [(0, 1)], delay_ms=0) == ""
    if any(each[0] == values[0][0] for each in values[1:]):
        asked = await scene.source.asked()
        rest = [at for at, each in enumerate(values) if at and each[0] == values[0][0]]
        await scene.source.give_back(asked, *((at, at + 1) for at in rest))
    return scene


async def parked(running):
    found = await list_parked(running.broker, OLD, "workers")
    return [(each.slot, each.state, each.offset) for each in found.keys]


async def test_a_blocked_key_waits_until_it_is_released(running):
    scene = await exhaust(running, "Block", "a0", "b0", "a1")
    await publish(scene.producer, "a2", "b1")
    assert (await scene.source.deliver())[1] == ["b1"]
    assert await scene.source.gets_nothing()
    assert await scene.source.ack(scene.held, ranges=[(1, 2), (4, 5)]) == ""
    assert await parked(running) == [(A, "blocked", 0)]
    state = await running.state()
    assert (state["blocked_keys"], state["delayed"], state["dead_letters"]) == (1, 0, 0)
    await eventually(lambda: not scene.consumed.is_dirty, "it is stored")
    assert (await scene.record()).parked == {A: -1}
    body = {"partitions": 5, "is_dry_run": True}
    _, plan = await running.call("POST", "/admin/v1/queues/orders/partitions", json=body)
    group = plan["groups"]["workers"]
    assert (group["blocked"], group["hold_ms"]) == ({"1.0": [A]}, None)
    assert (await release(running.broker, scene.consumed.partition, "workers", A)).is_released
    assert await scene.source.values(3) == ["a0", "a1", "a2"]
    assert (await scene.record()).parked == {}
    assert (await scene.record()).redeliveries == {}, "it may fail as often again"


async def test_a_key_in_quarantine_makes_dead_letters_in_order_until_it_is_released(
    running, target, stored
):
    scene = await exhaust(running, "Quarantine", "a0", "b0", "a1")
    await publish(scene.producer, "a2", "b1", "a3")
    assert await scene.source.values(1) == ["b1"]
    await eventually(lambda: len(scene.consumed.outbox.letters) == 0, "all are sent")
    letters = await stored()
    while len(letters) < 4:
        letters = await stored()
    assert [each.value for each in letters] == [b"a0", b"a1", b"a2", b"a3"]
    reasons = [each.headers["partq-dead-letter-reason"] for each in letters]
    assert reasons == ["maxRedeliveries", *(["quarantined"] * 3)]
    assert await parked(running) == [(A, "quarantined", -1)]
    assert (await release(running.broker, scene.consumed.partition, "workers", A)).is_released
    await publish(scene.producer, "a4")
    assert await scene.source.values(1) == ["a4"]
    assert REASON_HEADER not in letters[1].headers


async def test_a_replay_to_a_key_in_quarantine_says_that_it_comes_back(running, target, stored):
    await exhaust(running, "Quarantine", "a0", "b0")
    await eventually(stored, "the dead letter")
    said = await run(target, "replay", "--yes")
    assert said.exit_code == 0, said.output
    assert f"one is slot {A} of group workers of queue orders: release" in said.stderr
    await eventually(stored, "it becomes a dead letter again")
    assert (await release(running.broker, OLD, "workers", A)).is_released


@pytest.mark.parametrize("on_exhausted", ["Block", "Quarantine"])
async def test_a_held_key_stays_so_at_the_next_broker_and_through_a_reset(
    running, start_broker, on_exhausted
):
    scene = await exhaust(running, on_exhausted, "a0", "b0")
    state = {"Block": "blocked", "Quarantine": "quarantined"}[on_exhausted]
    await eventually(lambda: scene.consumed.holds_stored == 1, "it is stored")
    other = await start_broker("orders-1")
    elsewhere = await open_keyed(other)
    await running.admin("/yield", {"partitions": ["1.0"]})
    await other.admin("/claim", {"partitions": ["1.0"]})
    scene.running = other
    await elsewhere.find(frames.Assigned)
    again, values = await elsewhere.deliver()
    assert values == ["b0"]
    assert (await parked(other))[0][:2] == (A, state)
    body = {"to": "earliest", "is_forced": True, "partitions": ["1.0"]}
    status, _ = await other.call("POST", "/v1/queues/orders/groups/workers/reset", json=body)
    assert status == 200
    assert [*(await scene.record()).parked] == [A]
    again, values = await elsewhere.deliver()
    assert (values, again.cause) == (["b0"], Cause.RESET)


async def test_a_count_that_was_stored_without_its_key_blocks_it_at_the_next_broker(
    running, start_broker, monkeypatch
):
    """The broker dies between the two flushes."""
    monkeypatch.setattr(LaneBook, "hold", lambda *_, **__: False)
    await exhaust(running, "Block", "a0", "b0")
    monkeypatch.undo()
    other = await start_broker("orders-1")
    elsewhere = await open_keyed(other)
    await running.admin("/yield", {"partitions": ["1.0"]})
    await other.admin("/claim", {"partitions": ["1.0"]})
    await elsewhere.find(frames.Assigned)
    assert await elsewhere.values(1) == ["b0"]
    assert await parked(other) == [(A, "blocked", 0)]


async def change_after(running, on_exhausted):
    """A key failed too often, another one is done; then the first moves away."""
    await follow(running, ack={"onExhausted": on_exhausted}, nack=KEY_ORDER)
    await running.assign("m", [0])
    moves, stays = keys_for_five(running.broker.config.layout)
    producer, source = await open_producer(running), await open_keyed(running)
    assert (await outcome(producer, OLD, 0, moves, stays))[0] == "stored"
    held, _ = await source.deliver()
    assert await source.nack(held, [(0, 1)], delay_ms=0) == ""
    assert await source.ack(held, ranges=[(1, 2)]) == ""
    await ChangeByHand(running).change(5)
    await give(running, "m", NEW)
    assert (await outcome(await open_producer(running, "q"), NEW, 0, moves))[0] == "stored"
    return source, slot_of(moves), running.broker.owned[NEW].groups["workers"]


async def test_a_blocked_key_holds_up_a_change_of_the_partition_count_and_says_so(running):
    source, slot, behind = await change_after(running, "Block")
    await eventually(lambda: len(behind.holds) == 1, "the others are passed")
    assert behind.gated_by.endswith(
        "at member m, where 1 key is blocked until `partq keys release`"
    )
    assert (await release(running.broker, OLD, "workers", slot)).is_released
    again, _ = await source.deliver()
    assert await source.ack(again, ranges=[(0, 1)]) == ""
    later, _ = await source.deliver()
    assert (later.generation, later.partition) == NEW


async def test_a_key_in_quarantine_stays_so_in_the_partition_that_it_moves_to(
    running, target, stored
):
    _, slot, behind = await change_after(running, "Quarantine")
    await eventually(lambda: not behind.is_gated, "the gate is open")
    assert behind.lanes.quarantined_lanes == {slot}
    await eventually(lambda: behind.book.cursor == 1, "what was published since is a dead letter")
    await eventually(lambda: not behind.outbox.letters, "and is sent")
    places = [each.headers["partq-dead-letter-partition"] for each in await stored()]
    assert places == ["1.0", "2.4"]
    record = await running.broker.partitions.read_cursor(NEW, "workers")
    assert record.parked == {slot: -2}
    _, answer = await running.call("GET", "/v1/queues/orders/groups/workers/keys")
    listed = [
        (name, key["slot"]) for name, row in answer["partitions"].items() for key in row["keys"]
    ]
    assert listed == [("2.4", slot)], "its old partition has nothing of it any more"
    assert "quarantined_keys" not in await running.state()
    body = {"slot": slot}
    _, answer = await running.call(
        "POST", "/v1/queues/orders/groups/workers/keys/release", json=body
    )
    released = [name for name, row in answer["partitions"].items() if row["is_released"]]
    assert released == ["1.0", "2.4"], "it is released in both records"
