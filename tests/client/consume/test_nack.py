"""What a consumer does with messages that it gives back, against frames that a test writes."""

import asyncio

import pytest

from partq import Cause, Consumer, FencedError, Message, Producer, UndecodableError
from partq.client.consume.acknowledger import MAX_NACK_DELAY_S
from partq.errors import BadRequestError, ConflictError
from partq.testing.local_broker import LocalBroker
from partq.wire import frames
from tests.client.member import WAIT_S, Member, assigned, bound, deliver

TOKEN = (5, 9)


def rewound(start, delivery, cause=Cause.NACK):
    return frames.Rewound(1, 0, *TOKEN, delivery, start, cause)


async def finish(work):
    async with asyncio.timeout(WAIT_S):
        return await work


async def test_what_is_behind_a_nacked_message_is_not_handed_out_before_it(
    peer, member, stored_batch
):
    """Not even while the broker has not answered: the other partitions continue."""
    flow = await bound(peer, stored_batch, b"a", b"b", b"c")
    message = await member.next()
    nacking = asyncio.create_task(member.consumer.nack(message, delay_s=1.5))
    nack = await flow.next(frames.Nack)
    assert (nack.broker_epoch, nack.epoch, nack.delivery) == (5, 9, 0)
    assert (nack.ranges, nack.delay_ms, nack.reason) == ([(0, 1)], 1500, "")
    assert nack.begun == 1, "b and c are only ready"
    await flow.send(assigned(partition=1))
    await flow.send(deliver(0, 1, partition=1), payload=stored_batch(b"other"))
    assert (await member.next()).value == b"other"
    assert not nacking.done()

    await flow.send(rewound(0, 1), frames.AckConfirmed(nack.request))
    await finish(nacking)
    again = deliver(0, 3, delivery=1, cause=Cause.NACK)
    await flow.send(again, payload=stored_batch(b"a", b"b", b"c"))
    message = await member.next()
    assert (message.value, message.cause, message.is_redelivered) == (b"a", Cause.NACK, True)
    assert (await member.next()).value == b"b"


