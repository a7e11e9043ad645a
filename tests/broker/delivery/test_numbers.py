"""Producer and sequence on what is delivered: by WebSocket, by pull and on browsing."""

import asyncio

import pytest
from aiohttp import ClientSession

from partq import Browser, Consumer, Message, Producer
from partq.testing.local_broker import LocalBroker

WAIT_S = 60.0


@pytest.fixture
async def local():
    async with LocalBroker(queue="orders", partitions=1) as local:
        yield local


async def publish_http(local, body, **headers):
    given = {"Authorization": f"Bearer {local.tokens.produce}", **headers}
    url = f"{local.url}/v1/queues/orders/messages"
    async with ClientSession(headers=given) as session, session.post(url, json=body) as response:
        assert response.status == 201, await response.text()


async def publish_by_every_way(local):
    """Return the id that was generated, and what is expected of each message, by its value."""
    expected = {}
    options = {"queue": "orders", "token": local.tokens.produce}
    async with Producer(local.url, producer_id="given", **options) as producer:
        await (await producer.send_many([Message("k", b"a%d" % n) for n in range(3)]))
        await producer.send_and_wait(b"a3", key="other", ttl_s=60)
    expected |= {f"a{n}": ("given", n) for n in range(4)}
    async with Producer(local.url, **options) as producer:
        await producer.send_and_wait(b"b0")
        await producer.send_and_wait(b"b1", key="k")
    numbered = [{"key": "k", "value": "c0", "sequence": 0},
                {"key": "k", "value": "c1", "sequence": 1},
                {"key": "z", "value": "c2", "sequence": 0}]  # fmt: skip
    await publish_http(local, numbered, **{"Partq-Producer": "shop 1"})
    expected |= {"c0": ("shop 1", 0), "c1": ("shop 1", 1), "c2": ("shop 1", 0)}
    await publish_http(local, {"key": "k", "value": "d"})
    expected["d"] = (None, None)
    return expected


async def delivered(local, count, *, nacks=None, acks=True):
    """Return producer and sequence of each message, by its value."""
    found = {}
    token = local.tokens.consume
    async with Consumer(local.url, queue="orders", group="workers", token=token) as consumer:
        async for batch in consumer.batches():
            for each in batch.deliveries():
                found[each.value.decode()] = each.producer, each.sequence
            assert [batch.sequence(at) for at in range(len(batch))] == [
                each.sequence for each in batch.deliveries()
            ]
            if nacks is not None:
                await consumer.ack(batch.deliveries()[0], confirmed=True)
                await consumer.nack(batch.deliveries()[nacks], delay_s=0)
                return found
            if acks:
                await consumer.ack(batch)
            if len(found) == count:
                return found
    return found


def without_generated(found):
    """Take out what a producer without an id sent: it has the same id, not an empty one."""
    first, second = found.pop("b0"), found.pop("b1")
    assert (first[1], second[1]) == (0, 1)
    assert first[0] == second[0]
    assert len(first[0]) == 32
    return found


@pytest.mark.req("PUL-08", "PUL-11")
async def test_a_message_has_its_producer_and_its_number_on_every_way(local):
    async with asyncio.timeout(WAIT_S):
        expected = await publish_by_every_way(local)
        async with Browser(local.url, queue="orders", token=local.tokens.admin) as browser:
            seen = {
                each.message.value.decode(): (each.producer, each.sequence)
                async for each in browser.messages()
            }
        assert without_generated(seen) == expected
        got = await delivered(local, len(expected) + 2, acks=False)
        assert without_generated(got) == expected
        pull = {"member": "curl", "incarnation": "1", "max_messages": 100, "wait_ms": 1000}
        headers = {"Authorization": f"Bearer {local.tokens.consume}"}
        url = f"{local.url}/v1/queues/orders/groups/workers"
        pulled = {}
        async with ClientSession(headers=headers) as session:
            while len(pulled) < len(expected) + 2:
                async with session.post(f"{url}/pull", json=pull) as response:
                    answer = await response.json()
                for each in answer.get("messages", ()):
                    assert ("producer" in each) == ("sequence" in each)
                    pulled[each["value"]] = each.get("producer"), each.get("sequence")
                pull["last_answer"] = answer.get("answer")
        assert without_generated(pulled) == expected


@pytest.mark.req("PUL-11")
async def test_a_message_keeps_its_number_when_it_is_delivered_again(local):
    """Also in the middle of its batch, and after the broker's memory of the log is gone."""
    async with asyncio.timeout(WAIT_S):
        options = {"queue": "orders", "token": local.tokens.produce}
        async with Producer(local.url, producer_id="p", **options) as producer:
            await (await producer.send_many([Message("k", b"m%d" % n) for n in range(4)]))
        await delivered(local, 4, nacks=2)
        for broker in local.runtime.brokers:
            await broker.kill()
        again = await delivered(local, 3)
        assert again == {f"m{n}": ("p", n) for n in range(1, 4)}
