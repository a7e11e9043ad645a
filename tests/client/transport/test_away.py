"""A broker that is away for long: a message with a key fails, one without goes elsewhere."""

import asyncio
from collections import Counter

import pytest
from aiohttp import ClientSession

from partq import NotStoredError, Producer
from partq.core.layout import Layout
from partq.testing import eventually
from partq.testing.frame_peers import key_of
from partq.testing.local_broker import LocalBroker

WAIT_S = 200.0
PARTITIONS = 4


@pytest.fixture
async def local():
    """Two brokers; nobody claims the partitions of one that dies, for longer than a test lasts."""
    spec = {"keylessPolicy": "RoundRobin"}
    async with LocalBroker(
        groups=[], partitions=PARTITIONS, broker_count=2, spec=spec, lease_ttl_s=60
    ) as running:
        yield running


async def publish(producer, count, key=None):
    """Send messages, each an answer of its own: its partition, or the error."""
    waiting = [await producer.send(b"x", key=key) for _ in range(count)]
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    return [error if isinstance(error, BaseException) else error.partition for error in answers]


async def balanced(http, url):
    """Wait until each broker owns half of the partitions; return the layout."""

    async def even():
        layout = await (await http.get(f"{url}/v1/queues/orders/layout")).json()
        counts = Counter(layout["owners"].values())
        return layout if sorted(counts.values()) == [2, 2] else None

    return await eventually(even, "even shares", interval_s=0.05)


@pytest.mark.req("AZR-20", "AZR-31", "AZR-32", "AZR-33", "AZR-50", "AZR-34", "AZR-01")
async def test_a_broker_that_is_away(local):
    headers = {"Authorization": f"Bearer {local.tokens.admin}"}
    doomed, living = local.runtime.brokers
    stored = Counter()
    async with asyncio.timeout(WAIT_S), ClientSession(headers=headers) as http:
        layout = await balanced(http, local.url.split(",")[0])
        away = {p for p, broker in layout["owners"].items() if broker == doomed.name}
        urls = {entry["broker"]: entry["url"] for entry in layout["brokers"]}
        async with Producer(
            local.url,
            queue="orders",
            token=local.tokens.produce,
            linger_ms=0,
            delivery_timeout_s=15,
        ) as producer:
            first = await publish(producer, 4 * PARTITIONS)
            stored.update(first)
            assert set(Counter(first).values()) == {4}, "in turn over all partitions"
            await doomed.kill()
            await doomed.stop()  # nobody starts it again

            answers = [None]
            while not set(answers) <= stored.keys():  # until the producer has noticed
                answers = await publish(producer, PARTITIONS)
                stored.update(p for p in answers if not isinstance(p, BaseException))
            answers = await publish(producer, 40)
            stored.update(answers)
            used = {str(partition) for partition in answers}
            assert len(used) == PARTITIONS - len(away)
            assert not used & away

            base = f"{urls[living.name]}/v1/queues/orders"
            keys = [key_of(Layout.first(PARTITIONS), index) for index in range(PARTITIONS)]
            answers = await asyncio.gather(*(publish(producer, 1, key) for key in keys))
            for index, (answer,) in enumerate(answers):
                body = {"key": keys[index], "value": "x"}
                posted = await http.post(f"{base}/messages", json=body)
                if f"1.{index}" in away:
                    assert isinstance(answer, NotStoredError)
                    assert posted.status == 503
                else:
                    assert (str(answer), posted.status) == (f"1.{index}", 201)
                    stored.update([answer, answer])
            posted = await http.post(f"{base}/messages", json=[{"value": "x"}] * 20)
            assert posted.status == 201
            results = (await posted.json())["results"]
            assert not {result["partition"] for result in results} & away
            status = await (await http.get(f"{base}/status")).json()
            ends = {name: row["end"] for name, row in status["partitions"].items()}
            assert sum(ends.values()) == stored.total() + 20, (
                "what has a key is stored nowhere else"
            )
