"""The examples run as a reader would run them, against a real queue."""

import asyncio
import json
import signal

import pytest

from partq import Producer
from partq.testing.local_broker import LocalBroker
from tests.examples.programs import WAIT_S, output, start
from tests.undecodable import KEY, publish_undecodable

COUNT = 200


@pytest.fixture
async def broker():
    async with LocalBroker(queue="orders", groups=["workers"]) as local:
        yield local


async def produce(broker, count):
    given = ("--url", broker.url, "--token", broker.tokens.produce, "--count", str(count))
    return await output(await start("produce.py", *given))


async def consume(broker, *more):
    return await start("consume.py", "--url", broker.url, "--token", broker.tokens.consume, *more)


@pytest.mark.req("SOL-03", "SOL-16", "PUL-125")
async def test_orders_are_published_and_each_customer_s_processed_in_order(broker):
    first, others = await produce(broker, COUNT)
    assert first.startswith("order 0 is at offset 0 of partition 1.")
    assert f"{COUNT - 1} more orders are stored" in others
    lines = await output(await consume(broker, "--stop-after", str(COUNT)))
    assert f"{COUNT} orders processed" in lines
    orders: dict[str, list[int]] = {}
    for line in lines:
        if line.startswith("customer-"):
            customer, _, rest = line.partition(": order ")
            orders.setdefault(customer, []).append(int(rest.partition(",")[0]))
    assert sum(map(len, orders.values())) == COUNT
    assert all(numbers == sorted(set(numbers)) for numbers in orders.values())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_sigterm_and_ctrl_c_end_the_consumer_in_order(broker, number):
    await produce(broker, COUNT)
    consumer = await consume(broker)
    processed = 0
    async with asyncio.timeout(WAIT_S):
        while processed < COUNT:
            processed += b": order " in await consumer.stdout.readline()
    consumer.send_signal(number)
    rest = await output(consumer)
    assert rest[-1] == f"{COUNT} orders processed"
    assert sum("went elsewhere" in line for line in rest) == 4


@pytest.mark.parametrize("name", ["consume", "ack_last", "fenced_sink", "shared_state"])
async def test_an_undecodable_message_does_not_end_an_example(broker, name, tmp_path):
    given = ["--url", broker.url, "--token", broker.tokens.consume]
    if name in {"fenced_sink", "shared_state"}:
        given += ["--database", str(tmp_path / "state.db")]
    consumer = await start(f"{name}.py", *given)
    await publish_undecodable(
        broker.url, "orders", broker.tokens.produce, count=3, partition_count=4
    )
    order = {"order": 0, "line": 0, "lines": 1, "cents": 500}
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        await producer.send_and_wait(json.dumps(order).encode(), key=KEY)
    lines: list[str] = []
    async with asyncio.timeout(WAIT_S):
        while line := (await consumer.stdout.readline()).decode():
            lines.append(line)
            if line.startswith(f"{KEY}: "):
                break
    assert lines[-1].startswith(f"{KEY}: "), "".join(lines)
    assert any("cannot be read from offset 0 to 2" in line for line in lines), "it is told"
    consumer.send_signal(signal.SIGTERM)
    await output(consumer)
