"""Messages of a group of order Key that become dead letters, expire or do not decode.

Each ends what it has held up: the key goes on, and no other key has waited.
"""

# fixtures of another module

import asyncio

from partq import Consumer
from partq.broker.dead_letters import forwarder
from partq.broker.partition import outbox
from partq.errors import StoreFullError
from partq.testing import eventually
from partq.wire import batch, frames
from tests.broker.conftest import CONSUME
from tests.broker.dead_letters.test_dead_letters import resources
from tests.broker.delivery.keyed import DAY_MS, SLOTS, KeyedScene, publish

__all__ = ["resources"]
WAIT_S = 60.0
GARBAGE = b"\xc1" * 1000


async def test_the_key_goes_on_behind_a_message_that_was_sent_too_often(running):
    """No dead-letter queue is there: its message waits in the outbox, and holds up nothing."""
    scene = await KeyedScene().set(running, "a0", "b0", "a1")
    source = scene.source
    held, _ = await source.deliver()
    assert await source.nack(held, [(0, 1)], delay_ms=0) == ""
    await source.give_back(await source.asked(), (2, 3))
    again, values = await source.deliver()
    assert values == ["a0"]
    assert await source.nack(held, [(0, 1)], delay_ms=DAY_MS) == ""
    again, values = await source.deliver()
    assert (values, again.start) == (["a1"], 2)
    assert await source.ack(held, ranges=[(1, 3)]) == ""
    await eventually(lambda: scene.consumed.book.cursor == 3, "all is done")
    assert [each.offset for each in scene.consumed.outbox.letters] == [0]
    state = await running.state()
    assert (state["parked_keys"], state["dead_letters"], state["lag"]) == (0, 1, 0)


async def fail(scene, delivered, offset):
    """Let a message be sent too often; return once it is to become a dead letter."""
    for is_last in (False, True):
        assert await scene.source.nack(delivered, [(offset, offset + 1)], delay_ms=0) == ""
        if not is_last:
            delivered, _ = await scene.source.deliver()
    outbox = scene.consumed.outbox
    await eventually(
        lambda: offset in [*outbox.scheduled, *(each.offset for each in outbox.letters)], "doomed"
    )


async def test_a_full_outbox_holds_up_keys_alone_while_few_wait(running, monkeypatch):
    monkeypatch.setattr(outbox, "MAX_WAITING", 1)
    scene = await KeyedScene().set(running, "a0", "b0", "c0", maxParkedKeys=1)
    source = scene.source
    held, _ = await source.deliver()
    await fail(scene, held, 0)
    await eventually(lambda: scene.consumed.outbox.letters, "it waits for its queue")
    await fail(scene, held, 1)
    await publish(scene.producer, "b1", "a1", "d0")
    _, values = await source.deliver()
    assert values == ["a1", "d0"], "b waits"
    state = await running.state()
    assert (state["blocked"], state["parked"] > "") == ("", True)
    await fail(scene, held, 2)
    await publish(scene.producer, "d1")
    assert await source.gets_nothing(), "more keys wait than may"
    state = await running.state()
    assert (state["blocked"] > "", state["parked"]) == (True, "")
    monkeypatch.setattr(outbox, "MAX_WAITING", 1000)
    scene.consumed.outbox.wake()
    assert sorted(await source.values(2)) == ["b1", "d1"]
    assert [each.offset for each in scene.consumed.outbox.letters] == [0, 1, 2]


async def test_a_dead_letter_that_redis_refuses_holds_up_its_key_alone(running, monkeypatch):
    monkeypatch.setattr(forwarder, "FIRST_WAIT_S", 3600.0)
    scene = await KeyedScene().set(running, "a0", "b0")
    source, tries = scene.source, []

    async def refuse(*_, letters, **__):
        tries.append(letters)
        raise StoreFullError("no room")

    monkeypatch.setattr(running.broker.dead_letters._outboxes, "add", refuse)
    held, _ = await source.deliver()
    await fail(scene, held, 0)
    await eventually(lambda: tries, "it was tried")
    await publish(scene.producer, "a1", "b1")
    again, values = await source.deliver()
    assert values == ["b1"]
    assert await source.nack(again, [(3, 4)], delay_ms=DAY_MS) == "", "another count is stored"
    assert len(tries) == 1, "the repeat keeps its pace"
    monkeypatch.undo()
    scene.consumed.outbox.wake()
    assert await source.values(1) == ["a1"]


