"""Transactions while the partition count changes: each is stored whole, once, where its key is."""

import asyncio
from collections import defaultdict
from functools import partial

import pytest

from partq import LogReader, Producer
from partq.client.produce.batching import BatchLimits, SealedBatch
from partq.client.produce.deterministic.ordered_cut import ordered_cut
from partq.core.model import PartitionId
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.wire import batch
from partq.wire.batch import Codec, Message
from tests.client.test_change_with_brokers import KEYS, WAIT_S, change, cuts  # noqa: F401  fixture

SIZE = 3
"""Messages of each transaction: more than a batch of these producers has."""
NEW = PartitionId(2, 2)


@pytest.fixture
async def local():
    async with LocalBroker(queue="orders", partitions=4, broker_count=2) as local:
        yield local


def producer_of(local, **options):
    return Producer(
        local.url, queue="orders", token=local.tokens.produce, linger_ms=1, max_batch_count=2,
        **options,
    )  # fmt: skip


async def commit(producer, key, number):
    async with producer.transaction(key=key) as tx:
        for place in range(SIZE):
            tx.send(b"%d/%d" % (number, place))
    partitions = {partition for partition, _ in tx.positions}
    assert len(partitions) == 1


async def entries(local):
    """Return the values of each stored batch by its key, the oldest generation first."""
    found = defaultdict(list)
    async with LogReader(local.url, queue="orders", token=local.tokens.admin) as reader:
        for partition in await reader.partitions():
            async for each in reader.entries(partition, 0):
                messages = batch.decode(each.data)
                (key,) = {message.key for message in messages}
                found[key].append([message.value.decode() for message in messages])
    return found


def whole(count):
    return [[f"{number}/{place}" for place in range(SIZE)] for number in range(count)]


async def test_no_transaction_is_divided_or_stored_twice(local, cuts):  # noqa: F811
    keys, counts = KEYS[:12], defaultdict(int)
    is_over = asyncio.Event()

    async def publish(producer, key):
        while not is_over.is_set():
            await commit(producer, key, counts[key])
            counts[key] += 1

    def are_in(producer, generation):
        return generation in {producer.partition_of(key).generation for key in keys}

    async with asyncio.timeout(WAIT_S), producer_of(local) as producer:
        async with asyncio.TaskGroup() as publishing:
            for key in keys:
                publishing.create_task(publish(producer, key))
            for generation, count in ((2, 6), (3, 3)):
                cuts.share = 0.2
                await change(local, count)
                await eventually(partial(are_in, producer, generation), "slots have moved")
                await cuts.more()
                cuts.share = 0.0
            is_over.set()
        found = await entries(local)
    assert found == {key: whole(counts[key]) for key in keys}


async def test_a_deterministic_producer_leaves_out_what_is_stored(local):
    """Of a transaction all messages are stored, or none: also after a change of the count."""
    work = [(key, number) for number in range(3) for key in KEYS[:8]]

    async def attempt(until):
        stored = 0
        async with producer_of(local, producer_id="job") as producer:
            for key, number in work[:until]:
                skipped = [producer.skip_stored(key) for _ in range(SIZE)]
                assert len(set(skipped)) == 1
                stored += skipped[0]
                if not skipped[0]:
                    await commit(producer, key, number)
        return stored

    async with asyncio.timeout(WAIT_S):
        assert await attempt(10) == 0
        await change(local, 6)
        assert await attempt(15) == 10
        assert await attempt(len(work)) == 15
        found = await entries(local)
    assert found == {key: whole(3) for key in KEYS[:8]}


class Told:
    """A result that can be divided."""

    def divided(self, partition, destinations):
        return dict.fromkeys(destinations, self)


def sealed(order, *, is_whole=False, slot=1):
    encoded = batch.encode_messages([Message("k", b"%d" % number) for number in order])
    return SealedBatch(
        batch.encode(encoded, [slot] * len(order), Codec.NONE), [(Told(), len(order))], first=0,
        size_bytes=sum(map(len, encoded)), deadline=9.0, ttl_ms=0, order=order, is_whole=is_whole,
    )  # fmt: skip


def test_fixed_numbers_of_two_partitions_are_merged_around_a_transaction():
    windows = {
        PartitionId(1, 0): [sealed([0, 3])],
        PartitionId(1, 1): [sealed([1, 2]), sealed([4, 5, 6], is_whole=True), sealed([7])],
        PartitionId(1, 2): [sealed([8])],
    }
    limits = BatchLimits(max_count=2, max_bytes=1000, codec=Codec.NONE)
    found = ordered_cut(windows, limits, lambda _: None, lambda _: NEW).batches[NEW]
    assert [(list(each.order), each.is_whole) for each in found] == [
        ([0, 1], False), ([2, 3], False), ([4, 5, 6], True), ([7, 8], False),
    ]  # fmt: skip
    assert [message.value for message in batch.decode(found[2].data)] == [b"4", b"5", b"6"]
