"""Keys against real brokers: the same partition for every publisher, at every broker, for ever."""

import asyncio
from collections import defaultdict

import pytest
from aiohttp import ClientSession

from partq import Consumer, Message, Producer
from partq.testing import eventually

KEYS = [f"customer-{number}" for number in range(60)]
WAIT_S = 60.0


async def by_producer(local):
    """Publish a message of each key; return where it lies."""
    async with Producer(local.url, queue="orders", token=local.tokens.produce) as producer:
        messages = [Message(key, b"by producer") for key in KEYS]
        positions = await (await producer.send_many(messages))
        return [str(position.partition) for position in positions]


async def by_http(local, url):
    """Publish a message of each key at one broker, which forwards those of the other.

    What is not stored, because nobody is known to serve its partition, is sent again.
    """
    found = {}
    headers = {"Authorization": f"Bearer {local.tokens.produce}"}
    async with ClientSession(headers=headers) as session:

        async def are_stored():
            missing = [key for key in KEYS if key not in found]
            body = [{"key": key, "value": "by http"} for key in missing]
            async with session.post(f"{url}/v1/queues/orders/messages", json=body) as response:
                results = (await response.json())["results"]
            for key, result in zip(missing, results, strict=True):
                if "partition" in result:
                    found[key] = result["partition"]
                else:
                    assert result["error"]["code"] in {"not_stored", "outcome_unknown"}, result
            return len(found) == len(KEYS)

        await eventually(are_stored, "all keys are stored", interval_s=0.05)
    return [found[key] for key in KEYS]


async def consume(local, count):
    """Return the partitions of each key, after so many different messages."""
    found, places = defaultdict(set), set()
    url, token = local.url, local.tokens.consume
    async with Consumer(url, queue="orders", group="workers", token=token) as consumer:
        async for batch in consumer.batches():
            for delivery in batch.deliveries():
                found[delivery.key].add(str(delivery.partition))
                places.add((delivery.partition, delivery.offset))
            consumer.ack_nowait(batch)
            if len(places) >= count:
                return found
    return found


@pytest.mark.req("SOL-01", "SOL-04", "PUL-125", "AZR-18", "AZR-19")
async def test_a_key_stays_in_its_partition(brokers):
    """Two producers, plain HTTP at either broker, and all of it again after kill -9 of both."""
    runtime = brokers.runtime
    async with asyncio.timeout(WAIT_S):
        first = await by_producer(brokers)
        for broker in runtime.brokers:
            assert await by_http(brokers, broker.url) == first
        for child in (runtime.redis, *runtime.brokers):
            await child.kill()
        assert await by_producer(brokers) == first
        found = await consume(brokers, 4 * len(KEYS))
    assert found == {key: {partition} for key, partition in zip(KEYS, first, strict=True)}
    assert len(set(first)) == 8, "many keys share a partition, and each has some"
