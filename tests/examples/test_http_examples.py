"""The examples of plain HTTP run as a reader would run them, against two brokers."""

import asyncio
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from aiohttp import ClientSession

from partq import Producer
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.even_shares import even_shares
from tests.examples.programs import EXAMPLES, WAIT_S, output, run

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
CUSTOMERS = [f"customer-{number}" for number in range(12)]


def needs(program):
    reason = f"{program} is not installed, and the example is for it"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


@pytest.fixture
async def broker():
    """Two brokers that own two partitions each."""
    async with LocalBroker(broker_count=2) as local:
        await even_shares(local.queue)
        yield local


async def start(broker, *command):
    environment = os.environ | {
        "PARTQ_URL": broker.url,
        "PARTQ_QUEUE": "orders",
        "PARTQ_GROUP": "workers",
        "PARTQ_TOKEN": broker.tokens.consume,
        "PARTQ_CONSUME_TOKEN": broker.tokens.consume,
        "PARTQ_PRODUCE_TOKEN": broker.tokens.produce,
    }
    return await run(*command, env=environment)


async def publish_numbers(broker, count):
    """Publish the numbers below `count` for each customer, in order."""
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        for number in range(count):
            for customer in CUSTOMERS:
                await producer.send(str(number).encode(), key=customer)
        await producer.flush()


async def read_lines(process, count):
    """Return so many lines that a process prints."""
    lines: list[str] = []
    async with asyncio.timeout(WAIT_S):
        while len(lines) < count:
            lines.append((await process.stdout.readline()).decode())
            assert lines[-1], lines
    return lines


@needs("curl")
async def test_curl_publishes_pulls_acknowledges_and_gives_back_at_both_brokers(broker):
    lines = await output(await start(broker, "bash", str(EXAMPLES / "curl.sh")))
    published = [line for line in lines if line.startswith("published ")]
    again = [line for line in lines if line.startswith("again ")]
    place = r'"partition":"([^"]+)","offset":(\d+)'
    assert len(published) == 8
    assert '"is_duplicate":true' in again[0]
    assert re.search(place, again[0]).groups() == re.search(place, published[-1]).groups()
    done = [re.match(r"processed (\w+): order (\d+), from (\S+)", line) for line in lines]
    found = [match.groups() for match in done if match]
    orders = {key: [n for k, n, _ in found if k == key] for key, _, _ in found}
    assert orders == {key: ["0", "1"] for key in ("ada", "bob", "cem", "dia")}
    assert lines.count("gave back ada: order 0") == 1
    assert len({url for _, _, url in found}) == 2
    assert lines[-1] == "8 processed at 2 brokers"


@needs("curl")
async def test_curl_ends_where_what_it_gives_back_becomes_a_dead_letter():
    """Its dead-letter queue is not there: that partition stands still."""
    group = {"ack": {"maxRedeliveries": 0}, "deadLetter": {"queue": "letters"}}
    async with LocalBroker(groups={"workers": group}) as local:
        process = await start(local, "env", "PARTQ_IDLE_S=5", "bash", str(EXAMPLES / "curl.sh"))
        text = "\n".join(await output(process, status=1))
    assert re.search(r"\d of 8 did not come for 5 s; are they dead letters, or", text)


@needs("node")
async def test_node_consumes_from_both_brokers_in_order(broker):
    """Each customer's in order; SIGTERM ends it once its partitions are handed over."""
    stranger = await start(
        broker, "env", "PARTQ_TOKEN=nobody-knows-this", "node", str(EXAMPLES / "consume.mjs")
    )
    async with asyncio.timeout(WAIT_S):
        text, _ = await stranger.communicate()
    assert stranger.returncode == 1
    assert "unauthorized: unknown token" in text.decode()
    process = await start(broker, "node", str(EXAMPLES / "consume.mjs"))
    await publish_numbers(broker, 5)
    lines = await read_lines(process, 5 * len(CUSTOMERS))
    process.send_signal(signal.SIGTERM)
    rest = await output(process)
    found = [re.match(r"(\S+): (\d+), partition (\S+)", line).groups() for line in lines]
    for customer in CUSTOMERS:
        assert [number for key, number, _ in found if key == customer] == list("01234")
    assert {partition for _, _, partition in found} == {"1.0", "1.1", "1.2", "1.3"}
    assert rest[-1] == "60 processed"


async def test_the_consumer_of_the_clients_page_drains_both_brokers_by_one_url(broker):
    """Each customer's in order, each once, and all are acknowledged."""
    pytest.importorskip("requests")
    (program,) = re.findall(r"```python\n(import os.*?)```", PAGE, re.DOTALL)
    process = await start(broker, sys.executable, "-c", program)
    await publish_numbers(broker, 3)
    lines = await read_lines(process, 3 * len(CUSTOMERS))
    found = [line.split() for line in lines]
    for customer in CUSTOMERS:
        assert [number for key, number, _ in found if key == customer] == list("012")
    assert {partition for *_, partition in found} == {"1.0", "1.1", "1.2", "1.3"}

    async def is_drained():
        url = f"{broker.url.split(',')[0]}/v1/queues/orders/status"
        headers = {"Authorization": f"Bearer {broker.tokens.admin}"}
        async with ClientSession(headers=headers) as session, session.get(url) as response:
            return (await response.json())["groups"]["workers"]["lag"] == 0

    await eventually(is_drained, "all are acknowledged")
    process.kill()
    await process.wait()
