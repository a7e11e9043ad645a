"""Transactions that wait until they are due: stored in the log together, cancelled together."""

import asyncio

import pytest
from aiohttp import ClientSession

from partq import BadRequestError, Consumer, Producer
from partq.testing.local_broker import LocalBroker

WAIT_S = 60.0


@pytest.fixture
async def local():
    async with LocalBroker(queue="orders", partitions=4, broker_count=2) as local:
        yield local


async def commit(producer, *values, **options):
    async with producer.transaction(key="a", **options) as tx:
        for value in values:
            tx.send(value)
    return tx.positions


async def by_http(local, *values, headers):
    url = f"{local.url.split(',')[0]}/v1/queues/orders/messages?atomic=true"
    given = {"Authorization": f"Bearer {local.tokens.produce}", **headers}
    body = [{"key": "a", "value": value} for value in values]
    async with ClientSession() as session, session.post(url, json=body, headers=given) as response:
        return (await response.json())["results"]


async def test_all_of_one_are_stored_at_its_time_and_cancelled_as_one(local):
    async with (
        asyncio.timeout(WAIT_S),
        Producer(local.url, queue="orders", token=local.tokens.produce) as producer,
    ):
        due = await commit(producer, b"1", b"2", b"3", deliver_after_s=0.5)
        gone = await commit(producer, b"x", b"y", deliver_after_s=300)
        (of_http,) = {
            each["scheduled"]
            for each in await by_http(local, "4", "5", headers={"Partq-Deliver-After-Ms": "900"})
        }
        assert len({each.scheduled for each in due}) == 1
        assert len({*(each.scheduled for each in (*due, *gone)), of_http}) == 3
        assert await producer.cancel_scheduled(gone[1].scheduled)
        await commit(producer, b"0")  # what does not wait comes before
        offsets = {}
        async with Consumer(
            local.url, queue="orders", group="workers", token=local.tokens.consume
        ) as consumer:
            async for message in consumer:
                offsets[message.value] = message.offset
                await consumer.ack(message)
                if len(offsets) == 6:
                    break
    assert offsets == {b"%d" % number: number for number in range(6)}


async def test_a_deterministic_producer_schedules_none(local):
    async with Producer(
        local.url, queue="orders", token=local.tokens.produce, producer_id="job"
    ) as producer:
        with pytest.raises(BadRequestError, match="deliver_after_s"):
            await commit(producer, b"1", deliver_after_s=300)
