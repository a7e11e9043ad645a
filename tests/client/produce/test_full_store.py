"""A Redis that is full: publishing waits, everything else continues, and consuming empties it."""

import asyncio
from collections import Counter
from itertools import count, islice

import pytest
import redis.asyncio
from aiohttp import ClientSession
from redis.exceptions import OutOfMemoryError

from partq import Cause, Consumer, FencedError, Message, Producer
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.even_shares import even_shares

WAIT_S = 400.0
KEYS, PER_KEY = 20, 150
VALUE_BYTES = 3000
"""All messages together are above what the small Redis may hold."""
PROBE = "probe"
"""Key of what is sent to see whether messages are taken."""
MAXMEMORY_BYTES = 8 * 1024 * 1024


@pytest.fixture
async def local():
    """Two brokers on a small Redis."""
    async with LocalBroker(partitions=4, broker_count=2) as running:
        await even_shares(running.queue)
        async with redis.asyncio.Redis.from_url(running.runtime.redis_url) as client:
            await client.config_set("maxmemory", MAXMEMORY_BYTES)
        yield running


async def publish(local):
    """Publish all messages, each key's in order."""
    async with Producer(
        local.url,
        queue="orders",
        token=local.tokens.produce,
        max_batch_bytes=64 * 1024,
        compression="none",
        delivery_timeout_s=WAIT_S,
    ) as producer:
        for number in range(PER_KEY):
            value = f"{number}:".encode().ljust(VALUE_BYTES, b"x")
            await producer.send_many([Message(f"k{key}", value) for key in range(KEYS)])


async def consume(local, following, out_of_order):
    """Take everything; whatever comes again has a cause."""
    async with Consumer(
        local.url, queue="orders", group="workers", token=local.tokens.consume
    ) as consumer:
        async for batch in consumer.batches():
            for delivery in batch.deliveries():
                if delivery.key == PROBE:
                    continue
                number = int(delivery.value.split(b":")[0])
                if number == following[delivery.key]:
                    following[delivery.key] += 1
                elif number > following[delivery.key] or delivery.cause is Cause.NONE:
                    out_of_order.append(delivery)
            try:
                await consumer.ack(batch, confirmed=True)
            except FencedError:
                continue  # they come again
            if following.total() == KEYS * PER_KEY:
                return


async def refusal(http, local):
    """Publish by plain HTTP; return status, code and the header of a refusal."""
    url = f"{local.url.split(',')[-1]}/v1/queues/orders/messages"
    async with http.post(url, json={"value": "x" * 10, "key": PROBE}) as response:
        body = await response.json()
        code = body.get("error", {}).get("code", "")
        return response.status, code, response.headers.get("Retry-After")


async def fill(client, numbers):
    """Take what is left of the memory for other keys."""
    for number in islice(numbers, MAXMEMORY_BYTES // (64 * 1024)):
        try:
            await client.set(f"other:{number}", bytes(64 * 1024))
        except OutOfMemoryError:
            return
    pytest.fail("Redis takes more than its maxmemory")


@pytest.mark.req("SOL-U12")
async def test_a_full_redis_is_emptied_by_consuming(local):
    following, out_of_order = Counter(), []
    headers = {"Authorization": f"Bearer {local.tokens.produce}"}
    async with (
        asyncio.timeout(WAIT_S),
        redis.asyncio.Redis.from_url(local.runtime.redis_url) as client,
        ClientSession(headers=headers) as http,
        asyncio.TaskGroup() as tasks,
    ):
        publishing = tasks.create_task(publish(local))

        async def is_full():
            assert not publishing.done()
            return await refusal(http, local) == (507, "store_full", "1")

        await eventually(is_full, "a publish is refused", interval_s=0.05)
        numbers = count()
        await fill(client, numbers)
        while await refusal(http, local) != (507, "store_full", "1"):
            await fill(client, numbers)  # a connection has given back what it had read or written
        await local.runtime.brokers[0].kill()  # the other one claims, and it comes back
        tasks.create_task(consume(local, following, out_of_order))
    assert following.total() == KEYS * PER_KEY, "nothing is lost"
    assert out_of_order == []
    assert publishing.done()
