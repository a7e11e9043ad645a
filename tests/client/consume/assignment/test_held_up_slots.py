"""Until a nack is answered nothing of its slot is handed out, and everything else is."""

import asyncio

from partq import Cause
from partq.client.consume.assignment.keyed_partition import KeyedPartition
from partq.testing import eventually
from partq.wire import frames
from tests.client.consume.assignment.keyed_frames import (
    TOKEN,
    A,
    B,
    C,
    ask_back,
    bound,
    deliver,
    finish,
    frame_of,
    returned,
    stored,
    values,
)
from tests.client.member import P0, WAIT_S, Member


async def nacked(flow, member, message):
    """Give a message back; return the frame, and what waits for the answer."""
    nacking = asyncio.create_task(member.consumer.nack(message))
    return await frame_of(flow, frames.Nack), nacking


async def answer(flow, nack, nacking):
    await flow.send(frames.AckConfirmed(nack.request))
    await finish(nacking)


async def test_other_keys_go_on_before_the_answer(peer, member):
    """What is on its way meanwhile may be of the same key: it waits, and is given back."""
    flow = await bound(peer, "a", "b", "a")
    nack, nacking = await nacked(flow, member, await member.next())
    await flow.send(deliver(3, 6, first=3), payload=stored("a", "b", "c"))
    assert await values(member, 3) == ["b1", "b1", "c2"]
    await flow.send(ask_back(1, A))
    assert await returned(flow) == (1, [(2, 4)])
    await answer(flow, nack, nacking)
    await flow.send(deliver(6, 7, first=6), payload=stored("c"))
    assert await values(member, 1) == ["c0"]
    assert member.consumer.stats().in_hand == 4


async def test_a_nack_that_is_refused_lets_its_key_go_on_in_order(peer, member):
    """Nothing is asked back then."""
    flow = await bound(peer, "a", "a", "b", "a")
    nack, nacking = await nacked(flow, member, await member.next())
    await flow.send(deliver(4, 6, first=4), payload=stored("a", "b"))
    assert await values(member, 2) == ["b2", "b1"]
    assert member.consumer.position(P0) == 1
    await flow.send(frames.AckRefused(nack.request, "not_delivered", "no"))
    await asyncio.wait([nacking])
    assert nacking.exception() is not None
    await flow.send(deliver(6, 7, first=6), payload=stored("a"))
    messages = [await member.next() for _ in range(4)]
    assert [each.offset for each in messages] == [1, 3, 4, 6]


async def test_two_nacks_of_a_key_hold_it_up_until_both_are_answered(peer, member):
    flow = await bound(peer, "a", "a", "b", "a", "c")
    first, second = await member.next(), await member.next()
    nacks = [await nacked(flow, member, each) for each in (first, second)]
    await answer(flow, *nacks[0])
    assert await values(member, 2) == ["b2", "c4"]
    await answer(flow, *nacks[1])
    assert await values(member, 1) == ["a3"]


async def test_each_of_several_keys_waits_for_its_own_answer(peer, member):
    """The second one is given back when the batch has been looked at for the first."""
    flow = await bound(peer, "a", "b", "a", "c", "b", "c")
    nack_a = await nacked(flow, member, await member.next())
    nack_b = await nacked(flow, member, await member.next())
    assert await values(member, 2) == ["c3", "c5"]
    await answer(flow, *nack_b)
    assert await values(member, 1) == ["b4"]
    await answer(flow, *nack_a)
    assert await values(member, 1) == ["a2"]


async def test_a_key_keeps_its_order_when_its_partition_waits_too(peer):
    """What came later waits for a pause, and not behind what waited for the answer."""
    member = Member(peer)
    async with member.consumer:
        flow = await peer.raw_flow()
        old = frames.Bound("broker-0", 1, 60_000, takes_begun=True)  # it keeps paused messages
        await flow.send(old, frames.Assigned(1, 0, *TOKEN, 0, frames.KEYED))
        await flow.send(deliver(0, 3), payload=stored("a", "a", "b"))
        nack, nacking = await nacked(flow, member, await member.next())
        assert await values(member, 1) == ["b2"]
        member.consumer.pause([P0])
        await flow.send(deliver(3, 5, first=3), payload=stored("a", "b"))
        await eventually(lambda: member.consumer.stats().received == 5, "it has come")
        asking = asyncio.create_task(member.next())
        await answer(flow, nack, nacking)
        member.consumer.resume([P0])
        assert (await finish(asking)).offset == 1
        assert [(await member.next()).offset for _ in range(2)] == [3, 4]


