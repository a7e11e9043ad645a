"""Ids of messages: though producers die and others send them again, each is stored once."""

import asyncio

import pytest
from aiohttp import ClientSession

from partq import Producer
from partq.testing.local_broker import LocalBroker

WAIT_S = 120.0
IDS = [f"order-{n}/paid" for n in range(200)]


async def send_all(local, answers):
    """Send all ids, as a program that does not know what it has sent before.

    After so many answers its connections are cut, as when its process is killed: what is on its
    way may be stored or not, and nobody is told. None: it lives to its end.
    """
    async with Producer(local.url, queue="orders", token=local.tokens.produce) as producer:
        sent = [await producer.send(b"v", message_id=each) for each in IDS]
        if answers is None:
            return [(await each).is_duplicate for each in sent]
        for each in sent[:answers]:
            await each
        sender = producer._sender
        for connection in list(sender._connections.values()):
            await connection.broker.close()
        # Nothing of it is sent any more, nor waited for.
        producer._sender = producer._calls = None
        for each in sent:
            each.cancel()
        await sender.close()
        await sender._session.__aexit__()
    return []


async def post_all(local):
    """Send all ids by plain HTTP, the last ones first; return which were duplicates."""
    url = f"{local.url.split(',')[0]}/v1/queues/orders/messages"
    headers = {"Authorization": f"Bearer {local.tokens.produce}"}
    found = []
    async with ClientSession(headers=headers) as http:
        for start in range(0, len(IDS), 50):
            body = [{"value": "v", "message_id": each} for each in IDS[::-1][start : start + 50]]
            async with http.post(url, json=body) as response:
                answer = await response.json()
            assert response.status == 201, answer
            found += [each.get("is_duplicate", False) for each in answer["results"]]
    return found


@pytest.mark.req("AZR-29")
async def test_each_id_is_stored_once_though_producers_die():
    spec = {"duplicateDetection": {"windowSeconds": 600}}
    async with (
        asyncio.timeout(WAIT_S),
        LocalBroker(queue="orders", partitions=3, spec=spec) as local,
    ):
        await asyncio.gather(send_all(local, 20), send_all(local, 70), post_all(local))
        assert await send_all(local, None) == [True] * len(IDS), "all of them are known"
        assert await post_all(local) == [True] * len(IDS)
        headers = {"Authorization": f"Bearer {local.tokens.admin}"}
        status_url = f"{local.url.split(',')[0]}/v1/queues/orders/status"
        async with ClientSession(headers=headers) as http, http.get(status_url) as response:
            partitions = (await response.json())["partitions"].values()
    assert sum(each["end"] for each in partitions) == len(IDS), "each was stored once"
