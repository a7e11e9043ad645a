"""What a consumer says of itself: its counts add up, on every way that a message can take."""

import asyncio

import pytest

from partq import Cause, Consumer, Message, Producer
from partq.client import consumer_stats
from partq.client.consumer_stats import Tally
from partq.testing import eventually
from partq.wire import frames
from tests.client.member import WAIT_S, Member, assigned, bound, deliver

FIVE = [b"a", b"b", b"c", b"d", b"e"]


class Now:
    """A clock that a test sets."""

    s = 100.0

    def __call__(self):
        return self.s


def shown(tally):
    return tally.snapshot(buffered=0, in_hand=0)


def test_rates_are_those_of_the_last_minute():
    now = Now()
    tally = Tally(now)
    assert shown(tally).received_per_s == 0.0
    for _ in range(120):
        tally.received(5, 50, Cause.NONE)
        tally.acked(3, now())
        now.s += 0.25
    stats = shown(tally)
    assert (stats.received, stats.received_bytes, stats.acked) == (600, 6000, 360)
    assert stats.received_per_s == pytest.approx(20.0), "30 s since it was made"
    assert stats.received_bytes_per_s == pytest.approx(200.0)
    assert stats.acked_per_s == pytest.approx(12.0)
    now.s += 50
    tally.received(60, 600, Cause.NONE)
    # Of the first 30 s, what was counted in the last 10 of them.
    assert shown(tally).received_per_s == pytest.approx((10 * 20 + 60) / 60, rel=0.1)
    now.s += 61
    assert shown(tally).received_per_s == 0.0


def test_its_memory_is_bounded():
    now = Now()
    tally = Tally(now)
    for _ in range(5000):
        now.s += 0.5
        tally.received(1, 1, Cause.NACK)
        tally.acked(1, now() - 0.5)
    assert len(tally._samples) <= consumer_stats.RATE_WINDOW_S / consumer_stats.SAMPLE_S + 1
    assert len(tally._ack_times) == consumer_stats.MAX_ACK_TIMES


@pytest.mark.parametrize(
    ("times", "p50", "p99"),
    [([], None, None), ([3], 3, 3), ([2, 1], 1, 2), (range(1, 201), 100, 198)],
)
def test_percentiles(times, p50, p99):
    now = Now()
    tally = Tally(now)
    for time in times:
        tally.acked(1, now() - time)
    stats = shown(tally)
    assert (stats.ack_p50_s, stats.ack_p99_s) == (p50, p99)


async def settled(member, **fields):
    """Wait for some of its fields; return them all, which always add up."""

    def fits():
        stats = member.consumer.stats()
        whole = stats.handed_out + stats.returned + stats.undecodable + stats.buffered
        assert stats.received == whole, stats
        return stats if {name: getattr(stats, name) for name in fields} == fields else None

    return await eventually(fits, f"its stats say {fields}")


async def test_each_message_is_counted_where_it_is(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, *FIVE)
    stats = await settled(member, received=5, buffered=5, handed_out=0, in_hand=0)
    assert stats.received_bytes == len(stored_batch(*FIVE))
    first, second, third = [await member.next() for _ in range(3)]
    await settled(member, buffered=2, handed_out=3, in_hand=3, acked=0)
    member.consumer.ack_nowait(third)
    ack = await flow.next(frames.Ack)
    await settled(member, in_hand=2, acked=0)  # it is not stored yet
    await flow.send(frames.AckConfirmed(ack.request))
    stats = await settled(member, in_hand=2, acked=1)
    assert stats.ack_p50_s > 0
    # A cumulative ack finishes what no other one had.
    await member.consumer.ack_cumulative(third)
    await flow.send(frames.AckConfirmed((await flow.next(frames.Ack)).request))
    await settled(member, in_hand=0, acked=3, refused=0)
    member.consumer.ack_nowait(first)
    member.consumer.ack_nowait(second)
    await flow.send(frames.AckRefused((await flow.next(frames.Ack)).request, "fenced", "over"))
    await settled(member, acked=3, refused=0)  # they were acknowledged before
    # A handoff: what was not taken goes back.
    await flow.send(frames.Paused(1, 0, 5, 9))
    await flow.next(frames.Release)
    await settled(member, buffered=0, returned=2, handed_out=3)


async def test_nacks_and_redeliveries_are_counted(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a", b"b")
    message = await member.next()
    nacking = asyncio.create_task(member.consumer.nack(message))
    nack = await flow.next(frames.Nack)
    await settled(member, in_hand=0, nacked=0)
    await flow.send(frames.Rewound(1, 0, 5, 9, 1, 0, Cause.NACK), frames.AckConfirmed(nack.request))
    async with asyncio.timeout(WAIT_S):
        await nacking
    await settled(member, nacked=1, returned=1, buffered=0)
    again = deliver(0, 2, delivery=1, cause=Cause.NACK)
    await flow.send(again, payload=stored_batch(b"a", b"b"))
    stats = await settled(member, received=4, buffered=2)
    assert stats.redelivered == {Cause.NACK: 2}
    await member.next()
    await settled(member, in_hand=1)
    # The connection is lost, and with it everything that it had brought.
    await flow.drop()
    await settled(member, buffered=0, in_hand=0, returned=2)
    second = await peer.flow()
    await second.send(assigned((5, 10)))
    await second.send(
        deliver(0, 2, (5, 10), cause=Cause.FLOW_LOST), payload=stored_batch(b"a", b"b")
    )
    stats = await settled(member, received=6, buffered=2)
    assert stats.redelivered == {Cause.FLOW_LOST: 2, Cause.NACK: 2}


async def test_what_cannot_be_decoded_is_counted(peer, member):
    flow = await bound(peer, None)
    await flow.send(deliver(0, 3), payload=b"no batch")
    waiting = asyncio.create_task(anext(member.consumer))
    nack = await flow.next(frames.Nack)
    await settled(member, received=3, undecodable=3, handed_out=0)
    await flow.send(frames.AckConfirmed(nack.request))
    await settled(member, nacked=3)
    waiting.cancel()


async def test_acks_without_an_answer_are_counted_as_refused(peer, stored_batch):
    member = Member(peer)
    async with member.consumer:
        flow = await bound(peer, stored_batch, b"a", b"b")
        member.consumer.ack_nowait(await member.next())
        await flow.next(frames.Ack)
        await flow.drop()
        await settled(member, refused=1, acked=0)
    await settled(member, buffered=0, in_hand=0)  # also when it is closed


async def test_with_brokers_everything_adds_up(brokers):
    token = brokers.tokens.produce
    async with Producer(brokers.url, queue="orders", token=token) as producer:
        await (await producer.send_many([Message(f"k{n}", b"v" * 100) for n in range(500)]))
    given = {"queue": "orders", "group": "workers", "token": brokers.tokens.consume}
    async with Consumer(brokers.url, **given) as consumer:
        count = 0
        async with asyncio.timeout(WAIT_S):
            async for batch in consumer.batches():
                count += len(batch)
                consumer.ack_nowait(batch)
                if count == 500:
                    break
            await consumer.flush()
        stats = consumer.stats()
    assert (stats.received, stats.handed_out, stats.acked, stats.in_hand) == (500, 500, 500, 0)
    assert stats.received_bytes > 0
    assert 0 < stats.ack_p50_s <= stats.ack_p99_s
    assert stats.acked_per_s > 0
