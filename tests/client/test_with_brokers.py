"""Producer and consumer against real brokers, one of which is killed under load."""

import asyncio
from collections import Counter

from partq import Cause, Consumer, FencedError, Message, Producer

KEYS = 40
PER_KEY = 100
WAIT_S = 60.0


class Reading:
    """What all consumers have seen, judged as it comes."""

    def __init__(self):
        self.next_of_key = Counter()
        self.out_of_order = []
        self.unexplained = []
        self.half = asyncio.Event()
        self.done = asyncio.Event()

    def note(self, delivery):
        number, expected = int(delivery.value), self.next_of_key[delivery.key]
        if number == expected:
            self.next_of_key[delivery.key] += 1
        elif number > expected:
            self.out_of_order.append((delivery, number, expected))
        elif delivery.cause is Cause.NONE:
            self.unexplained.append((delivery, number))
        total = self.next_of_key.total()
        if total >= KEYS * PER_KEY // 2:
            self.half.set()
        if total == KEYS * PER_KEY:
            self.done.set()


async def read(brokers, reading):
    """Consume until cancelled; acks over a broken connection are refused, as they should be."""
    url, token = brokers.url, brokers.tokens.consume
    async with Consumer(url, queue="orders", group="workers", token=token) as consumer:
        async for batch in consumer.batches():
            for delivery in batch.deliveries():
                reading.note(delivery)
            try:
                await consumer.ack(batch, confirmed=True)
            except FencedError:
                continue


async def publish(brokers):
    url, token = brokers.url, brokers.tokens.produce
    async with Producer(url, queue="orders", token=token, compression="zstd") as producer:
        for number in range(PER_KEY):
            value = str(number).encode()
            stored = await producer.send_many([Message(f"k{k}", value) for k in range(KEYS)])
            if number % 5 == 0:
                await stored  # a steady stream, not one burst: the kill shall hit it


async def test_a_killed_broker_costs_no_message_and_no_order(brokers):
    reading = Reading()
    consumers = [asyncio.create_task(read(brokers, reading)) for _ in range(2)]
    async with asyncio.timeout(WAIT_S):
        publishing = asyncio.create_task(publish(brokers))
        await reading.half.wait()
        await brokers.runtime.brokers[0].kill()
        await publishing
        await reading.done.wait()
    for consumer in consumers:
        consumer.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)
    assert reading.out_of_order == []
    assert reading.unexplained == []
