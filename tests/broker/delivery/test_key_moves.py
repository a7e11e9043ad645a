"""Parked keys through handoffs, broker changes and resets: they wait on, and hold up nothing."""

import asyncio

import pytest

from partq.core.model import Cause
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import Handoff, open_producer
from tests.broker.delivery.keyed import DAY_MS, SLOTS, KeyedScene, open_keyed, publish
from tests.broker.ownership.test_failover import kill

A = SLOTS["a"]
TTL_S = 3.0
"""Of leases, where a broker dies: the next one waits for one and a half times as long."""


@pytest.fixture
async def scene(running):
    """Of a0, b0, a1 the first is given back for a day, and a1 with it; b0 is in hand."""
    scene = await KeyedScene().set(running, "a0", "b0", "a1")
    source = scene.source
    scene.held, _ = await source.deliver()
    assert await source.nack(scene.held, [(0, 1)], delay_ms=DAY_MS) == ""
    await source.give_back(await source.asked(), (2, 3))
    await eventually(lambda: scene.consumed.book.in_flight == 1, "a1 is back")
    return scene


async def test_no_drain_waits_for_parked_keys_and_the_new_member_gets_them_at_their_time(scene):
    target = await open_keyed(scene.running, "n", "j")
    handoff = await Handoff.begin(scene.running)
    assert (await handoff.pause())["code"] == ""
    await scene.source.find(frames.Paused)
    asked = await scene.source.asked()
    assert asked.lanes == [(0, 65_536)]
    assert not (await handoff.drain(wait_ms=0))["is_drained"], "b0 is in hand"
    assert await scene.source.ack(scene.held, ranges=[(1, 2)]) == ""
    await scene.source.give_back(asked)
    assert (await handoff.drain())["is_drained"]
    assert (await handoff.commit())["code"] == ""
    assigned, _ = await target.find(frames.Assigned)
    assert assigned.mode == frames.KEYED
    await publish(scene.producer, "a2", "b1")
    assert (await target.deliver())[1] == ["b1"]
    assert await target.gets_nothing()
    assert scene.consumed.book.unpark(A)
    scene.consumed.flow.notice(scene.consumed)
    again, values = await target.deliver()
    assert (values, again.redeliveries) == (["a0"], [(0, 1)])
    assert await target.ack(again, ranges=[(0, 1)]) == ""
    assert await target.values(2) == ["a1", "a2"]


async def test_a_pause_gives_back_what_has_not_begun(scene):
    await publish(scene.producer, "c0")
    _, values = await scene.source.deliver()
    assert values == ["c0"]
    handoff = await Handoff.begin(scene.running)
    assert (await handoff.pause())["code"] == ""
    await scene.source.give_back(await scene.source.asked(), (3, 4))
    assert await scene.source.ack(scene.held, ranges=[(1, 2)]) == ""
    assert (await handoff.drain())["is_drained"]
    assert (await handoff.cancel())["code"] == ""
    await scene.source.find(frames.Resumed)
    again, values = await scene.source.deliver()
    assert (values, again.cause) == (["c0"], Cause.NONE)


async def test_a_forced_commit_counts_the_lowest_message_and_leaves_parked_keys(scene):
    target = await open_keyed(scene.running, "n", "j")
    handoff = await Handoff.begin(scene.running)
    assert (await handoff.pause(drain_ms=0))["code"] == ""
    committed = await handoff.commit(cause="drain_timeout")
    assert (committed["code"], committed["was_forced"]) == ("", True)
    again, values = await target.deliver()
    assert (values, again.cause, again.redeliveries) == (["b0"], Cause.FORCED_COMMIT, [(1, 1)])
    assert await target.gets_nothing()
    assert await scene.source.ack(scene.held, ranges=[(1, 2)]) == "fenced"


