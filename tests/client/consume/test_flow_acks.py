"""Acks that nobody waits for one by one: bounded, told when refused, and no flush each."""

import asyncio

import pytest

from partq import Consumer, FencedError, Message, NotDeliveredError, Producer
from partq.client.consume import confirmations
from partq.client.consume.assignment.sequential_partition import SequentialPartition
from partq.client.consume.flow_acks import AckBook
from partq.client.consumer_stats import Tally
from partq.testing.local_broker import LocalBroker
from partq.wire import frames
from tests.client.member import WAIT_S, Member, bound


async def refuse(flow, code="fenced"):
    ack = await flow.next(frames.Ack)
    await flow.send(frames.AckRefused(ack.request, code, "epoch 9 has ended"))


async def told(member):
    async with asyncio.timeout(WAIT_S):
        await member.consumer._acks.wait()


async def test_an_ack_returns_when_it_is_on_its_way(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a", b"b", b"c")
    async with asyncio.timeout(WAIT_S):
        for _ in range(3):
            await member.consumer.ack(await member.next())  # nobody answers
        end = 0
        while end < 3:
            ack = await flow.next(frames.Ack)
            assert ack.ranges[0][0] == end
            end = ack.ranges[-1][1]
            await flow.send(frames.AckConfirmed(ack.request))
        await member.consumer.flush()


async def test_a_refusal_is_raised_by_the_next_ack_which_is_given_all_the_same(
    peer, member, stored_batch
):
    flow = await bound(peer, stored_batch, b"a", b"b")
    await member.consumer.ack(await member.next())
    await refuse(flow)
    await told(member)
    with pytest.raises(FencedError, match="1 earlier ack was refused"):
        await member.consumer.ack(await member.next())
    ack = await flow.next(frames.Ack)
    assert ack.ranges == [(1, 2)]
    await flow.send(frames.AckConfirmed(ack.request))


async def test_a_refusal_is_raised_by_flush_and_once(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a")
    await member.consumer.ack(await member.next())
    await refuse(flow, NotDeliveredError.code)
    with pytest.raises(NotDeliveredError):
        await member.consumer.flush()
    await member.consumer.flush()


async def test_a_refusal_that_no_call_has_told_is_raised_on_leaving(peer, stored_batch):
    consumer = await Member(peer).consumer.__aenter__()
    async with asyncio.timeout(WAIT_S):
        flow = await bound(peer, stored_batch, b"a")
        await consumer.ack(await anext(consumer))
        await refuse(flow)
        with pytest.raises(FencedError, match="earlier ack was refused"):
            await consumer.close()
        await consumer.close()


async def test_a_refusal_does_not_mask_what_leaves_the_block(peer, stored_batch):
    async def main():
        async with Member(peer).consumer as consumer:
            flow = await bound(peer, stored_batch, b"a")
            await consumer.ack(await anext(consumer))
            await refuse(flow)
            raise ValueError("mine")

    async with asyncio.timeout(WAIT_S):
        with pytest.raises(ValueError, match="mine"):
            await main()


async def test_ack_nowait_leaves_it_to_flush(peer, stored_batch):
    async with asyncio.timeout(WAIT_S), Member(peer).consumer as consumer:
        flow = await bound(peer, stored_batch, b"a", b"b")
        consumer.ack_nowait(await anext(consumer))
        await refuse(flow)
        await consumer._quiet_acks.wait()
        await consumer.ack(await anext(consumer))  # says nothing of it
        ack = await flow.next(frames.Ack)
        await flow.send(frames.AckConfirmed(ack.request))
        with pytest.raises(FencedError, match="1 earlier ack was refused"):
            await consumer.flush()
        await consumer.flush()


async def test_leaving_says_nothing_of_an_ack_nowait_that_was_refused(peer, stored_batch):
    async with asyncio.timeout(WAIT_S), Member(peer).consumer as consumer:
        flow = await bound(peer, stored_batch, b"a")
        consumer.ack_nowait(await anext(consumer))
        await refuse(flow)
        await consumer._quiet_acks.wait()


async def test_acks_that_were_not_sent_yet_fail_with_the_connection(partition):
    """Also those that wait for the end of their turn of the event loop: nobody will answer them."""
    sent = []
    book = AckBook(lambda frame: sent.append(frame) or True, Tally(lambda: 0.0))
    assigned = SequentialPartition(None, partition, (5, 9), 0)
    under_way = book.add(assigned, 0, -1, [(0, 1)])
    book.send_all()
    gathered = book.add(assigned, 0, -1, [(1, 2)])
    book.lost("http://h:1")
    for future in (under_way, gathered):
        with pytest.raises(FencedError, match="the connection was lost before"):
            future.result()
    book.send_all()
    assert [frame.ranges for frame in sent] == [[(0, 1)]], "and none of them is sent later"


async def test_an_ack_of_a_token_that_has_ended_is_refused_at_once(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a")
    message = await member.next()
    await flow.send(frames.Revoked(1, 0, 5, 9, 1))
    await member.has_been_told(2)
    with pytest.raises(FencedError, match="stop working"):
        await member.consumer.ack(message)


async def test_so_many_acks_wait_for_an_answer_and_no_more(peer, stored_batch, monkeypatch):
    monkeypatch.setattr(confirmations, "MAX_OPEN", 2)
    member = Member(peer)
    async with asyncio.timeout(WAIT_S), member.consumer as consumer:
        flow = await bound(peer, stored_batch, b"a", b"b")
        await consumer.ack(await member.next())
        waiting = asyncio.create_task(consumer.ack(await member.next()))
        first = await flow.next(frames.Ack)
        ended = first.ranges[-1][1]
        second = first if ended == 2 else await flow.next(frames.Ack)
        assert not waiting.done()
        for request in {first.request, second.request}:
            await flow.send(frames.AckConfirmed(request))
        await waiting


@pytest.mark.parametrize("call", ["ack", "ack_cumulative", "ack_nowait", "nack"])
@pytest.mark.parametrize("wrong", [None, 17, [], Message("k", b"v")], ids=repr)
async def test_what_was_not_handed_out_is_a_type_error(peer, member, call, wrong):
    async def give():
        answer = getattr(member.consumer, call)(wrong)
        await answer

    with pytest.raises(TypeError, match=f"{call}: got {type(wrong).__name__}, expected a message"):
        await give()


async def test_a_message_of_a_batch_is_told_how_to_be_acknowledged(peer, member, stored_batch):
    await bound(peer, stored_batch, b"a")
    async for batch in member.consumer.batches():
        with pytest.raises(TypeError, match=r"batch\.deliveries\(\)"):
            await member.consumer.ack(batch[0])
        break


async def test_a_loop_that_waits_for_nothing_lets_the_event_loop_go_on(peer, member, stored_batch):
    """Else no ack would leave and no ping, as long as messages are ready."""
    await bound(peer, stored_batch, *[b"x"] * 200)
    await member.next()
    is_seen = asyncio.Event()
    asyncio.get_running_loop().call_soon(is_seen.set)
    member.consumer._turn_ends_at = 0.0  # the time is up
    member.consumer.ack_nowait(await member.next())
    assert is_seen.is_set()


COUNT = 2000


async def test_the_loop_that_people_write_costs_no_flush_for_each_message(monkeypatch):
    """Counted, not timed: how many frames the acks of 2,000 messages need."""
    sent = []
    send = AckBook._send_one
    monkeypatch.setattr(AckBook, "_send_one", lambda *given: sent.append(1) or send(*given))
    async with LocalBroker(partitions=1) as local, asyncio.timeout(60):
        token = local.tokens
        async with Producer(local.url, queue="orders", token=token.produce) as producer:
            await producer.send_many(Message("k", b"x") for _ in range(COUNT))
        async with Consumer(
            local.url, queue="orders", group="workers", token=token.consume
        ) as consumer:
            for _ in range(COUNT):
                await consumer.ack(await anext(consumer))
            await consumer.flush()
    assert len(sent) < COUNT / 10
