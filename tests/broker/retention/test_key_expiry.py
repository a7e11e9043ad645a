"""Times to live in a group of order Key: what waits behind a parked key expires, too."""

import pytest

from partq.wire import frames
from tests.broker.delivery.keyed import DAY_MS, SLOTS, KeyedScene, follow, keyed_batch
from tests.broker.moved_clocks import AheadWatch, put_watch

SHORT_MS = 60_000
LATER_MS = 3_600_000


@pytest.fixture
def lease_ttl_s():
    """Nothing here is about leases: none shall be over on a busy machine."""
    return 30.0


async def publish(producer, *values, ttl_ms=0):
    frame = frames.Publish(1, 1, 0, producer.due[0], ttl_ms=ttl_ms)
    await producer.send(frame, keyed_batch(values))
    await producer.expect(frames.Published)
    producer.due[0] += len(values)


async def test_what_was_passed_over_for_a_parked_key_expires_with_its_own_time(running):
    watch = put_watch(running.broker, AheadWatch())
    scene = await KeyedScene().set(running, "a0")
    source = scene.source
    held, _ = await source.deliver()
    assert await source.nack(held, [(0, 1)], delay_ms=DAY_MS) == ""
    await publish(scene.producer, "a1", "b0", ttl_ms=SHORT_MS)
    await publish(scene.producer, "a2")
    assert (await source.deliver())[1] == ["b0"]
    watch.ahead_ms = LATER_MS
    assert scene.consumed.book.unpark(SLOTS["a"])
    scene.consumed.flow.notice(scene.consumed)
    await source.finish_alone("a0")
    assert await source.values(1) == ["a2"]


async def test_what_expires_behind_a_parked_key_becomes_dead_letters_where_the_group_wants_them(
    running,
):
    watch = put_watch(running.broker, AheadWatch())
    scene = await KeyedScene().set(running, "a0")
    source = scene.source
    held, _ = await source.deliver()
    assert await source.nack(held, [(0, 1)], delay_ms=DAY_MS) == ""
    await publish(scene.producer, "a1", "b0", ttl_ms=SHORT_MS)
    await publish(scene.producer, "a2")
    assert (await source.deliver())[1] == ["b0"]
    await follow(running, deadLetter={"queue": "dead", "expired": True})
    watch.ahead_ms = LATER_MS
    assert scene.consumed.book.unpark(SLOTS["a"])
    scene.consumed.flow.notice(scene.consumed)
    await source.finish_alone("a0")
    assert await source.values(1) == ["a2"]
    assert [each.offset for each in scene.consumed.outbox.letters] == [1]
