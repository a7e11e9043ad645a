"""A group of order Key: a message that is given back holds up its key, and no other."""

import pytest

from partq.core.model import Cause
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import Gate, open_flow
from tests.broker.delivery.keyed import DAY_MS, SLOTS, KeyedScene, follow, open_keyed, publish

A, B = SLOTS["a"], SLOTS["b"]


@pytest.fixture
async def scene(running):
    """Member m has a0, b0, a1, c0, a2 in hand."""
    scene = await KeyedScene().set(running, "a0", "b0", "a1", "c0", "a2")
    scene.held, values = await scene.source.deliver()
    assert values == ["a0", "b0", "a1", "c0", "a2"]
    assert (scene.held.mask, scene.held.causes, scene.held.delivery) == (b"", b"", 0)
    return scene


async def test_a_client_that_does_not_answer_loses_the_partition_and_gets_it_again(
    running, monkeypatch
):
    scene = await KeyedScene().set(running, "a0", "b0", "a1")
    held, _ = await scene.source.deliver()
    assert await scene.source.nack(held, [(0, 1)], delay_ms=0) == ""
    await scene.source.asked()
    assert await scene.source.gets_nothing(), "what waits for the answer"
    monkeypatch.setattr("partq.broker.delivery.flow_liveness.RETURN_S", 0.0)
    await scene.source.find(frames.Revoked)
    again, _ = await scene.source.find(frames.Assigned)
    assert again.epoch > scene.assigned.epoch
    values = await scene.source.values(3)
    assert [each for each in values if each[0] == "a"] == ["a0", "a1"], "in order"
    assert "b0" in values
    late = await scene.source.ack(held, ranges=[(1, 2)])
    assert late == "fenced", "of the older epoch"


async def test_the_key_waits_and_the_others_go_on(scene):
    source, held = scene.source, scene.held
    assert scene.assigned.mode == frames.KEYED
    assert await source.nack(held, [(0, 1)], delay_ms=DAY_MS) == ""
    asked = await source.asked()
    assert asked.lanes == [(A, A + 1)]
    await publish(scene.producer, "b1", "a3", "d0")
    again, values = await source.deliver()
    assert (values, again.mask, again.cause) == (["b1", "d0"], b"\x05", Cause.NONE)
    await source.give_back(asked, (2, 3), (4, 5))
    assert await source.ack(held, ranges=[(1, 2), (3, 4)]) == ""
    assert await source.ack(again, ranges=[(5, 6), (7, 8)]) == ""
    assert await source.gets_nothing()
    state = await scene.running.state()
    assert (state["in_flight"], state["cursor"], state["lag"]) == (0, 0, 4)
    assert (state["parked_keys"], state["lowest_parked"], state["delayed"]) == (1, 0, 1)
    record = await scene.record()
    assert record.acked == [(1, 2), (3, 4), (5, 6), (7, 8)]
    assert (record.redeliveries, list(record.parked)) == ({0: 1}, [A])


async def test_the_key_comes_again_in_order_behind_the_one_that_failed(scene):
    """And once that is done: it may fail again."""
    source, held = scene.source, scene.held
    assert await source.nack(held, [(0, 1)], delay_ms=0) == ""
    asked = await source.asked()
    assert await source.gets_nothing(), "before the client has said what it drops"
    await source.give_back(asked, (2, 3), (4, 5))
    again, values = await source.deliver()
    assert (values, again.redeliveries, again.cause) == (["a0"], [(0, 1)], Cause.NACK)
    assert await source.gets_nothing()
    assert await source.ack(again, ranges=[(0, 2)]) == "", "with what was in hand before"
    again, values = await source.deliver()
    assert (values, again.redeliveries, again.cause) == (["a1", "a2"], [], Cause.NONE)
    assert await source.ack(again, ranges=[(2, 5)]) == ""
    await eventually(lambda: scene.consumed.book.cursor == 5, "all is done")


