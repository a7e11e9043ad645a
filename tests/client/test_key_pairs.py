"""What consumers can do besides, in groups of order Key, with a real broker: each key in order."""

import asyncio
from collections import Counter

import pytest

from partq import ConnectionOptions, Consumer, ConsumerInterceptor, Message, QueuesConsumer, sync
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker

WAIT_S = 60.0
KEYS, PER_KEY = ("a", "b", "c"), 6
FAILS = {("a", 1): 2, ("c", 5): 1}
"""How often messages fail."""
GROUPS = ("several", "blocking", "by-itself")


@pytest.fixture(scope="module")
def local():
    groups = {name: {"nack": {"order": "Key", "delaySeconds": 0.02}} for name in GROUPS}
    with LocalBroker(partitions=1, groups=groups) as local:
        with sync.Producer(local.url, queue="orders", token=local.tokens.produce) as producer:
            numbers = [Message(key, b"%d" % n) for n in range(PER_KEY) for key in KEYS]
            producer.send_many(numbers)
            producer.flush()
        yield local


class Work:
    """Says which messages fail, and judges the order of each key."""

    def __init__(self):
        self.due = Counter()
        self.failed = Counter()

    @property
    def is_over(self):
        return sum(self.due.values()) == len(KEYS) * PER_KEY

    def begins(self, message):
        """Return whether a message succeeds."""
        place = message.key, int(message.value)
        assert place[1] == self.due[message.key], f"{place}, due is {self.due}"
        assert message.redeliveries == self.failed[place]
        if self.failed[place] < FAILS.get(place, 0):
            self.failed[place] += 1
            return False
        self.due[message.key] += 1
        return True

    def check(self):
        assert self.is_over
        assert self.failed == FAILS


async def test_a_consumer_of_several_queues(local):
    work = Work()
    options = ConnectionOptions(local.url, "orders", token=local.tokens.consume)
    consumer = QueuesConsumer(
        queues=["orders"], find=lambda: [options], group="several", handle_signals=False
    )
    async with consumer, asyncio.timeout(WAIT_S):
        async for message in consumer:
            if work.begins(message):
                await consumer.ack(message)
            else:
                await consumer.nack(message)
            if work.is_over:
                break
    work.check()


def test_a_blocking_consumer(local):
    work = Work()
    options = {"queue": "orders", "group": "blocking", "token": local.tokens.consume}
    with sync.Consumer(local.url, **options) as consumer:
        for message in consumer.messages(timeout_s=WAIT_S):
            if work.begins(message):
                consumer.ack(message)
            else:
                consumer.nack(message)
            if work.is_over:
                break
    work.check()


class Heard(ConsumerInterceptor):
    """Counts what it hears."""

    def __init__(self):
        self.counts = Counter()

    def on_consume(self, message):
        self.counts["consume"] += 1

    def on_ack(self, done, error):
        self.counts["ack" if error is None else error.code] += 1

    def on_nack(self, failed, error):
        self.counts["nack" if error is None else error.code] += 1


async def test_acks_by_themselves_with_an_interceptor(local):
    """What was given back is not acknowledged with the next message that is requested."""
    work, heard = Work(), Heard()
    consumer = Consumer(
        local.url, queue="orders", group="by-itself", token=local.tokens.consume,
        auto_ack=True, interceptors=[heard], handle_signals=False,
    )  # fmt: skip
    async with consumer, asyncio.timeout(WAIT_S):

        async def handle(message):
            if not work.begins(message):
                await consumer.nack(message)

        running = asyncio.create_task(consumer.run(handle, concurrency=4))
        failed, total = sum(FAILS.values()), len(KEYS) * PER_KEY
        await eventually(lambda: running.done() or heard.counts["ack"] == total, "all is done")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    work.check()
    assert heard.counts == {"consume": total + failed, "ack": total, "nack": failed}
