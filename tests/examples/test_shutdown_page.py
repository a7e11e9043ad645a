"""The programs of docs/shutdown.md, and what its table says of cancelled publishes."""

import asyncio
import os
import signal

import pytest

from partq import Browser, Consumer, Message, Producer
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.examples.pages import program_blocks
from tests.examples.test_page_programs import run

PAGE = "shutdown.md"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def broker():
    with LocalBroker(groups=["signals", "timeouts"]) as local:
        yield local


async def published(broker, value):
    async with Browser(broker.url, queue="orders", token=broker.tokens.consume) as browser:
        return [each.message.value async for each in browser.messages(1000)].count(value)


async def test_sigterm_does_not_interrupt_the_handler(broker):
    (text,) = program_blocks(PAGE, "Stop, or cancel")
    text = text.replace('"workers"', '"signals"')
    begun, ended = [], []

    async def process(message):
        begun.append(message)
        if len(begun) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)
        ended.append(message)

    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        await (await producer.send_many([Message(f"key-{n}", b"stop") for n in range(20)]))
    try:
        async with asyncio.timeout(WAIT_S):
            left = await run(text, url=broker.url, token=broker.tokens.consume, process=process)
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    assert begun == ended
    assert left["consumer"].stats().acked == len(ended) >= 1


async def test_a_publish_with_a_time_has_an_outcome(broker):
    text, _ = program_blocks(PAGE, "What a cancelled call leaves")
    left = await run(text, url=broker.url, token=broker.tokens.produce)
    assert left["outcome"].startswith("stored at ")


async def test_a_wait_with_a_timeout_loses_no_message(broker):
    _, text = program_blocks(PAGE, "What a cancelled call leaves")
    text = text.replace('"workers"', '"timeouts"').replace(
        "anext(consumer), 2", "anext(consumer), S"
    )
    names = {"url": broker.url, "token": broker.tokens.consume}
    assert (await run(text, **names, S=0))["message"] is None
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        await producer.send_and_wait(b"wait", key="w")
    assert (await run(text, **names, S=WAIT_S))["message"].value


async def test_a_cancelled_publish_that_was_taken_is_stored(broker):
    async with Producer(
        broker.url, queue="orders", token=broker.tokens.produce, linger_ms=50
    ) as producer:
        sending = asyncio.create_task(producer.send_and_wait(b"taken", key="a"))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    assert await published(broker, b"taken") == 1


async def test_one_that_was_waiting_for_room_is_not(broker):
    async with Producer(
        broker.url,
        queue="orders",
        token=broker.tokens.produce,
        linger_ms=10_000,
        max_pending_messages=1,
    ) as producer:
        await producer.send(b"first", key="a")
        waiting = asyncio.create_task(producer.send(b"second", key="a"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert (await published(broker, b"first"), await published(broker, b"second")) == (1, 0)


async def test_a_cancelled_consumer_leaves_its_message_to_the_next_one(broker):
    async def consume():
        async with Consumer(
            broker.url, queue="orders", group="timeouts", token=broker.tokens.consume
        ) as consumer:
            seen.append(await anext(consumer))
            await asyncio.Event().wait()

    seen = []
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        await producer.send_and_wait(b"again", key="w")
    task = asyncio.create_task(consume())
    await eventually(lambda: seen, "a message is processed")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with (
        asyncio.timeout(WAIT_S),
        Consumer(
            broker.url, queue="orders", group="timeouts", token=broker.tokens.consume
        ) as consumer,
    ):
        places = set()
        while (seen[0].partition, seen[0].offset) not in places:
            message = await anext(consumer)
            places.add((message.partition, message.offset))
            await consumer.ack(message)
