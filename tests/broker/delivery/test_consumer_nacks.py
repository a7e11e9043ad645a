"""Consumers that give messages back, at a broker in this process."""

import asyncio
from collections import Counter

import pytest

from partq import Cause, Consumer, UndecodableError
from partq.core.hashing import slot_of
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import key_of
from tests.broker.delivery.test_nack import follow
from tests.wire.batch_bytes import assemble

COUNT = 120
WAIT_S = 60.0


@pytest.fixture
def lease_ttl_s():
    """Nothing here is about leases: none shall be over on a busy machine."""
    return 30.0


@pytest.fixture
async def consumer(running, peers):
    """Member m with partitions 1.0 and 1.1, which hold messages that name their number."""
    await running.assign("m", [0, 1])
    producer = await peers.open_producer(running)
    for partition in (0, 1):
        for start in range(0, COUNT, 10):
            values = [str(number) for number in range(start, start + 10)]
            await producer.publish(*values, partition=partition)
    consumer = Consumer(
        running.url, queue="orders", group="workers", token=peers.CONSUME, member="m",
        handle_signals=False, leave_timeout_s=0.05,
    )  # fmt: skip
    async with consumer:
        yield consumer


async def consume(consumer, is_rejected, total):
    """Give back what is to be rejected, acknowledge the rest; return what was done in its order."""
    done, seen = [], Counter()
    async with asyncio.timeout(WAIT_S):
        async for message in consumer:
            at = (message.partition.index, int(message.value))
            assert seen[at] or not message.is_redelivered, "nobody has had it"
            seen[at] += 1
            if is_rejected(at, message):
                await consumer.nack(message, delay_s=0)
                continue
            consumer.ack_nowait(message)
            done.append(at)
            if len(done) == total:
                break
        await consumer.flush()
    return done, seen


@pytest.mark.req("HND-28", "PUL-23", "PUL-20", "PUL-26")
async def test_in_order_nothing_is_done_before_what_was_given_back(consumer):
    """Every seventh message fails twice; its count and its cause come with it."""
    told = []

    def is_rejected(at, message):
        if at[1] % 7 == 0:
            told.append((message.redeliveries, message.cause))
        return at[1] % 7 == 0 and message.redeliveries < 2

    done, seen = await consume(consumer, is_rejected, 2 * COUNT)
    for partition in (0, 1):
        assert [number for index, number in done if index == partition] == list(range(COUNT))
    assert all(seen[0, number] == 3 for number in range(0, COUNT, 7))
    assert set(told) == {(0, Cause.NONE), (1, Cause.NACK), (2, Cause.NACK)}


@pytest.mark.req("PUL-25", "PUL-26", "PUL-30")
async def test_in_free_order_only_what_was_given_back_is_redelivered(consumer, running):
    nack = {"order": "Free", "delaySeconds": 60.0, "backoff": None}
    await follow(running, "workers", nack=nack)

    def is_rejected(at, message):
        return at[1] % 7 == 0 and not message.is_redelivered

    done, seen = await consume(consumer, is_rejected, 2 * COUNT)
    assert sorted(done) == [(index, number) for index in (0, 1) for number in range(COUNT)]
    assert seen == {at: 2 if at[1] % 7 == 0 else 1 for at in done}
    for partition in (0, 1):
        others = [number for index, number in done if index == partition and number % 7]
        assert others == [number for number in range(COUNT) if number % 7]


@pytest.mark.req("PUL-32", "PUL-36")
async def test_what_is_processed_for_too_long_is_redelivered(consumer, running):
    """The first copy is still worked on; its ack counts. What is only ready is not late."""
    rules = {"timeoutSeconds": 0.3, "tickSeconds": 0.25, "backoff": None}
    await follow(running, "workers", ack=rules)
    async with asyncio.timeout(WAIT_S):
        first = await anext(consumer)
        book = running.broker.owned[first.partition].groups["workers"].book
        await eventually(lambda: book.redeliveries == {first.offset: 1}, "late")
        await follow(running, "workers", ack={**rules, "timeoutSeconds": 0.0})
        async for message in consumer:
            if message.partition == first.partition:
                break
            consumer.ack_nowait(message)
        assert (message.offset, message.cause) == (first.offset, Cause.ACK_TIMEOUT)
        assert message.redeliveries == 1
        await consumer.ack(first, confirmed=True)
    assert book.cursor == first.offset + 1


async def test_what_cannot_be_read_becomes_a_dead_letter_and_the_rest_goes_on(running, peers):
    await running.assign("m", [0, 1])
    producer = await peers.open_producer(running)
    slot = slot_of(key_of(0))
    await producer.send(frames.Publish(0, 1, 0, 0), assemble(b"\xc1", [1], slots=[slot]))
    await producer.expect(frames.Published)
    await producer.publish("other", partition=1)
    errors = []
    consumer = Consumer(
        running.url, queue="orders", group="workers", token=peers.CONSUME, member="m",
        handle_signals=False, leave_timeout_s=0.05, on_error=errors.append,
    )  # fmt: skip
    async with consumer, asyncio.timeout(WAIT_S):
        assert (await anext(consumer)).value == b"other"
        asking = asyncio.create_task(anext(consumer))
        group = running.broker.owned[1, 0].groups["workers"]
        await eventually(lambda: [each.offset for each in group.outbox.letters] == [0], "parked")
        assert group.book.cursor == 1
        asking.cancel()
    [error] = errors
    assert isinstance(error, UndecodableError)