async def test_what_is_in_hand_of_the_key_may_be_acknowledged(scene):
    source, held = scene.source, scene.held
    assert await source.nack(held, [(0, 1)], delay_ms=DAY_MS) == ""
    asked = await source.asked()
    await source.give_back(asked, (4, 5))
    assert await source.ack(held, ranges=[(2, 3)]) == ""
    assert await source.ack(held, ranges=[(1, 5)]) == "not_delivered", "a2 was given back"
    assert (await scene.record()).acked == [(1, 4)], "the rest of it counts"


async def test_nothing_of_the_key_comes_before_its_count_is_stored(scene):
    source, held = scene.source, scene.held
    gate = Gate(scene.running.broker.partitions, "flush")
    place = (held.generation, held.partition, held.broker_epoch, held.epoch)
    await source.send(frames.Nack(1, *place, 0, [(0, 1)], 0))
    await source.give_back(await source.asked(), (2, 3), (4, 5))
    await gate.reached.wait()
    await publish(scene.producer, "a3", "b1")
    assert (await source.deliver())[1] == ["b1"], "other keys do not wait for it"
    assert await source.gets_nothing()
    gate.opened.set()
    assert await source.values(1) == ["a0"]


async def test_one_frame_asks_for_the_keys_of_a_turn(scene):
    """Its one answer lets all of them go on."""
    source, held, handler = scene.source, scene.held, scene.running.broker.ack_handler
    await publish(scene.producer, "b1")
    await source.deliver()
    place = (held.generation, held.partition, held.broker_epoch, held.epoch)
    for start in (0, 1):
        nack = frames.Nack(start, *place, 0, [(start, start + 1)], 0)
        handler.nack(scene.consumed.flow, nack, lambda error: None)
    asked = await source.asked()
    assert asked.lanes == [(A, A + 1), (B, B + 1)]
    assert await source.gets_nothing(), "before the client has said what it drops"
    await source.give_back(asked, (2, 3), (4, 6))
    assert sorted(await source.values(2)) == ["a0", "b0"]
    assert await source.ack(held, ranges=[(0, 2)]) == ""
    assert sorted(await source.values(3)) == ["a1", "a2", "b1"]


async def test_a_cumulative_ack_and_a_release_are_refused(scene):
    source, held = scene.source, scene.held
    assert await source.ack(held, upto=2) == "bad_request"
    assert (await scene.running.state())["cursor"] == 0
    await source.release(held, 2)
    failed, _ = await source.find(frames.Failed)
    assert (failed.code, "AskBack" in failed.message or "asks" in failed.message) == (
        "bad_request",
        True,
    )


async def test_a_client_that_does_not_know_the_order_is_told_to_be_updated(scene):
    with pytest.raises(Exception, match="upgrade_required"):
        await open_flow(scene.running, "n", "j")


async def test_the_order_changes_while_the_group_consumes(scene):
    """What was acknowledged and counted stays; what is in hand comes again, with a cause."""
    source, held = scene.source, scene.held
    assert await source.nack(held, [(0, 1)], delay_ms=DAY_MS) == ""
    await source.give_back(await source.asked())
    assert await source.ack(held, ranges=[(1, 2)]) == ""
    await follow(scene.running, nack={"order": "Ordered"})
    revoked, _ = await source.find(frames.Revoked)
    assert revoked.cause == Cause.FLOW_LOST
    assigned, _ = await source.find(frames.Assigned)
    assert (assigned.mode, assigned.epoch > held.epoch) == (frames.EXCLUSIVE, True)
    again, values = await source.deliver()
    assert (values, again.cause) == (["a0", "a1", "c0", "a2"], Cause.FLOW_LOST)
    assert again.redeliveries[0][0] == 0
    assert (await scene.record()).parked == {}
    await follow(scene.running, nack={"order": "Key"})
    assigned, _ = await source.find(frames.Assigned)
    assert assigned.mode == frames.KEYED
    again, values = await source.deliver()
    assert (values, again.cause) == (["a0", "a1", "c0", "a2"], Cause.FLOW_LOST)


