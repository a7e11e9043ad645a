"""Consumers of a group of order Key, with real brokers: each key in order, whatever happens."""

import asyncio
import random
from collections import Counter

import pytest
import pytest_asyncio

from partq import Cause, Consumer, Message, Producer
from partq.aio import TaskSet
from partq.errors import BadRequestError
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAIT_S = 60.0
KEYS = [f"key-{number}" for number in range(24)]
PER_KEY = 8
GROUPS = ("one-by-one", "at-once", "unawaited", "lists", "batches", "moving", "paused", "poison")
KEY_ORDER = {"nack": {"order": "Key", "delaySeconds": 0}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local():
    groups = dict.fromkeys(GROUPS, KEY_ORDER)
    spec = {"rebalance": {"maxHandoffSeconds": WAIT_S, "delaySeconds": 0}}
    async with LocalBroker(partitions=2, broker_count=2, groups=groups, spec=spec) as local:
        async with Producer(local.url, queue="orders", token=local.tokens.produce) as producer:
            for number in range(PER_KEY):
                await producer.send_many([Message(key, str(number).encode()) for key in KEYS])
        yield local


class Application:
    """Processes messages, gives some back, and watches the order of each key."""

    def __init__(self, local, group, *, nacked=0.1):
        self.local, self.group = local, group
        self.random = random.Random(group)
        self.nacked = nacked
        self.due = Counter()
        """The next number of each key."""
        self.failed = Counter()
        self.disorder = []

    def consumer(self, name="m"):
        local = self.local
        return Consumer(
            local.url, queue="orders", group=self.group, token=local.tokens.consume, member=name,
            handle_signals=False,
        )  # fmt: skip

    @property
    def is_done(self):
        return sum(self.due.values()) >= len(KEYS) * PER_KEY

    def begins(self, message):
        """Note that a message was handed out; return whether it succeeds."""
        number = int(message.value)
        if number != self.due[message.key]:
            self.disorder.append((message.key, number, self.due[message.key], message.cause))
        if message.redeliveries != self.failed[message.key, number]:
            self.disorder.append((message.key, number, message.redeliveries))
        if self.random.random() < self.nacked:
            self.failed[message.key, number] += 1
            return False
        self.due[message.key] = number + 1
        return True

    async def process(self, consumer, message):
        if self.begins(message):
            await consumer.ack(message)
        else:
            await consumer.nack(message)

    async def run(self, consumer, concurrency):
        """Process until all is done, then leave."""

        async def handle(message):
            await asyncio.sleep(0)
            await self.process(consumer, message)
            if self.is_done:
                consumer.leave()

        await consumer.run(handle, concurrency=concurrency)


@pytest.mark.parametrize(("group", "concurrency"), [("one-by-one", 1), ("at-once", 16)])
async def test_each_key_is_in_order_through_nacks(local, group, concurrency):
    application = Application(local, group)
    async with asyncio.timeout(WAIT_S), application.consumer() as consumer:
        await application.run(consumer, concurrency)
        assert consumer.stats().acked <= len(KEYS) * PER_KEY
    assert application.disorder == []
    assert sum(application.failed.values()) > 0


async def test_each_key_is_in_order_while_nacks_have_no_answer(local):
    """The loop goes on: of the key that was given back it gets nothing before the answer."""
    application = Application(local, "unawaited", nacked=0.2)
    nacks = TaskSet()
    async with asyncio.timeout(WAIT_S), application.consumer() as consumer:
        beside = 0
        async for message in consumer:
            if application.begins(message):
                beside += bool(nacks)
                await consumer.ack(message)
            else:
                nacks.start(consumer.nack(message))
                await asyncio.sleep(0)  # it begins before the next message is handed out
            if application.is_done:
                break
        await nacks.close()
    assert application.disorder == []
    assert beside > 0, "others were handed out before an answer"


async def test_each_key_is_in_order_in_lists_that_give_back_the_rest_of_a_key(local):
    application = Application(local, "lists", nacked=0.05)
    async with asyncio.timeout(WAIT_S), application.consumer() as consumer:
        while not application.is_done:
            given_back = set()
            for message in await consumer.getmany(100, timeout_s=1):
                if message.key in given_back:
                    application.failed[message.key, int(message.value)] += 1
                    await consumer.nack(message)
                elif application.begins(message):
                    await consumer.ack(message)
                else:
                    given_back.add(message.key)
                    await consumer.nack(message)
    assert application.disorder == []


async def test_each_key_is_in_order_in_batches(local):
    application = Application(local, "batches", nacked=0.05)
    async with asyncio.timeout(WAIT_S), application.consumer() as consumer:
        async for batch in consumer.batches():
            given_back = set()
            for message in batch.deliveries():
                if message.key in given_back:
                    application.failed[message.key, int(message.value)] += 1
                elif application.begins(message):
                    continue
                given_back.add(message.key)
                await consumer.nack(message)
            await consumer.ack(batch)
            if application.is_done:
                break
        with pytest.raises(BadRequestError, match="Key"):
            await consumer.ack_cumulative(batch)
    assert application.disorder == []


async def test_each_key_is_in_order_while_members_come_and_go(local):
    application = Application(local, "moving", nacked=0.2)

    async def visit(name):
        async with application.consumer(name) as consumer:
            running = asyncio.create_task(application.run(consumer, 4))
            await eventually(lambda: consumer.partitions or running.done(), "it has a partition")
            for _ in range(20):
                await asyncio.sleep(0)
            consumer.leave()
            await running

    async with asyncio.timeout(WAIT_S), application.consumer() as stays:
        running = asyncio.create_task(application.run(stays, 8))
        visits = 0
        while not running.done() and visits < 3:
            visits += 1
            await visit(f"guest-{visits}")
        await running
    assert application.disorder == []


async def test_each_key_is_in_order_through_pauses(local):
    """They end before the broker has got back what it asks for."""
    application = Application(local, "paused")

    async def handle(message):
        await application.process(consumer, message)
        consumer.pause(consumer.partitions)
        await asyncio.sleep(0)
        consumer.resume(consumer.partitions)
        if application.is_done:
            consumer.leave()

    async with asyncio.timeout(WAIT_S), application.consumer() as consumer:
        await consumer.run(handle, concurrency=4)
        assert consumer.stats().returned > 0
    assert application.disorder == []


async def test_a_key_that_waits_holds_up_no_other(local):
    """Its messages come behind the one that was given back, with no cause: none was begun."""
    application = Application(local, "poison", nacked=0)
    seen = []
    async with asyncio.timeout(WAIT_S), application.consumer() as consumer:
        async for message in consumer:
            if message.key != KEYS[0]:
                assert application.begins(message)
                await consumer.ack(message)
            elif sum(application.due.values()) < PER_KEY * (len(KEYS) - 1):
                assert int(message.value) == 0
                await consumer.nack(message, delay_s=0.05)
            else:
                seen.append((int(message.value), message.cause))
                application.due[message.key] += 1
                await consumer.ack(message)
            if application.is_done:
                break
    assert seen == [(0, Cause.NACK), *((number, Cause.NONE) for number in range(1, PER_KEY))]
    assert application.disorder == []