async def test_in_free_order_what_is_behind_goes_on_after_the_answer(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a", b"b", b"c")
    nacking = asyncio.create_task(member.consumer.nack(await member.next()))
    nack = await flow.next(frames.Nack)
    assert nack.delay_ms == -1, "as the group says"
    await flow.send(frames.AckConfirmed(nack.request))
    await finish(nacking)
    assert (await member.next()).value == b"b"
    again = frames.Deliver(1, 0, *TOKEN, 0, 5, 0, 0, 0, 1, Cause.NACK, [], [(0, 1)])
    await flow.send(again, payload=stored_batch(b"a", b"b", b"c"))
    assert (await member.next()).value == b"c"
    message = await member.next()
    assert (message.offset, message.cause, message.redeliveries) == (0, Cause.NACK, 1)


async def test_a_cumulative_ack_names_what_came_out_of_turn_once_it_is_handed_out(
    peer, member, stored_batch
):
    """For its broker that may still be on its way, so what is below does not speak of it."""
    batch = stored_batch(b"a", b"b", b"c")
    flow = await bound(peer, stored_batch, b"a", b"b", b"c")
    a, b = await member.next(), await member.next()
    nacking = asyncio.create_task(member.consumer.nack(a))
    nack = await flow.next(frames.Nack)
    again = frames.Deliver(1, 0, *TOKEN, 0, 5, 0, 0, 0, 1, Cause.NACK, [], [(0, 1)])
    await flow.send(frames.AckConfirmed(nack.request), again, payload=batch)
    await finish(nacking)
    await member.consumer.ack_cumulative(b)
    early = await flow.next(frames.Ack)
    assert (early.upto, early.ranges) == (2, [])
    c = await member.next()
    assert (await member.next()).offset == 0
    await member.consumer.ack_cumulative(c)
    late = await flow.next(frames.Ack)
    assert (late.upto, late.ranges) == (3, [(0, 1)])
    await flow.send(frames.AckConfirmed(early.request), frames.AckConfirmed(late.request))
    await finish(member.consumer.flush())


async def test_acks_that_were_given_before_go_first(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a", b"b")
    first, second = await member.next(), await member.next()
    member.consumer.ack_nowait(first)
    nacking = asyncio.create_task(member.consumer.nack(second))
    assert (await flow.next()).ranges == [(0, 1)]
    nack = await flow.next(frames.Nack)
    await flow.send(frames.AckRefused(nack.request, "fenced", "gone"))
    with pytest.raises(FencedError):
        await finish(nacking)


async def test_auto_ack_leaves_out_what_was_given_back(peer, stored_batch):
    member = Member(peer, auto_ack=True)
    async with member.consumer:
        flow = await bound(peer, stored_batch, b"a", b"b")
        nacking = asyncio.create_task(member.consumer.nack(await member.next()))
        nack = await flow.next(frames.Nack)
        await flow.send(frames.AckConfirmed(nack.request))
        await finish(nacking)
        await member.next()
        asking = asyncio.create_task(member.next())
        assert (await flow.next(frames.Ack)).ranges == [(1, 2)]
        asking.cancel()


async def test_an_ack_of_a_batch_leaves_out_what_was_given_back(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a", b"b", b"c")
    async with asyncio.timeout(WAIT_S):
        batch = await anext(member.consumer.batches())
    nacking = asyncio.create_task(member.consumer.nack(batch.deliveries()[1]))
    nack = await flow.next(frames.Nack)
    assert nack.ranges == [(1, 2)]
    member.consumer.ack_nowait(batch)
    assert (await flow.next(frames.Ack)).ranges == [(0, 1), (2, 3)]
    nacking.cancel()
    nacking = asyncio.create_task(member.consumer.nack(batch))
    assert (await flow.next(frames.Nack)).ranges == [(0, 3)]
    nacking.cancel()


async def test_an_ack_of_a_batch_that_was_given_back_sends_nothing(peer, member, stored_batch):
    """Nothing is left to acknowledge: a broker would refuse a frame that says nothing."""
    flow = await bound(peer, stored_batch, b"a", b"b")
    async with asyncio.timeout(WAIT_S):
        batch = await anext(member.consumer.batches())
        nacking = asyncio.create_task(member.consumer.nack(batch))
        nack = await flow.next(frames.Nack)
        await flow.send(frames.AckConfirmed(nack.request))
        await nacking
        await member.consumer.ack(batch, confirmed=True)
    assert flow.is_quiet()


@pytest.mark.parametrize("delay_s", [-0.1, MAX_NACK_DELAY_S + 1])
async def test_a_delay_out_of_range_is_refused_and_nothing_is_sent(
    peer, member, stored_batch, delay_s
):
    flow = await bound(peer, stored_batch, b"a")
    with pytest.raises(BadRequestError, match="expected 0 to 86400"):
        await member.consumer.nack(await member.next(), delay_s=delay_s)
    assert flow.is_quiet()


async def test_a_batch_that_cannot_be_read_is_given_back(peer, member, stored_batch):
    """The partition continues with what the broker sends then, if the client can read it, too."""
    flow = await peer.flow()
    await flow.send(assigned())
    await flow.send(deliver(0, 2), payload=stored_batch(b"a", b"b")[:-1] + b"\xc1")
    await flow.send(deliver(2, 3), payload=stored_batch(b"behind"))
    asking = asyncio.create_task(member.next())
    nack = await flow.next(frames.Nack)
    assert (nack.ranges, nack.delay_ms, nack.reason) == ([(0, 2)], -1, "undecodable")
    await flow.send(rewound(0, 1), frames.AckConfirmed(nack.request))
    again = deliver(0, 2, delivery=1, cause=Cause.NACK)
    await flow.send(again, payload=stored_batch(b"a", b"b"))
    assert (await finish(asking)).value == b"a"
    [error] = member.errors
    assert isinstance(error, UndecodableError)
    assert "from offset 0 to 1" in str(error)


async def test_a_broker_that_wants_to_know_is_told_what_has_begun(peer, member, stored_batch):
    flow = await peer.raw_flow()
    await flow.send(frames.Bound("broker-0", 1, 3000, takes_begun=True), assigned())
    await flow.send(deliver(0, 3), payload=stored_batch(b"a", b"b", b"c"))
    await member.next()
    await member.next()
    begun = await flow.next(frames.Begun)
    assert (begun.broker_epoch, begun.epoch, begun.delivery) == (5, 9, 0)
    assert begun.ranges == [(0, 2)]


# ---- what has not begun is kept ----


async def nacked(peer, member, stored_batch):
    """Give back a of a, b, c, d, which came in two batches; return the flow and the second one."""
    batches = stored_batch(b"a", b"b"), stored_batch(b"c", b"d")
    flow = await peer.flow()
    await flow.send(assigned())
    for start, payload in zip((0, 2), batches, strict=True):
        await flow.send(deliver(start, start + 2), payload=payload)
    nacking = asyncio.create_task(member.consumer.nack(await member.next()))
    nack = await flow.next(frames.Nack)
    assert (nack.begun, nack.keeps) == (1, True)
    await flow.send(rewound(0, 1), frames.AckConfirmed(nack.request))
    await finish(nacking)
    again = frames.Deliver(1, 0, *TOKEN, 1, 5, 0, 0, 0, 1, Cause.NACK, [], [(0, 1)])
    await flow.send(again, payload=batches[0])
    return flow, batches


def without_bytes(start, stop, payload, *, first, delivery=1):
    return frames.Deliver(
        1, 0, *TOKEN, delivery, 5, 0, first, start, stop, 0, [], [], kept_bytes=len(payload)
    )


async def test_what_was_kept_is_handed_out_when_its_turn_comes_again(peer, member, stored_batch):
    """Also in more parts than it came in, and more than once."""
    flow, (first, second) = await nacked(peer, member, stored_batch)
    await flow.send(without_bytes(1, 2, first, first=0))
    await flow.send(without_bytes(2, 3, second, first=2))
    assert [(await member.next()).value for _ in range(3)] == [b"a", b"b", b"c"]
    await flow.send(without_bytes(3, 4, second, first=2))
    nacking = asyncio.create_task(member.consumer.nack(message := await member.next()))
    assert (message.value, message.cause) == (b"d", Cause.NONE)
    nack = await flow.next(frames.Nack)
    await flow.send(rewound(3, 2), frames.AckConfirmed(nack.request))
    await finish(nacking)


async def test_what_was_not_kept_is_released_and_comes_with_its_bytes(peer, stored_batch):
    """There was no room for it: nothing is handed out in its place."""
    payload = stored_batch(b"a", b"b")
    member = Member(peer, credit_bytes=len(payload))
    async with member.consumer:
        flow, (first, second) = await nacked(peer, member, stored_batch)
        await flow.send(without_bytes(1, 2, first, first=0))
        assert [(await member.next()).value for _ in range(2)] == [b"a", b"b"]
        await flow.send(without_bytes(2, 4, second, first=2))
        release = await flow.next(frames.Release)
        assert (release.delivery, release.start) == (1, 2)
        await flow.send(deliver(2, 4, delivery=2), payload=second)
        assert (await member.next()).value == b"c"


async def test_what_is_given_back_at_a_pause_is_not_kept(peer, member, stored_batch):
    flow, (first, second) = await nacked(peer, member, stored_batch)
    assert (await member.next()).value == b"a"
    await flow.send(without_bytes(1, 2, first, first=0), frames.Paused(1, 0, *TOKEN))
    assert (await flow.next(frames.Release)).start == 1
    (held,) = member.consumer._flows
    (assigned,) = held._assigned.values()
    assert assigned.kept_bytes == 0
    await flow.send(frames.Resumed(1, 0, *TOKEN))
    await flow.send(without_bytes(2, 4, second, first=2))  # it was on its way
    await flow.send(deliver(1, 2, delivery=2), payload=stored_batch(b"b"))
    assert (await member.next()).offset == 1


@pytest.mark.parametrize("is_nacked_first", [True, False])
async def test_what_is_given_back_and_acknowledged_is_acknowledged(is_nacked_first):
    """It does not come again, and what is behind it comes at once; a nack after the ack says so."""
    async with (
        asyncio.timeout(WAIT_S),
        LocalBroker(partitions=1) as local,
        Producer(local.url, queue="orders", token=local.tokens.produce) as producer,
        Consumer(
            local.url, queue="orders", group="workers", token=local.tokens.consume
        ) as consumer,
    ):
        await producer.send_many([Message("k", b"first"), Message("k", b"second")])
        await producer.flush()
        first = await anext(consumer)
        if is_nacked_first:
            await consumer.nack(first, delay_s=MAX_NACK_DELAY_S)
            await consumer.ack(first, confirmed=True)
        else:
            await consumer.ack(first)
            with pytest.raises(ConflictError, match=r"^nack: partition 1.0, .* was acknowledged"):
                await consumer.nack(first, delay_s=MAX_NACK_DELAY_S)
        second = await anext(consumer)
        assert (second.value, second.cause) == (b"second", Cause.NONE)
        await consumer.ack(second, confirmed=True)
