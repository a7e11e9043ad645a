"""A consumer that pauses partitions, against a scripted peer: what it sends and hands out."""

import asyncio
from contextlib import suppress

import pytest

from partq import Cause, FencedError, PartitionId, PartitionKey, QueuesConsumer, UnavailableError
from partq.client.transport.options import ConnectionOptions
from partq.testing import eventually
from partq.wire import batch, frames
from tests.client.member import LEASE_MS, P0, P1, WAIT_S, Member, assigned, deliver

TOKEN = (5, 9)
ON, OFF = frames.Withhold(1, 0, *TOKEN, is_on=True), frames.Withhold(1, 0, *TOKEN, is_on=False)


@pytest.fixture
async def member(peer):
    member = Member(peer)
    async with asyncio.timeout(WAIT_S), member.consumer:
        yield member


async def open_flow(peer, stored_batch, *, takes_withholds=True):
    """Bind a flow that holds both partitions, and has delivered three messages of the first."""
    flow = await peer.raw_flow()
    options = {"takes_withholds": takes_withholds, "takes_seeks": True}
    await flow.send(frames.Bound("broker-0", 1, LEASE_MS, **options))
    await flow.send(assigned(), assigned(partition=1))
    await flow.send(deliver(0, 3), payload=stored_batch(b"a", b"b", b"c"))
    return flow


async def test_what_has_not_begun_is_given_back_and_the_others_go_on(peer, member, stored_batch):
    flow = await open_flow(peer, stored_batch)
    first = await member.next()
    member.consumer.pause([P0])
    assert member.consumer.paused() == {P0}
    assert member.consumer.partitions == {P0, P1}
    assert await flow.next() == ON
    release = await flow.next(frames.Release)
    assert (release.partition, release.start) == (0, 1)
    await flow.send(deliver(3, 4), payload=stored_batch(b"on its way"))
    await flow.send(deliver(0, 1, partition=1), payload=stored_batch(b"other"))
    assert (await member.next()).value == b"other"

    acking = asyncio.create_task(member.consumer.ack(first, confirmed=True))
    await flow.send(frames.AckConfirmed((await flow.next(frames.Ack)).request))
    await acking
    member.consumer.resume([P0])
    assert member.consumer.paused() == set()
    assert await flow.next() == OFF
    await flow.send(deliver(1, 3, delivery=1), payload=stored_batch(b"b", b"c"))
    message = await member.next()
    assert (message.value, message.cause) == (b"b", Cause.NONE)


async def test_what_comes_while_nothing_was_to_be_given_back_is_given_back(
    peer, member, stored_batch
):
    flow = await open_flow(peer, stored_batch)
    for _ in range(3):
        await member.next()
    member.consumer.pause([P0])
    assert await flow.next() == ON
    await flow.send(deliver(3, 5), payload=stored_batch(b"d", b"e"))
    assert (await flow.next(frames.Release)).start == 3
    assert flow.is_quiet()


async def test_an_earlier_broker_is_told_nothing_and_what_came_is_kept(peer, member, stored_batch):
    """It would end the connection at a frame that it does not know."""
    flow = await open_flow(peer, stored_batch, takes_withholds=False)
    await member.next()
    member.consumer.pause([P0])
    await flow.send(deliver(3, 4), payload=stored_batch(b"d"))
    await flow.send(deliver(0, 1, partition=1), payload=stored_batch(b"other"))
    assert (await member.next()).value == b"other"
    member.consumer.resume([P0])
    assert [(await member.next()).value for _ in range(3)] == [b"b", b"c", b"d"]
    assert flow.is_quiet()


async def test_a_handoff_waits_for_nothing_that_was_kept(peer, member, stored_batch):
    flow = await open_flow(peer, stored_batch, takes_withholds=False)
    await member.has_been_told(2)
    await eventually(lambda: member.consumer.stats().buffered == 3, "they are ready")
    member.consumer.pause([P0])
    await flow.send(frames.Paused(1, 0, *TOKEN))
    assert (await flow.next(frames.Release)).start == 0


async def test_a_pause_ends_with_the_partition(peer, member, stored_batch):
    flow = await open_flow(peer, stored_batch)
    await member.has_been_told(2)
    member.consumer.pause([P0, P1])
    await flow.send(frames.Revoked(1, 0, *TOKEN, Cause.RELEASED))
    await member.has_been_told(3)
    assert member.consumer.paused() == {P1}
    again = (5, 12)
    await flow.send(assigned(again))
    await flow.send(deliver(0, 1, again), payload=stored_batch(b"a"))
    assert (await member.next()).value == b"a"


