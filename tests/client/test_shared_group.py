"""Groups of the type Shared, with real brokers and a real coordinator."""

import asyncio
from collections import Counter

import pytest
from aiohttp import ClientSession

from partq import Cause, Consumer, Producer
from partq.errors import BadRequestError
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker

KEYS = [f"k{number}" for number in range(12)]
SHARED = {"type": "Shared", "nack": {"delaySeconds": 0}}


@pytest.fixture
async def local():
    async with LocalBroker(partitions=2, groups={"workers": SHARED}) as local:
        yield local


def member(local, name, **more):
    return Consumer(
        local.url,
        queue="orders",
        group="workers",
        token=local.tokens.consume,
        member=name,
        handle_signals=False,
        **more,
    )


def producer_of(local):
    return Producer(local.url, queue="orders", token=local.tokens.produce)


async def both_have_all(*consumers):
    for consumer in consumers:
        await eventually(lambda c=consumer: len(c.partitions) == 2, "it has both partitions")


@pytest.mark.req("PUL-99", "PUL-101", "PUL-102", "PUL-121", "PUL-122")
async def test_each_message_goes_to_one_of_the_members_and_each_gets_some(local):
    async with (
        member(local, "a", credit=10) as a,
        member(local, "b", credit=10) as b,
        producer_of(local) as producer,
    ):
        await both_have_all(a, b)
        sent = [f"{n}".encode() for n in range(60)]
        for value in sent:
            await producer.send_and_wait(value, key=value.decode())
        got = {"a": [], "b": []}

        async def consume(name, consumer):
            async for message in consumer:
                got[name].append(message.value)
                await consumer.ack(message)

        tasks = [asyncio.create_task(consume(*each)) for each in (("a", a), ("b", b))]
        await eventually(lambda: len(got["a"]) + len(got["b"]) >= 60, "all came")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert sorted(got["a"] + got["b"]) == sorted(sent), "each came once"
        assert got["a"]
        assert got["b"]


@pytest.mark.req("PUL-22", "PUL-25", "PUL-124")
async def test_acks_are_of_single_messages_and_a_nack_holds_nothing_up(local):
    async with member(local, "a") as a, producer_of(local) as producer:
        await both_have_all(a)
        for value in (b"0", b"1", b"2"):
            await producer.send_and_wait(value, key="k")
        first, second = await anext(a), await anext(a)
        with pytest.raises(BadRequestError, match="type Shared"):
            await a.ack_cumulative(second)
        await a.nack(first)
        third, again = await anext(a), await anext(a)
        values = {first.value, second.value, third.value}
        assert (values, again.value) == ({b"0", b"1", b"2"}, first.value)
        assert again.redeliveries == 1
        for message in (second, third, again):
            await a.ack(message, confirmed=True)


@pytest.mark.req("PUL-123")
async def test_a_member_that_leaves_gives_its_messages_to_the_others_at_once(local):
    async with member(local, "b") as b, producer_of(local) as producer:
        async with member(local, "a") as a:
            await both_have_all(a, b)
            b.pause(b.partitions)
            for value in (b"0", b"1", b"2"):
                await producer.send_and_wait(value, key="k")
            first = await anext(a)
            b.resume(b.partitions)
        found = {(await anext(b)).value for _ in range(3)}
        assert first.value in found
        assert found == {b"0", b"1", b"2"}


async def change(local, count):
    """Ask for another number of partitions."""
    url = f"{local.url}/admin/v1/queues/orders/partitions"
    headers = {"Authorization": f"Bearer {local.tokens.admin}"}
    async with (
        ClientSession(headers=headers) as http,
        http.post(url, json={"partitions": count}) as response,
    ):
        assert response.ok, await response.text()


async def test_a_change_of_the_partition_count_loses_nothing_and_repeats_only_what_was_given_back(
    local,
):
    sent, acked, given_back = [], Counter(), Counter()
    unexplained = []

    async def publish(producer, generation):
        """Publish until the change is in force, and some more."""
        while generation not in {producer.partition_of(key).generation for key in KEYS}:
            await publish_all(producer)
        await publish_all(producer)

    async def publish_all(producer):
        values = [f"{len(sent) + n}".encode() for n in range(len(KEYS))]
        sent.extend(values)
        for key, value in zip(KEYS, values, strict=True):
            await producer.send_and_wait(value, key=key)

    async def consume(consumer, *, fails):
        async for message in consumer:
            seen = given_back[message.value] + acked[message.value]
            if seen and message.cause is Cause.NONE:
                unexplained.append(message.value)
            if fails and not given_back[message.value]:
                given_back[message.value] += 1
                await consumer.nack(message, delay_s=0)
            else:
                acked[message.value] += 1
                await consumer.ack(message)

    async with (
        member(local, "a", credit=10) as a,
        member(local, "b", credit=10) as b,
        producer_of(local) as producer,
    ):
        await both_have_all(a, b)
        tasks = [
            asyncio.create_task(consume(a, fails=False)),
            asyncio.create_task(consume(b, fails=True)),
        ]
        for generation, count in ((2, 3), (3, 2)):
            await change(local, count)
            await publish(producer, generation)
        await eventually(lambda: len(acked) == len(sent), "all is acknowledged")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert acked == Counter(sent), "each counts once"
    assert given_back
    assert not unexplained
