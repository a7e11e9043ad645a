"""A consumer that pauses partitions, with real brokers: credit, handoffs, seeks, lag, threads."""

import asyncio
import threading

import pytest

from partq import Consumer, FencedError, Message, PartitionId, Producer, sync
from partq.core.hashing import partition_index, slot_of
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker

WAIT_S = 60.0
P0, P1 = PARTITIONS = [PartitionId(1, 0), PartitionId(1, 1)]
COUNT = 300
KEYS = [
    next(key for key in map(str, range(100)) if partition_index(slot_of(key), 2) == index)
    for index in (0, 1)
]
"""A key of each partition."""


@pytest.fixture
async def local():
    async with LocalBroker(partitions=2) as local:
        yield local


async def publish(local, index, count=COUNT):
    """Store messages in one partition."""
    async with Producer(local.url, queue="orders", token=local.tokens.produce) as producer:
        await (await producer.send_many([Message(KEYS[index], b"v") for _ in range(count)]))


def open_consumer(local, **settings):
    settings = {"handle_signals": False, **settings}
    return Consumer(
        local.url, queue="orders", group="workers", token=local.tokens.consume, **settings
    )


async def has_both(consumer):
    await eventually(lambda: consumer.partitions == set(PARTITIONS), "it has both partitions")


async def test_a_paused_partition_takes_no_credit_and_comes_again_in_order(local):
    """With a credit that the paused one would use up."""
    async with asyncio.timeout(WAIT_S), open_consumer(local, credit=10) as consumer:
        await has_both(consumer)
        consumer.pause([P0])
        await publish(local, 0)
        await publish(local, 1)
        seen = []
        while len(seen) < COUNT:
            message = await anext(consumer)
            await consumer.ack(message)
            seen.append(message.partition)
        assert set(seen) == {P1}
        assert consumer.paused() == {P0}
        consumer.resume([P0])
        offsets = []
        while len(offsets) < COUNT:
            message = await anext(consumer)
            assert (message.partition, message.redeliveries) == (P0, 0)
            await consumer.ack(message)
            offsets.append(message.offset)
        assert offsets == list(range(COUNT))


async def test_a_paused_partition_is_handed_over_and_its_pause_ends(local):
    async with asyncio.timeout(2 * WAIT_S), open_consumer(local, leave_timeout_s=1) as first:
        await has_both(first)
        await publish(local, 0)
        await publish(local, 1)
        first.pause(PARTITIONS)
        async with open_consumer(local, leave_timeout_s=1) as second:
            await eventually(lambda: len(second.partitions) == 1, "one is handed over")
            (moved,) = second.partitions
            await eventually(lambda: first.paused() == set(PARTITIONS) - {moved}, "one stays")
            message = await anext(second)
            assert (message.partition, message.offset, message.redeliveries) == (moved, 0, 0)


async def test_a_seek_of_a_paused_partition(local):
    await publish(local, 0)
    async with asyncio.timeout(WAIT_S), open_consumer(local) as consumer:
        await has_both(consumer)
        message = await anext(consumer)
        consumer.pause([P0])
        assert await consumer.seek({P0: 7}) == {P0: 7}
        assert consumer.paused() == {P0}
        assert await consumer.getmany(1, timeout_s=0.3) == []
        consumer.resume([P0])
        assert (await anext(consumer)).offset == 7
        assert message.offset == 0


async def test_positions_and_lag_follow_the_acks(local):
    await publish(local, 0)
    async with asyncio.timeout(WAIT_S), open_consumer(local) as consumer:
        await has_both(consumer)
        assert await consumer.lag() == {P0: COUNT, P1: 0}
        assert await consumer.end_offsets() == {P0: COUNT, P1: 0}
        messages = await consumer.getmany(5, timeout_s=WAIT_S)
        assert consumer.position(P0) == len(messages)
        await consumer.ack_cumulative(messages[-1], confirmed=True)
        assert await consumer.lag() == {P0: COUNT - len(messages), P1: 0}
        with pytest.raises(FencedError, match=r"position: got 1\.7, expected a partition that"):
            consumer.position(PartitionId(1, 7))
    with pytest.raises(RuntimeError, match="closed"):
        await consumer.lag()


async def test_a_blocking_consumer_pauses_in_a_callback_and_a_late_resume_is_harmless(local):
    await publish(local, 0)
    told = threading.Event()

    def pause(partition):
        consumer.pause([partition])
        if consumer.paused() == set(PARTITIONS):
            told.set()

    token = local.tokens.consume
    consumer = sync.Consumer(
        local.url, queue="orders", group="workers", token=token, on_assigned=pause
    )

    def work():
        with consumer:
            assert told.wait(WAIT_S)
            assert consumer.getmany(1, timeout_s=0.3) == []
        consumer.resume([P0])

    await asyncio.to_thread(work)


async def test_a_blocking_consumer_pauses(local):
    await publish(local, 0)

    def work():
        token = local.tokens.consume
        with sync.Consumer(local.url, queue="orders", group="workers", token=token) as consumer:
            assert consumer.getmany(1, timeout_s=WAIT_S)
            consumer.pause([P0])
            paused = consumer.paused()
            assert consumer.getmany(1, timeout_s=0.3) == []
            consumer.resume([P0])
            assert consumer.position(P0) == 1
            assert consumer.end_offsets().items() >= {P0: COUNT}.items()
            assert consumer.lag().items() >= {P0: COUNT}.items()
            return paused, len(consumer.getmany(1, timeout_s=WAIT_S))

    assert await asyncio.to_thread(work) == ({P0}, 1)