async def test_a_seek_keeps_it(peer, member, stored_batch):
    flow = await open_flow(peer, stored_batch)
    await member.has_been_told(2)
    member.consumer.pause([P0])
    assert await flow.next(frames.Withhold) == ON
    await flow.next(frames.Release)
    seeking = asyncio.create_task(member.consumer.seek({P0: 0}))
    await flow.next(frames.Seek)
    new = (5, 12)
    await flow.send(frames.Revoked(1, 0, *TOKEN, Cause.RESET))

    def has_no_position():
        with suppress(UnavailableError):
            return member.consumer.position(P0) is None
        return P0 in member.consumer.partitions

    await eventually(has_no_position, "the position is unknown until the seek has returned")
    await flow.send(assigned(new), frames.Sought(1, 0))
    await seeking
    assert member.consumer.paused() == {P0}
    assert await flow.next(frames.Withhold) == frames.Withhold(1, 0, *new, is_on=True)


async def test_it_may_be_repeated(peer, member, stored_batch):
    flow = await open_flow(peer, stored_batch)
    first = await member.next()
    member.consumer.pause([P0])
    member.consumer.pause([P0, P1])
    member.consumer.resume([P0])
    member.consumer.resume([P0, P1, PartitionId(1, 7)])
    assert member.consumer.paused() == set()
    await flow.send(deliver(1, 3, delivery=1), payload=stored_batch(b"b", b"c"))
    assert (await member.next()).value == b"b"
    assert first.value == b"a"


async def test_what_a_list_has_taken_stays_and_keeps_no_other_partition_back(
    peer, member, stored_batch, monkeypatch
):
    monkeypatch.setattr("partq.client.message_iterator.MAX_GATHERED", 3)
    flow = await open_flow(peer, stored_batch)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await member.consumer.getmany(4, timeout_s=WAIT_S)
    member.consumer.pause([P0])
    other = batch.encode(batch.encode_messages([batch.Message("of P1", b"other")]), [0])
    await flow.send(deliver(0, 1, partition=1), payload=other)
    messages = await member.consumer.getmany(1, timeout_s=WAIT_S)
    assert [each.value for each in messages] == [b"other"]
    member.consumer.resume([P0])
    messages = await member.consumer.getmany(3, timeout_s=WAIT_S)
    assert [each.value for each in messages] == [b"a", b"b", b"c"]


async def test_what_cannot_be_paused_is_named_and_nothing_is(peer, member, stored_batch):
    flow = await open_flow(peer, stored_batch)
    await member.next()
    with pytest.raises(FencedError, match=r"pause: got 1\.7, expected partitions that this"):
        member.consumer.pause([P0, PartitionId(1, 7)])
    with pytest.raises(TypeError, match="expected a collection of PartitionId"):
        member.consumer.pause(P0)
    with pytest.raises(TypeError, match=r"got '1\.0' among the partitions"):
        member.consumer.resume(["1.0"])
    assert member.consumer.paused() == set()
    assert flow.is_quiet()


async def test_a_consumer_that_is_not_open_is_refused(peer):
    with pytest.raises(RuntimeError, match="not open"):
        Member(peer).consumer.pause([])


async def test_partitions_of_several_queues_are_paused_by_their_keys(
    peer, other_peer, stored_batch
):
    def find():
        return [ConnectionOptions(peer.url, "a"), ConnectionOptions(other_peer.url, "b")]

    consumer = QueuesConsumer(
        find=find, group="workers", queues=["a", "b"], handle_signals=False, max_processing_s=0,
        leave_timeout_s=0,
    )  # fmt: skip
    async with asyncio.timeout(WAIT_S), consumer:
        flow = await open_flow(peer, stored_batch)
        await open_flow(other_peer, stored_batch)
        await eventually(lambda: len(consumer.partitions) == 4, "all are assigned")
        key = PartitionKey("a", P0)
        consumer.pause([key])
        assert consumer.paused() == {key}
        assert await flow.next(frames.Withhold) == ON
        await flow.next(frames.Release)
        assert {(await anext(consumer)).queue for _ in range(3)} == {"b"}
        with pytest.raises(FencedError, match=r"pause: got c:1\.0"):
            consumer.pause([PartitionKey("c", P0)])
        consumer.resume([key, PartitionKey("c", P0)])
        assert consumer.paused() == set()
        assert await flow.next(frames.Withhold) == OFF
