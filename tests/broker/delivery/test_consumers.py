"""The clients' own code at a broker in this process."""

import asyncio

import pytest

from partq import Consumer, Message, Producer
from tests.broker.conftest import queue_and_group

COUNT = 40
WAIT_S = 60.0


@pytest.fixture(params=[1, 4], ids="{} partitions".format)
def partitions(request):
    return request.param


@pytest.fixture
def resources(partitions):
    return queue_and_group(partitions=partitions)


@pytest.fixture
def lease_ttl_s():
    """Nothing here is about leases: none shall be over on a busy machine."""
    return 30.0


@pytest.mark.req("SOL-17", "SOL-21", "SOL-U05", "AZR-13")
async def test_consuming_code_is_the_same_for_any_number_of_partitions(running, peers, partitions):
    """Bind to the queue, get messages in a callback: a queue in order is one with one partition."""
    await running.assign("m", list(range(partitions)))
    async with Producer(running.url, queue="orders", token=peers.PRODUCE) as producer:
        messages = [Message(f"key-{n % 8}", str(n).encode()) for n in range(COUNT)]
        await (await producer.send_many(messages))
    got = []
    done = asyncio.Event()

    def handle(message):
        got.append((message.key, int(message.value)))
        if len(got) == COUNT:
            done.set()

    consumer = Consumer(
        running.url, queue="orders", group="workers", token=peers.CONSUME, member="m",
        auto_ack=True, handle_signals=False, leave_timeout_s=0.05,
    )  # fmt: skip
    async with consumer, asyncio.timeout(WAIT_S):
        work = asyncio.create_task(consumer.run(handle))
        await done.wait()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    assert sorted(got) == sorted((f"key-{n % 8}", n) for n in range(COUNT))
    for key in {key for key, _ in got}:
        numbers = [number for name, number in got if name == key]
        assert numbers == sorted(numbers)
    if partitions == 1:
        assert [number for _, number in got] == list(range(COUNT))
