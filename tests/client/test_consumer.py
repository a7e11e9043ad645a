"""The consumer against a scripted peer: messages, acks, credit and errors, on a real socket."""

import asyncio

import pytest

from partq import (
    Cause,
    Consumer,
    FencedError,
    SettingsError,
    UndecodableError,
    UnknownGroupError,
)
from partq.wire import frames
from tests.client.member import P0, WAIT_S, Member, assigned, bound, deliver


@pytest.mark.req("SOL-18", "SOL-19", "HND-26", "PUL-09", "PUL-12", "PUL-13")
async def test_a_message_carries_its_token_and_its_times(peer, member, stored_batch):
    flow = await peer.flow()
    assert (flow.first.member, flow.first.credit, flow.first.held) == ("m", 10_000, [])
    await flow.send(assigned((5, 9), cursor=3))
    await flow.send(deliver(3, 4, cause=Cause.FLOW_LOST), payload=stored_batch(b"a"))
    message = await member.next()
    assert (message.key, message.value, message.headers) == ("k", b"a", {})
    assert message.token == (1, 5, 9, 3)
    assert (message.partition, message.offset) == (P0, 3)
    assert message.cause is Cause.FLOW_LOST
    assert message.is_redelivered
    assert message.publish_time_ms == 1_700_000_000_000


async def test_an_ack_returns_when_it_is_stored(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a")
    message = await member.next()
    acking = asyncio.create_task(member.consumer.ack(message, confirmed=True))
    ack = await flow.next(frames.Ack)
    assert (ack.broker_epoch, ack.epoch, ack.upto, ack.ranges) == (5, 9, -1, [(0, 1)])
    assert not acking.done()
    await flow.send(frames.AckConfirmed(ack.request))
    async with asyncio.timeout(WAIT_S):
        await acking


async def test_acks_of_one_turn_travel_in_one_frame(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a", b"b", b"c", b"d")
    messages = [await member.next() for _ in range(4)]
    for message in (messages[3], messages[0], messages[1]):
        member.consumer.ack_nowait(message)
    ack = await flow.next(frames.Ack)
    assert ack.ranges == [(0, 2), (3, 4)]
    await flow.send(frames.AckConfirmed(ack.request))
    async with asyncio.timeout(WAIT_S):
        await member.consumer.flush()
    assert flow.is_quiet()


async def test_a_cumulative_ack_names_the_end(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a", b"b")
    await member.next()
    acking = asyncio.create_task(
        member.consumer.ack_cumulative(await member.next(), confirmed=True)
    )
    ack = await flow.next(frames.Ack)
    assert (ack.upto, ack.ranges) == (2, [])
    await flow.send(frames.AckConfirmed(ack.request))
    await acking


async def test_a_refused_ack_reaches_its_caller_and_nobody_else(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a", b"b")
    acking = asyncio.create_task(member.consumer.ack(await member.next(), confirmed=True))
    ack = await flow.next(frames.Ack)
    await flow.send(frames.AckRefused(ack.request, "fenced", "epoch 9 has ended"))
    with pytest.raises(FencedError):
        await acking
    assert (await member.next()).value == b"b"


async def test_flush_tells_of_a_refusal_once(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a")
    member.consumer.ack_nowait(await member.next())
    ack = await flow.next(frames.Ack)
    await flow.send(frames.AckRefused(ack.request, "fenced", "epoch 9 has ended"))
    with pytest.raises(FencedError):
        await member.consumer.flush()
    await member.consumer.flush()


async def test_batches_come_whole_and_are_acked_whole(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a", b"b", b"c")
    async for batch in member.consumer.batches():
        assert [message.value for message in batch] == [b"a", b"b", b"c"]
        assert list(batch.offsets) == [0, 1, 2]
        acking = asyncio.create_task(member.consumer.ack(batch, confirmed=True))
        ack = await flow.next(frames.Ack)
        assert ack.ranges == [(0, 3)]
        await flow.send(frames.AckConfirmed(ack.request))
        await acking
        break


async def test_auto_ack_acknowledges_when_the_next_is_asked_for(peer, stored_batch):
    member = Member(peer, auto_ack=True)
    async with member.consumer:
        flow = await bound(peer, stored_batch, b"a", b"b")
        await member.next()
        await asyncio.sleep(0)
        assert flow.is_quiet()
        await member.next()
        assert (await flow.next(frames.Ack)).ranges == [(0, 1)]


@pytest.mark.req("AZR-55")
async def test_room_is_given_back_as_messages_are_taken(peer, stored_batch):
    member = Member(peer, credit=4)
    async with member.consumer:
        flow = await bound(peer, stored_batch, b"a", b"b")
        assert flow.first.credit == 4
        await member.next()
        await member.next()
        assert [(await flow.next(frames.Credit)).messages for _ in range(2)] == [1, 1]


async def test_the_queue_bounds_the_credit(peer):
    peer.max_unacked_per_flow = 7
    member = Member(peer)
    async with member.consumer:
        assert (await peer.flow()).first.credit == 7


# ---- errors ----


async def test_an_undecodable_batch_stops_its_partition_only(peer, member, stored_batch):
    flow = await peer.flow()
    await flow.send(assigned(), assigned(partition=1))
    await flow.send(deliver(0, 1), payload=stored_batch(b"a")[:-1] + b"\xc1")
    await flow.send(deliver(1, 2), payload=stored_batch(b"behind"))
    await flow.send(deliver(0, 1, partition=1), payload=stored_batch(b"other"))
    assert (await member.next()).value == b"other"
    [error] = member.errors
    assert isinstance(error, UndecodableError)
    assert "partition 1.0" in str(error)
    assert "offset 0" in str(error)


async def test_without_a_callback_iterating_raises_the_error_once(peer, stored_batch):
    member = Member(peer, on_error=None)
    async with member.consumer:
        flow = await peer.flow()
        await flow.send(assigned(), assigned(partition=1))
        await flow.send(deliver(0, 1), payload=stored_batch(b"a")[:-1] + b"\xc1")
        await flow.send(deliver(0, 1, partition=1), payload=stored_batch(b"other"))
        with pytest.raises(UndecodableError):
            await member.next()
        assert (await member.next()).value == b"other"


async def test_a_group_that_ends_stops_the_consumer(peer, member):
    flow = await peer.flow()
    await flow.send(frames.Failed("unknown_group", "the group was deleted"))
    with pytest.raises(UnknownGroupError):
        await member.next()


@pytest.mark.parametrize("settings", [{"credit": 0}, {"member": "x" * 254}, {"member": "a\nb"}])
def test_unusable_settings_are_refused(settings):
    with pytest.raises(SettingsError):
        Consumer("http://127.0.0.1:7411", queue="orders", group="workers", **settings)