async def test_an_application_asks_for_a_dead_letter_of_what_it_has_in_hand(running):
    scene = await KeyedScene().set(running, "a0", "b0", "a1")
    source = scene.source
    held, _ = await source.deliver()
    assert await source.nack(held, [(0, 1)], reason="bad_address", makes_dead_letters=True) == ""
    assert await source.ack(held, ranges=[(1, 3)]) == "", "nothing of the key was asked back"
    assert await source.nack(held, [(1, 2)], reason="late", makes_dead_letters=True) == ""
    await eventually(lambda: scene.consumed.book.cursor == 3, "all is done")
    assert [each.offset for each in scene.consumed.outbox.letters] == [0]


async def test_what_was_given_back_makes_no_dead_letter(running):
    scene = await KeyedScene().set(running, "a0", "a1")
    source = scene.source
    held, _ = await source.deliver()
    assert await source.nack(held, [(0, 1)], delay_ms=DAY_MS) == ""
    await source.give_back(await source.asked(), (1, 2))
    refused = await source.nack(held, [(1, 2)], reason="bad_address", makes_dead_letters=True)
    assert refused == "not_delivered"


async def test_what_waits_expires_and_what_is_in_hand_does_not(running):
    scene = await KeyedScene().set(running, "a0", "b0", "a1")
    source = scene.source
    held, _ = await source.deliver()
    assert await source.nack(held, [(0, 1)], delay_ms=DAY_MS) == ""
    await source.give_back(await source.asked(), (2, 3))
    await eventually(lambda: scene.consumed.book.in_flight == 1, "a1 is back")
    assert running.broker.expiry._expire(scene.consumed, 3)
    await publish(scene.producer, "a2")
    assert (await source.deliver())[1] == ["a2"], "nothing of the key waits any more"
    assert await source.ack(held, ranges=[(1, 2), (3, 4)]) == ""
    await eventually(lambda: scene.consumed.book.cursor == 4, "all is done")


async def test_no_more_expires_behind_what_is_in_hand_than_a_book_can_say(running, monkeypatch):
    """The rest is left for a later look: what a book leaves out must not count as expired."""
    scene = await KeyedScene().set(running, "a0")
    await scene.source.deliver()
    scene.consumed.is_withheld = True
    await publish(scene.producer, *(["b0"] * 5))
    monkeypatch.setattr("partq.core.lanes.lane_progress.MAX_BITS", 4)
    expiry, book = running.broker.expiry, scene.consumed.book
    assert expiry._expire(scene.consumed, 6)
    assert book.undone(0, 6) == [(0, 1), (4, 6)]
    assert not expiry._expire(scene.consumed, 6)
    assert await scene.source.ack(scene.assigned, ranges=[(0, 1)]) == ""
    assert expiry._expire(scene.consumed, 6)
    assert book.cursor == 6


async def test_what_does_not_decode_holds_up_nothing(running):
    """A real consumer: it tells the broker, which has a look, and passes over it."""
    scene = await KeyedScene().set(running)
    await scene.source.close()
    values = ["a0", "b0", "a1", "c0"]
    bodies = [batch.encode_message(batch.Message(each[0], each.encode())) for each in values]
    bodies[1] = GARBAGE
    data = batch.encode(bodies, [SLOTS[each[0]] for each in values])
    await scene.producer.send(frames.Publish(1, 1, 0, 0), data)
    await scene.producer.expect(frames.Published)
    got, errors = [], []
    consumer = Consumer(
        running.url, queue="orders", group="workers", token=CONSUME, member="m",
        on_error=errors.append, handle_signals=False, leave_timeout_s=0.05,
    )  # fmt: skip
    async with consumer, asyncio.timeout(WAIT_S):
        async for message in consumer:
            got.append(message.value.decode())
            await consumer.ack(message)
            if len(got) == 3:
                break
    assert sorted(got) == ["a0", "a1", "c0"]
    assert got.index("a0") < got.index("a1")
    assert {error.code for error in errors} == {"undecodable"}
    await eventually(lambda: scene.consumed.book.cursor == 4, "all is done")
