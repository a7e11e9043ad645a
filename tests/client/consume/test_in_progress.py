"""An application that says that it still works on a message, against a scripted peer."""

import asyncio

import pytest

from partq import Cause, FencedError, RewoundError, UnavailableError
from partq.wire import frames
from tests.client.member import LEASE_MS, WAIT_S, Member, assigned, deliver

TOKEN = (5, 9)


@pytest.fixture
async def member(peer):
    member = Member(peer)
    async with asyncio.timeout(WAIT_S), member.consumer:
        yield member


async def open_flow(peer, stored_batch, *, takes_in_progress=True):
    flow = await peer.raw_flow()
    await flow.send(frames.Bound("broker-0", 1, LEASE_MS, takes_in_progress=takes_in_progress))
    await flow.send(assigned())
    await flow.send(deliver(0, 3), payload=stored_batch(b"a", b"b", b"c"))
    return flow


async def test_a_message_and_a_batch_are_named_under_their_token(peer, member, stored_batch):
    flow = await open_flow(peer, stored_batch)
    message = await member.next()
    calling = asyncio.create_task(member.consumer.in_progress(message))
    frame = await flow.next(frames.InProgress)
    assert frame == frames.InProgress(frame.request, 1, 0, *TOKEN, 0, [(0, 1)])
    assert not calling.done(), "it waits for the answer"
    await flow.send(frames.AckConfirmed(frame.request))
    await calling
    batch = await anext(member.consumer.batches())
    calling = asyncio.create_task(member.consumer.in_progress(batch))
    frame = await flow.next(frames.InProgress)
    assert frame.ranges == [(1, 3)]
    await flow.send(frames.AckRefused(frame.request, "rewound", "taken back"))
    with pytest.raises(RewoundError, match="taken back"):
        await calling
    stats = member.consumer.stats()
    assert (stats.acked, stats.nacked, stats.refused, stats.in_hand) == (0, 0, 0, 3)


async def test_after_the_partition_was_lost_it_only_tells(peer, member, stored_batch):
    flow = await open_flow(peer, stored_batch)
    message = await member.next()
    await flow.send(frames.Revoked(1, 0, *TOKEN, Cause.FORCED_COMMIT))
    await member.has_been_told(2)
    with pytest.raises(FencedError):
        await member.consumer.in_progress(message)
    assert flow.is_quiet()


async def test_a_lost_connection_is_told(peer, member, stored_batch):
    flow = await open_flow(peer, stored_batch)
    message = await member.next()
    calling = asyncio.create_task(member.consumer.in_progress(message))
    await flow.next(frames.InProgress)
    await flow.drop()
    with pytest.raises(FencedError, match="connection was lost"):
        await calling


async def test_an_earlier_broker_is_asked_nothing(peer, member, stored_batch):
    """It would end the connection at a frame that it does not know."""
    flow = await open_flow(peer, stored_batch, takes_in_progress=False)
    message = await member.next()
    with pytest.raises(UnavailableError, match="earlier version"):
        await member.consumer.in_progress(message)
    await member.consumer.ack(message)
    await flow.send(frames.AckConfirmed((await flow.next(frames.Ack)).request))


async def test_only_what_was_handed_out_can_be_in_progress(peer, member, stored_batch):
    await open_flow(peer, stored_batch)
    batch = await anext(member.consumer.batches())
    with pytest.raises(TypeError, match="in_progress: got Message"):
        await member.consumer.in_progress(batch[0])
