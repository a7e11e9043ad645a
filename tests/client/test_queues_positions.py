"""Where a consumer of several queues is: positions, ends and lag, of real brokers."""

import asyncio

import pytest

from partq import FencedError, Message, PartitionId, PartitionKey, Producer, QueuesConsumer
from partq.client.transport.options import ConnectionOptions
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.client.member import WAIT_S
from tests.client.test_queues_consumer import flow_of, found

COUNT = 6


async def publish(local, queue):
    async with Producer(local.url, queue=queue, token=local.tokens.produce) as producer:
        await (await producer.send_many([Message(f"k{n}", b"v") for n in range(COUNT)]))


async def test_position_end_and_lag_of_each_queue():
    async with (
        asyncio.timeout(WAIT_S),
        LocalBroker(queue="a", partitions=2, groups=["a-workers"]) as a,
        LocalBroker(queue="b", partitions=2, groups=["b-workers"]) as b,
    ):
        brokers = {"a": a, "b": b}
        for queue, local in brokers.items():
            await publish(local, queue)
        found = [
            ConnectionOptions(local.url, queue, token=local.tokens.consume)
            for queue, local in brokers.items()
        ]
        async with QueuesConsumer(
            pattern=".*", group="{queue}-workers", find=lambda: found, handle_signals=False
        ) as consumer:
            ends = {}
            messages = []
            while len(messages) < 2 * COUNT:
                messages += await consumer.getmany(2 * COUNT - len(messages), timeout_s=WAIT_S)
            for each in messages:
                key = PartitionKey(each.queue, each.partition)
                ends[key] = max(ends.get(key, 0), each.offset + 1)
            assert len({key.queue for key in ends}) == 2
            assert {key: consumer.position(key) for key in ends} == ends
            assert {key: end for key, end in (await consumer.end_offsets()).items() if end} == ends
            assert {key: lag for key, lag in (await consumer.lag()).items() if lag} == ends
            first = messages[0]
            await consumer.ack(first, confirmed=True)
            key = PartitionKey(first.queue, first.partition)
            assert (await consumer.lag())[key] == ends[key] - 1
            with pytest.raises(FencedError, match="expected a partition that this consumer has"):
                consumer.position(PartitionKey("c", PartitionId(1, 0)))
            with pytest.raises(TypeError, match="position: got"):
                consumer.position(first.partition)
        with pytest.raises(RuntimeError, match="closed"):
            await consumer.lag()


async def test_what_a_cancelled_call_has_gathered_is_not_handed_out_yet(peer, stored_batch):
    """The messages of one queue say nothing of the same partition of another one."""
    options = {"group": "workers", "pattern": ".*", "handle_signals": False, "leave_timeout_s": 0}
    async with (
        asyncio.timeout(WAIT_S),
        QueuesConsumer(find=found(a=peer.url, b=peer.url), **options) as consumer,
    ):
        first = await flow_of(peer, (stored_batch(b"1", b"2", b"3"), 3))
        second = await flow_of(peer, (stored_batch(b"1"), 1))
        assert first is not second
        gathering = asyncio.create_task(consumer.getmany(5, timeout_s=WAIT_S))
        await eventually(lambda: len(consumer._held) == 4, "all are gathered")
        gathering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gathering
        keys = sorted(consumer.partitions)
        assert [consumer.position(key) for key in keys] == [0, 0]
        taken = await consumer.getmany(4, timeout_s=0)
        assert sorted(consumer.position(key) for key in keys) == [1, 3]
        assert len(taken) == 4