@pytest.mark.parametrize("lease_ttl_s", [TTL_S])
async def test_parked_keys_wait_on_at_the_next_broker(scene, start_broker):
    assert await scene.source.ack(scene.held, ranges=[(1, 2)]) == ""
    other = await start_broker("orders-1")
    elsewhere = await open_keyed(other)
    await kill(scene.running)
    scene.running = other
    assigned, _ = await elsewhere.find(frames.Assigned)
    assert assigned.mode == frames.KEYED
    producer = await open_producer(other, "q")
    await publish(producer, "a2", "b1")
    again, values = await elsewhere.deliver()
    assert (values, again.cause) == (["b1"], Cause.NONE)
    assert await elsewhere.gets_nothing()
    left_s = scene.consumed.book.next_due - other.broker.clock()
    assert DAY_MS / 1000 - 3600 < left_s <= DAY_MS / 1000
    status, answer = await other.call(
        "POST", "/v1/queues/orders/groups/workers/keys/release", json={"slot": A}
    )
    assert (status, answer["partitions"]["1.0"]) == (200, {"is_released": True})
    again, values = await elsewhere.deliver()
    assert (values, again.redeliveries) == (["a0"], [(0, 1)])
    assert again.cause == Cause.BROKER_CHANGE
    assert await elsewhere.ack(again, ranges=[(0, 1)]) == ""
    assert await elsewhere.values(2) == ["a1", "a2"]


async def test_a_reset_forgets_parked_keys(scene):
    body = {"to": "earliest", "is_forced": True, "partitions": ["1.0"]}
    status, answer = await scene.running.call(
        "POST", "/v1/queues/orders/groups/workers/reset", json=body
    )
    assert (status, answer["partitions"]["1.0"]["to"]) == (200, 0)
    assert (await scene.record()).parked == {}
    again, values = await scene.source.deliver()
    assert (values, again.cause, again.redeliveries) == (["a0", "b0", "a1"], Cause.RESET, [])


async def test_what_is_parked_after_a_reset_is_stored(scene):
    body = {"to": "earliest", "is_forced": True, "partitions": ["1.0"]}
    await scene.running.call("POST", "/v1/queues/orders/groups/workers/reset", json=body)
    held, _ = await scene.source.deliver()
    assert await scene.source.nack(held, [(0, 1)], delay_ms=DAY_MS) == ""
    assert set((await scene.record()).parked) == {A}


async def test_a_leaving_member_that_was_asked_for_messages_gets_those_of_other_keys(scene):
    await scene.source.send(frames.Leave())
    await eventually(lambda: scene.consumed.flow.is_leaving, "the broker knows that it leaves")
    await publish(scene.producer, "b1", "b2")
    held, values = await scene.source.deliver()
    assert values == ["b1", "b2"]
    assert await scene.source.nack(held, [(3, 4)], delay_ms=DAY_MS) == ""
    await scene.source.give_back(await scene.source.asked(), (4, 5))
    await publish(scene.producer, "c0")
    assert await scene.source.values(1) == ["c0"]


@pytest.mark.parametrize("lease_ttl_s", [TTL_S])
async def test_a_broker_that_dies_before_the_commit_of_a_handoff_loses_nothing(
    scene, start_broker, monkeypatch
):
    """The parked keys are stored, the handoff is not: the next broker has both as they were."""
    assert await scene.source.ack(scene.held, ranges=[(1, 2)]) == ""
    await publish(scene.producer, "a2", "b1")
    assert (await scene.source.deliver())[1] == ["b1"]
    handoff = await Handoff.begin(scene.running)
    assert (await handoff.pause())["code"] == ""
    await scene.source.give_back(await scene.source.asked(), (4, 5))
    assert (await handoff.drain())["is_drained"]
    asked = asyncio.Event()

    async def commit(*_, **__):
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(scene.running.broker.partitions, "commit", commit)
    committing = asyncio.create_task(handoff.commit())
    await asked.wait()
    assert [*(await scene.record()).parked] == [A], "before the commit all is stored"
    other = await start_broker("orders-1")
    elsewhere = await open_keyed(other)
    await kill(scene.running)
    committing.cancel()
    await asyncio.gather(committing, return_exceptions=True)
    scene.running = other
    await elsewhere.find(frames.Assigned)
    again, values = await elsewhere.deliver()
    assert (values, again.start) == (["b1"], 4), "a waits on"
    left_s = scene.consumed.book.next_due - other.broker.clock()
    assert DAY_MS / 1000 - 3600 < left_s <= DAY_MS / 1000
    assert scene.consumed.book.unpark(A)
    scene.consumed.flow.notice(scene.consumed)
    assert scene.consumed.book.redeliveries == {0: 1}
    await elsewhere.finish_alone("a0")
    assert await elsewhere.values(2) == ["a1", "a2"]
