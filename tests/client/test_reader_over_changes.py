"""A reader of a whole queue, while a real queue gets more partitions, and then fewer."""

import asyncio
from collections import defaultdict

import pytest

from partq import Producer, Reader
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.client.test_change_with_brokers import change

KEYS = [f"k{number}" for number in range(40)]
COUNTS = (5, 2)
ROUNDS = 10


@pytest.fixture
async def local():
    async with LocalBroker(queue="orders", partitions=3, groups=["workers", "slow"]) as local:
        yield local


async def test_a_reader_gets_the_messages_of_each_key_in_order(local):
    by_key = defaultdict(list)
    given = {"queue": "orders", "token": local.tokens.consume}

    async def read(reader, count):
        async for each in reader:
            by_key[each.message.key].append(int(each.message.value))
            if sum(map(len, by_key.values())) == count:
                return

    async def publish(producer, first):
        for number in range(first, first + ROUNDS):
            for key in KEYS:
                await producer.send(b"%d" % number, key=key)
        await producer.flush()

    async with (
        asyncio.timeout(120),
        Reader(local.url, **given) as reader,
        Producer(local.url, queue="orders", token=local.tokens.produce) as producer,
    ):
        for generation, count in enumerate(COUNTS, 2):
            publishing = asyncio.create_task(publish(producer, (generation - 2) * ROUNDS))
            await change(local, count)
            await eventually(
                lambda g=generation: g in {producer.partition_of(key).generation for key in KEYS},
                "slots have moved",
            )
            await publishing
        await publish(producer, 2 * ROUNDS)
        # It was behind all the time: nothing of a successor comes before its predecessors.
        await read(reader, 3 * ROUNDS * len(KEYS))
        assert by_key == {key: list(range(3 * ROUNDS)) for key in KEYS}

        places = reader.positions()
        await reader.seek("earliest")
        by_key.clear()
        await read(reader, 3 * ROUNDS * len(KEYS))
        assert by_key == {key: list(range(3 * ROUNDS)) for key in KEYS}

        await publish(producer, 3 * ROUNDS)
        async with Reader(local.url, start=places, **given) as later:
            by_key.clear()
            await read(later, ROUNDS * len(KEYS))
    assert by_key == {key: list(range(3 * ROUNDS, 4 * ROUNDS)) for key in KEYS}
