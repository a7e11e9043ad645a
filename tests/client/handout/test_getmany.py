"""`getmany` and `batches(max_messages=)`: several messages in one call, none lost by a cancel."""

import asyncio

import pytest

from partq import Cause, Message, SettingsError
from partq.testing import eventually
from partq.wire import batch, frames
from tests.client.member import WAIT_S, Member, assigned, deliver


def stored(count):
    messages = [Message(f"k{place}", str(place).encode()) for place in range(count)]
    return batch.encode(batch.encode_messages(messages), [0] * count)


async def bound(peer, count):
    flow = await peer.flow()
    await flow.send(assigned())
    if count:
        await flow.send(deliver(0, count), payload=stored(count))
    return flow


def offsets(messages):
    return [message.offset for message in messages]


async def until_held(consumer, count):
    """Let a call that waits for more gather what is here."""
    await eventually(lambda: len(consumer._held) == count, f"{count} are gathered")


async def test_so_many_come_at_once_and_the_rest_after_the_time(peer, member):
    await bound(peer, 5)
    consumer = member.consumer
    assert offsets(await consumer.getmany(3, timeout_s=WAIT_S)) == [0, 1, 2]
    assert offsets(await consumer.getmany(3, timeout_s=0.01)) == [3, 4]
    assert await consumer.getmany(3, timeout_s=0) == []


async def test_a_cancelled_call_loses_no_message(peer, member):
    await bound(peer, 4)
    consumer = member.consumer
    for _ in range(2):
        call = asyncio.create_task(consumer.getmany(10, timeout_s=WAIT_S))
        await until_held(consumer, 4)
        call.cancel()
        await asyncio.wait([call])
    assert offsets(await consumer.getmany(2, timeout_s=WAIT_S)) == [0, 1]
    assert (await member.next()).offset == 2
    (last,) = await anext(consumer.batches(max_messages=7, max_wait_s=0))
    assert last.offset == 3


async def test_what_is_redelivered_meanwhile_comes_once(peer, member):
    """A cancelled call had it, and then the partition stepped back to before it."""
    flow = await bound(peer, 3)
    consumer = member.consumer
    first = await member.next()
    call = asyncio.create_task(consumer.getmany(10, timeout_s=WAIT_S))
    await until_held(consumer, 2)
    call.cancel()
    nacking = asyncio.create_task(consumer.nack(first))
    nack = await flow.next(frames.Nack)
    assert await consumer.getmany(1, timeout_s=0) == [], "nothing of it until the broker answers"
    await flow.send(frames.Rewound(1, 0, 5, 9, 1, 0, Cause.NACK))
    await flow.send(frames.AckConfirmed(nack.request))
    await nacking
    await flow.send(deliver(0, 3, delivery=1, cause=Cause.NACK), payload=stored(3))
    again = await consumer.getmany(3, timeout_s=WAIT_S)
    assert [(each.offset, each.cause) for each in again] == [(n, Cause.NACK) for n in range(3)]
    assert await consumer.getmany(1, timeout_s=0) == []


async def test_lists_come_after_their_time_and_acknowledge_the_one_before(peer):
    async with Member(peer, auto_ack=True).consumer as consumer:
        flow = await bound(peer, 5)
        lists = consumer.batches(max_messages=2, max_wait_s=0.01)
        assert offsets(await anext(lists)) == [0, 1]
        assert offsets(await anext(lists)) == [2, 3]
        assert (await flow.next(frames.Ack)).ranges == [(0, 2)]
        assert offsets(await anext(lists)) == [4]
        assert (await flow.next(frames.Ack)).ranges == [(2, 4)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(lists), 0.01)
        assert (await flow.next(frames.Ack)).ranges == [(4, 5)]
        await flow.send(deliver(5, 6), payload=stored(1))
        assert offsets(await anext(lists)) == [5], "the iterator goes on after a cancel"


async def test_stored_batches_go_on_after_a_cancel(peer, member):
    flow = await bound(peer, 0)
    batches = member.consumer.batches()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(batches), 0.01)
    await flow.send(deliver(0, 2), payload=stored(2))
    assert list((await anext(batches)).offsets) == [0, 1]


async def test_lists_end_when_the_consumer_has_left(peer):
    member = Member(peer, leave_timeout_s=WAIT_S)
    async with member.consumer as consumer:
        flow = await bound(peer, 2)
        assert (await member.next()).offset == 0
        consumer.leave()
        await flow.next(frames.Leave)
        lists = consumer.batches(max_messages=2, max_wait_s=0)
        assert offsets(await anext(lists)) == [1]
        await flow.send(frames.Revoked(1, 0, 5, 9, 0))
        with pytest.raises(StopAsyncIteration):
            await anext(lists)


@pytest.mark.parametrize(("count", "time_s"), [(0, 1), (10_001, 1), (1, -1), (1, 86_401), ("1", 1)])
async def test_a_count_or_time_out_of_range_is_refused(member, count, time_s):
    with pytest.raises(SettingsError, match=r"max_messages|timeout_s"):
        await member.consumer.getmany(count, time_s)
    with pytest.raises(SettingsError, match=r"max_messages|max_wait_s"):
        member.consumer.batches(max_messages=count, max_wait_s=time_s)


async def test_a_consumer_that_has_left_says_so_once_all_is_handed_out(peer, member):
    flow = await bound(peer, 2)
    consumer = member.consumer
    await until_held_ready(consumer, 2)
    consumer.leave()
    await flow.next(frames.Leave)
    assert offsets(await consumer.getmany(2, timeout_s=WAIT_S)) == [0, 1]
    assert await consumer.getmany(1, timeout_s=0.01) == [], "it still has the partition"
    await flow.send(frames.Revoked(1, 0, 5, 9, Cause.RELEASED))
    with pytest.raises(RuntimeError, match="getmany: the consumer has left"):
        await consumer.getmany(1, timeout_s=WAIT_S)


async def until_held_ready(consumer, count):
    await eventually(lambda: consumer.stats().buffered == count, f"{count} are ready")