async def test_a_client_that_does_not_know_the_new_order_is_cut_off(running):
    await running.assign("m", [0])
    old = await open_flow(running)
    await old.expect(frames.Assigned)
    await follow(running, nack={"order": "Key"})
    await old.ended()
    new = await open_keyed(running)
    assigned, _ = await new.expect(frames.Assigned)
    assert assigned.mode == frames.KEYED


async def test_a_lost_flow_holds_up_the_key_of_its_lowest_message_until_that_is_stored(scene):
    gate = Gate(scene.running.broker.partitions, "flush")
    scene.source.cut()
    again = await open_keyed(scene.running, "m", "i2")
    deliver, values = await again.deliver()
    assert (values, deliver.cause, deliver.mask) == (["b0", "c0"], Cause.FLOW_LOST, b"\x05")
    gate.opened.set()
    deliver, values = await again.deliver()
    assert (values, deliver.cause, deliver.redeliveries) == (["a0"], Cause.FLOW_LOST, [(0, 1)])
    assert await again.ack(deliver, ranges=[(0, 1)]) == ""
    deliver, values = await again.deliver()
    assert (values, deliver.cause) == (["a1", "a2"], Cause.FLOW_LOST)


async def test_an_ack_timeout_takes_back_one_and_its_ack_still_counts(running):
    timing = {"timeoutSeconds": 1.0, "tickSeconds": 0.1, "backoff": None}
    await follow(running, ack=timing)
    scene = await KeyedScene().set(running, "a0", "b0", "a1")
    source = scene.source
    held, _ = await source.deliver()
    place = (held.generation, held.partition, held.broker_epoch, held.epoch)
    await source.send(frames.Begun(*place, 0, [(0, 1)]))
    assert await source.ack(held, ranges=[(1, 2)]) == ""
    running.clock.ahead_s += 1.5
    asked = await source.asked()
    assert asked.lanes == [(A, A + 1)]
    assert await source.ack(held, ranges=[(0, 1)]) == "", "it has come late, and is open still"
    await source.give_back(asked, (2, 3))
    again, values = await source.deliver()
    assert (values, again.cause) == (["a1"], Cause.NONE)
    assert await source.ack(again, ranges=[(2, 3)]) == ""
    await eventually(lambda: scene.consumed.book.cursor == 3, "all is done")


async def test_a_pause_of_the_application_asks_all_back(scene):
    source, held = scene.source, scene.held
    place = (held.generation, held.partition, held.broker_epoch, held.epoch)
    await source.send(frames.Withhold(*place, is_on=True))
    asked = await source.asked()
    assert asked.lanes == [(0, 65_536)]
    await source.give_back(asked, (1, 5))
    await publish(scene.producer, "b1")
    assert await source.gets_nothing()
    await source.send(frames.Withhold(*place, is_on=False))
    assert await source.values(5) == ["b0", "a1", "c0", "a2", "b1"]


async def test_what_a_client_returns_is_checked(scene):
    asked = frames.AskBack(1, 0, scene.held.broker_epoch, scene.held.epoch, -1, [])
    await scene.source.give_back(asked)
    failed, _ = await scene.source.find(frames.Failed)
    assert failed.code == "bad_request"


async def test_returned_is_for_groups_of_order_key_only(running):
    await running.assign("m", [0])
    source = await open_keyed(running)
    assigned, _ = await source.expect(frames.Assigned)
    assert assigned.mode == frames.EXCLUSIVE
    place = (assigned.generation, assigned.partition, assigned.broker_epoch, assigned.epoch)
    await source.send(frames.Returned(*place, 1, [(0, 1)]))
    failed, _ = await source.find(frames.Failed)
    assert failed.code == "bad_request"
