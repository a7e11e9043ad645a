"""What a group of order Key is bounded by: keys that wait, and the span of what may be sent."""

from partq.core.model import Cause
from partq.testing import eventually
from tests.broker.delivery.keyed import DAY_MS, SLOTS, KeyedScene, follow, publish


async def test_with_too_many_keys_waiting_the_partition_stops(running):
    """Nothing is dropped; what may go again does, and makes room for the rest."""
    scene = await KeyedScene().set(running, "a0", "b0", "c0", maxParkedKeys=1)
    source = scene.source
    held, _ = await source.deliver()
    assert await source.nack(held, [(0, 1)], delay_ms=DAY_MS) == ""
    assert await source.nack(held, [(1, 2)], delay_ms=DAY_MS) == ""
    await publish(scene.producer, "d0", "e0")
    assert await source.gets_nothing()
    state = await running.state()
    assert (state["parked_keys"], state["lowest_parked"]) == (2, 0)
    assert state["stands_still"].startswith("KeysParked: 2 keys")
    assert scene.consumed.book.unpark(SLOTS["a"])
    scene.consumed.flow.notice(scene.consumed)
    again, values = await source.deliver()
    assert (values, again.cause) == (["a0"], Cause.NACK)
    assert await source.values(2) == ["d0", "e0"]
    assert "stands_still" not in await running.state()


async def test_a_higher_bound_of_the_spec_lets_it_go_on(running):
    scene = await KeyedScene().set(running, "a0", "b0", "c0", maxParkedKeys=1)
    source = scene.source
    held, _ = await source.deliver()
    for offset in range(2):
        assert await source.nack(held, [(offset, offset + 1)], delay_ms=DAY_MS) == ""
    await publish(scene.producer, "d0")
    assert await source.gets_nothing()
    await follow(running, nack={"maxParkedKeys": 3})
    assert await source.values(1) == ["d0"], "under the same token: the flow is not unbound"


async def test_above_the_span_nothing_is_sent_before_the_lowest_is_done(running):
    await follow(running, ack={"maxSpan": 4})
    scene = await KeyedScene().set(running, "a0", "b0", "b1")
    source = scene.source
    held, _ = await source.deliver()
    assert await source.nack(held, [(0, 1)], delay_ms=DAY_MS) == ""
    await publish(scene.producer, "b2", "b3", "b4")
    last, values = await source.deliver()
    assert values == ["b2"], "up to four from the lowest on"
    assert await source.ack(held, ranges=[(1, 3)]) == ""
    assert await source.gets_nothing()
    assert (await running.state())["stands_still"].startswith("SpanFull")
    assert scene.consumed.book.unpark(SLOTS["a"])
    scene.consumed.flow.notice(scene.consumed)
    again, values = await source.deliver()
    assert values == ["a0"], "what lies below is sent again all the same"
    assert await source.ack(again, ranges=[(0, 1)]) == ""
    assert await source.values(2) == ["b3", "b4"]
    await eventually(lambda: scene.consumed.book.cursor == 3, "the cursor moves on")
    assert last.start == 3
