"""A KeyShared group beside other features: states of keys, keys that are held, seeks."""

import pytest

from partq.broker.operations.parked_keys import release
from partq.core.model import PartitionId
from partq.resources import group_document, queue_document, resources_of
from partq.testing import eventually
from partq.wire import frames
from tests.broker.dead_letters.test_dead_letters import TARGET, start_target, stored, target
from tests.broker.delivery.keyed import follow
from tests.broker.delivery.test_states import ask_state
from tests.broker.parts.test_part_moves import SLOTS, Shared

__all__ = ["start_target", "stored", "target"]
P = PartitionId(1, 0)


@pytest.fixture
def resources():
    return resources_of(
        queue_document("orders", partitions=4),
        queue_document(TARGET, partitions=2),
        group_document("workers", "orders", ack={"maxRedeliveries": 0}),
    )


@pytest.fixture
async def scene(running):
    """m has b0 and b1 in hand, n a part beside it."""
    scene = await Shared.open(running)
    await scene.give(m=[0, 1], n=[2, 3])
    scene.m, scene.n = await scene.join("m"), await scene.join("n")
    await scene.publish("b0", "a0", "b1")
    scene.held, _ = await scene.m.deliver()
    return scene


async def test_the_state_of_a_key_moves_with_it(scene):
    ack = {"ranges": [(0, 1)], "state_key": "b", "state": b"one"}
    assert await scene.m.ack(scene.held, **ack) == ""
    assert await scene.move((1, "m", "n")) == [""]
    await scene.m.give_back(await scene.m.asked(), (2, 3))
    await scene.n.lanes()
    again, values = await scene.n.deliver()
    assert values == ["b1"]
    assert await ask_state(scene.n, again, "b") == b"one"
    ack = {"ranges": [(2, 3)], "state_key": "b", "state": b"two"}
    assert await scene.n.ack(again, **ack) == ""
    assert await ask_state(scene.m, scene.held, "b") == b"two"


async def test_a_member_that_does_not_answer_loses_its_share_alone_and_gets_it_again(
    scene, monkeypatch
):
    await follow(scene.running, ack={"maxRedeliveries": 5})
    assert await scene.move((1, "m", "n")) == [""]
    await scene.m.asked()
    await scene.n.lanes()
    monkeypatch.setattr("partq.broker.delivery.flow_liveness.RETURN_S", 0.0)
    await scene.m.find(frames.Revoked)
    again, _ = await scene.m.find(frames.Assigned)
    assert again.epoch > scene.held.epoch
    _, values = await scene.n.deliver()
    assert values[0] == "b0", "what m had of the part that has moved"
    assert await scene.m.ack(scene.held, ranges=[(0, 1)]) == "fenced"


async def test_the_ack_of_what_was_taken_by_force_leaves_no_state(scene):
    await follow(scene.running, ack={"maxRedeliveries": 5})
    assert await scene.move((1, "m", "n"), drain_ms=0) == [""]
    await scene.n.lanes()
    again, values = await scene.n.deliver()
    assert values == ["b0"]
    late = {"ranges": [(0, 1)], "state_key": "b", "state": b"late"}
    assert await scene.m.ack(scene.held, **late) == "not_delivered"
    assert await ask_state(scene.n, again, "b") is None


async def test_a_blocked_key_waits_wherever_it_moves_until_it_is_released(scene):
    await follow(scene.running, ack={"onExhausted": "Block"})
    assert await scene.m.nack(scene.held, [(0, 1)], delay_ms=0) == ""
    await scene.m.give_back(await scene.m.asked(), (2, 3))
    assert await scene.move((1, "m", "n")) == [""]
    await scene.n.lanes()
    assert await scene.n.gets_nothing()
    assert (await release(scene.running.broker, P, "workers", SLOTS["b"])).is_released
    assert await scene.n.values(2) == ["b0", "b1"]


async def test_a_key_in_quarantine_makes_dead_letters_wherever_it_moves(scene, target, stored):
    await follow(scene.running, ack={"onExhausted": "Quarantine"})
    assert await scene.m.nack(scene.held, [(0, 1)], delay_ms=0) == ""
    await scene.m.give_back(await scene.m.asked(), (2, 3))
    assert await scene.move((1, "m", "n")) == [""]
    await scene.publish("b2", "c0")
    assert await scene.n.values(1) == ["c0"]
    letters = await stored()
    while len(letters) < 3:
        letters = await stored()
    assert [each.value for each in letters] == [b"b0", b"b1", b"b2"]


async def test_dead_letters_free_the_room_of_the_member_that_had_them(scene):
    consumed = scene.consumed
    (share,) = [each for each in consumed.holders() if each.member == "m"]
    before = share.flow.credit.unacked
    consumed.discard([(0, 1)])
    assert (share.flow.credit.unacked, share.book.in_flight) == (before - 1, 2)


async def test_a_member_cannot_seek_where_others_have_keys(scene):
    held = scene.held
    place = (held.generation, held.partition, held.broker_epoch, held.epoch)
    await scene.m.send(frames.Seek(5, *place, to="earliest"))
    refused = await scene.m.pick((frames.Sought, frames.SeekRefused))
    assert refused.code == "conflict"
    assert "KeyShared" in refused.message


async def test_a_pause_of_the_application_stops_its_keys_alone(scene):
    held = scene.held
    place = (held.generation, held.partition, held.broker_epoch, held.epoch)
    await scene.m.send(frames.Withhold(*place, True))
    await scene.m.give_back(await scene.m.asked(), (2, 3))
    await scene.publish("c0", "a1")
    assert await scene.n.values(1) == ["c0"]
    assert await scene.m.gets_nothing()
    assert (await scene.running.state())["is_withheld"]
    _, status = await scene.running.call("GET", "/v1/queues/orders/status")
    row = status["groups"]["workers"]["partitions"]["1.0"]
    (problem,) = row["problems"]
    assert problem["text"] == "paused by its application: one of m, n has called pause"
    await scene.m.send(frames.Withhold(*place, False))
    assert await scene.m.values(2) == ["b1", "a1"]
    await eventually(lambda: scene.consumed.book.in_flight == 5, "all is in hand")
