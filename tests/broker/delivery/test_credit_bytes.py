"""A consumer has room for so many bytes of batches, and gets no more."""

import asyncio

import pytest

from partq import Consumer
from partq.wire import frames

TEXT = "x" * 3900
WAIT_S = 60.0


async def bind(running, peers, credit_bytes, *, credit=1000):
    """Open a flow of m that holds partitions 0 and 1, with a credit in bytes."""
    await running.assign("m", [0, 1])
    flow = await peers.connect_flow(running)
    await flow.send(frames.Bind("m", "i", credit, [], credit_bytes=credit_bytes))
    bound, _ = await flow.expect(frames.Bound)
    assert bound.counts_bytes
    return flow


async def publish(producer, numbers, partition=0, *, text=TEXT):
    for number in numbers:
        await producer.publish(f"{number}-{text}", partition=partition)


async def rest(flow):
    """Return the deliveries that come before the answer to a ping: (offset, bytes) of each."""
    await flow.send(frames.Ping(77))
    found = []
    while True:
        frame, payload = await flow.receive()
        if isinstance(frame, frames.Pong) and frame.nonce == 77:
            return found
        if isinstance(frame, frames.Deliver):
            found.append((frame.start, len(payload)))


def sizes(found):
    return sum(size for _, size in found)


def flow_of(running):
    (flow,) = running.broker.flow_registry.flows
    return flow


async def sent(running, flow, peers, messages):
    """Return what came, once the broker has sent so many messages."""
    await peers.eventually(
        lambda: flow_of(running).credit.unacked >= messages, f"{messages} are sent"
    )
    return await rest(flow)


async def test_no_more_bytes_are_sent_than_the_client_has_room_for(running, peers):
    producer = await peers.open_producer(running)
    flow = await bind(running, peers, 20_000)
    await publish(producer, range(20))
    first = await sent(running, flow, peers, 5)
    assert [offset for offset, _ in first] == list(range(5))
    assert 16_000 < sizes(first) <= 20_000
    assert flow_of(running).credit.out_bytes == sizes(first)
    # Room in messages alone is no room; each byte given back is.
    await flow.send(frames.Credit(5))
    assert await rest(flow) == []
    await flow.send(frames.Credit(0, sizes(first[:2])))
    more = await sent(running, flow, peers, 7)
    assert [offset for offset, _ in more] == [5, 6]


async def test_who_gives_back_more_than_it_got_has_no_more_room_for_that(running, peers):
    producer = await peers.open_producer(running)
    flow = await bind(running, peers, 20_000)
    await flow.send(frames.Credit(0, 1_000_000))
    assert await rest(flow) == []
    await publish(producer, range(20))
    assert sizes(await sent(running, flow, peers, 5)) <= 20_000
    assert flow_of(running).credit.unacked == 5


async def test_one_batch_always_comes_however_large_it_is(running, peers):
    producer = await peers.open_producer(running)
    flow = await bind(running, peers, 1)
    await publish(producer, range(3))
    for number in range(3):
        ((offset, size),) = await sent(running, flow, peers, number + 1)
        assert (offset, await rest(flow)) == (number, [])
        await flow.send(frames.Credit(1, size))


async def test_small_batches_do_not_keep_a_large_one_waiting_for_ever(running, peers):
    producer = await peers.open_producer(running)
    flow = await bind(running, peers, 8000)
    await publish(producer, range(2), 0, text="x" * 2900)
    first = await sent(running, flow, peers, 2)
    await publish(producer, [2], 0, text="x" * 4000)
    await publish(producer, range(4), 1, text="x" * 100)
    assert await rest(flow) == [], "the small ones would fit, and come behind it"
    await flow.send(frames.Credit(1, first[0][1]))
    large, _ = await flow.find(frames.Deliver)
    assert (large.partition, large.start) == (0, 2)
    assert [offset for offset, _ in await sent(running, flow, peers, 7)] == list(range(4))


async def test_what_a_batch_is_sent_again_for_its_rest_counts_again(running, peers):
    producer = await peers.open_producer(running)
    flow = await bind(running, peers, 10_000, credit=2)
    await producer.publish(*["y" * 700] * 4)
    ((_, size),) = await sent(running, flow, peers, 2)
    await flow.send(frames.Credit(2))
    await sent(running, flow, peers, 4)
    assert flow_of(running).credit.out_bytes == 2 * size


async def test_a_client_that_does_not_speak_of_bytes_gets_all(running, peers):
    """An older one: it would never give any back."""
    await running.assign("m", [0])
    producer = await peers.open_producer(running)
    await publish(producer, range(20))
    flow = await peers.open_flow(running, "m")
    assert len(await flow.take(20)) == 20


@pytest.mark.parametrize(
    ("credit", "sentence"),
    [
        (frames.Credit(0, 0), "credit of 0 messages, 0 bytes"),
        (frames.Credit(-1, 5), "credit of -1 messages"),
        (frames.Credit(1, -5), "1 messages, -5 bytes"),
    ],
    ids=str,
)
async def test_a_credit_of_nothing_ends_the_flow(running, peers, credit, sentence):
    flow = await bind(running, peers, 1000)
    await flow.send(credit)
    failed, _ = await flow.find(frames.Failed)
    assert (failed.code, sentence in failed.message) == ("bad_request", True), failed.message


async def test_a_bind_of_negative_bytes_is_refused(running, peers):
    flow = await peers.connect_flow(running)
    await flow.send(frames.Bind("m", "i", 10, [], credit_bytes=-1))
    failed, _ = await flow.expect(frames.Failed)
    assert (failed.code, "credit of -1 bytes" in failed.message) == ("bad_request", True)


@pytest.mark.parametrize("credit_bytes", [1, 30_000, 100_000], ids="{} bytes".format)
async def test_a_consumer_holds_no_more_bytes_than_it_said(running, peers, credit_bytes):
    """The whole backlog passes, one message at a time in hand, whatever the credit."""
    await running.assign("m", [0, 1, 2, 3])
    producer = await peers.open_producer(running)
    count = 40
    for partition in range(4):
        await publish(producer, range(count), partition)
    consumer = Consumer(
        running.url, queue="orders", group="workers", token=peers.CONSUME, member="m",
        credit_bytes=credit_bytes, handle_signals=False, leave_timeout_s=0.05,
    )  # fmt: skip
    seen, most, single = {}, 0, 0
    async with consumer, asyncio.timeout(WAIT_S):
        async for message in consumer:
            seen.setdefault(message.partition.index, []).append(
                int(message.value.partition(b"-")[0])
            )
            consumer.ack_nowait(message)
            (flow,) = consumer._flows
            held = [len(window.payload) for window in flow._ready._windows]
            most, single = max(most, sum(held)), max([single, *held])
            if sum(map(len, seen.values())) == 4 * count:
                break
    assert seen == {partition: list(range(count)) for partition in range(4)}
    assert most <= max(credit_bytes, single)