async def test_batches_and_lists_leave_out_what_waits(peer, member):
    flow = await bound(peer, "a", "b", "a", "c")
    nack, nacking = await nacked(flow, member, await member.next())
    assert list((await finish(anext(member.consumer.batches()))).offsets) == [1, 3]
    await flow.send(deliver(4, 6, first=4), payload=stored("a", "b"))
    listed = await member.consumer.getmany(1, timeout_s=WAIT_S)
    assert [each.offset for each in listed] == [5]
    await answer(flow, nack, nacking)
    assert [each.offset for each in await member.consumer.getmany(9, timeout_s=0)] == [2, 4]


async def test_what_was_gathered_waits_too(peer, member):
    """A call that was cancelled has left messages that are taken and not handed out."""
    flow = await bound(peer, "a", "a", "b", "a")
    first = await member.next()
    call = asyncio.create_task(member.consumer.getmany(10, timeout_s=WAIT_S))
    await eventually(lambda: len(member.consumer._held) == 3, "the rest is gathered")
    call.cancel()
    await asyncio.wait([call])
    nack, nacking = await nacked(flow, member, first)
    assert await values(member, 1) == ["b2"]
    await answer(flow, nack, nacking)
    assert await values(member, 2) == ["a1", "a3"]


async def test_what_cannot_be_read_holds_up_its_partition(peer, member):
    """Its slots cannot be trusted."""
    flow = await bound(peer)
    await flow.send(deliver(0, 2), payload=b"no batch")
    asking = asyncio.create_task(member.next())
    nack = await frame_of(flow, frames.Nack)
    assert nack.reason == frames.UNDECODABLE
    await flow.send(deliver(2, 3, first=2), payload=stored("b"))
    await eventually(lambda: member.consumer.stats().received == 3, "it has come")
    assert not asking.done()
    await flow.send(frames.AckConfirmed(nack.request))
    await asyncio.wait([asking])


def test_the_room_of_a_batch_is_free_with_its_last_part():
    keyed = KeyedPartition(None, P0, TOKEN, 0)
    payload = stored("a", "b", "a", "c")
    window = keyed.accept(deliver(0, 4), payload)
    keyed.hold_up({A, C})
    keyed.hold_back(window)
    assert [each.key for each in window.take_all()] == ["b"]
    assert window.freed_bytes() == 0
    (c,) = keyed.let_go({C})
    assert ([each.key for each in c.take_all()], c.freed_bytes()) == (["c"], 0)
    returned_, freed = keyed.ask_back(ask_back(1, A))
    assert (returned_.ranges, freed.message_count) == ([(0, 1), (2, 3)], 2)
    assert freed.batch_bytes == len(payload)
    assert keyed.let_go({A})[0].is_done


def test_the_room_of_a_batch_is_free_once_when_all_of_it_waited():
    keyed = KeyedPartition(None, P0, TOKEN, 0)
    payload = stored("a", "b")
    window = keyed.accept(deliver(0, 2, causes=bytes([Cause.NONE, Cause.NACK])), payload)
    keyed.hold_up({A, B})
    keyed.hold_back(window)
    assert (window.is_done, window.freed_bytes(), keyed.buffered_count) == (True, 0, 2)
    a, b = keyed.let_go({A, B})
    if a.next_offset:
        a, b = b, a
    assert (a.take_one().cause, a.freed_bytes()) == (Cause.NONE, 0)
    assert (b.take_one().cause, b.freed_bytes()) == (Cause.NACK, len(payload))
