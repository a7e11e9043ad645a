"""A group of order Key under a coordinator: members come and go while a key fails."""

import asyncio
from collections import defaultdict

from partq import Consumer, Producer
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker

KEYS = [f"key-{number}" for number in range(12)]
POISON, EACH, WAIT_S = KEYS[3], 10, 60.0
KEY_ORDER = {"order": "Key", "delaySeconds": 0.2}


class Work:
    """What the members of a group have done, by key."""

    def __init__(self):
        self.done = defaultdict(list)
        self.failed, self.is_mended = 0, False

    @property
    def others(self):
        return sum(len(set(done)) for key, done in self.done.items() if key != POISON)

    async def take(self, consumer):
        async for message in consumer:
            if message.key == POISON and not self.is_mended:
                assert message.value == b"0", "nothing of the key comes before its first"
                self.failed += 1
                await consumer.nack(message)
                continue
            self.done[message.key].append(int(message.value))
            await consumer.ack(message)


async def publish(producer, numbers):
    for number in numbers:
        for key in KEYS:
            await producer.send(str(number).encode(), key=key)


def consumer_of(local, member):
    options = {"queue": "orders", "group": "workers", "token": local.tokens.consume}
    return Consumer(local.url, **options, member=member, handle_signals=False)


async def test_members_come_and_go_while_a_key_fails():
    """Partitions move without waiting for the key, and it is done in order once it is mended."""
    work, others = Work(), (len(KEYS) - 1) * EACH
    async with (
        LocalBroker(partitions=2, groups={"workers": {"nack": KEY_ORDER}}) as local,
        Producer(local.url, queue="orders", token=local.tokens.produce) as producer,
        consumer_of(local, "m") as first,
        asyncio.timeout(WAIT_S),
    ):
        await publish(producer, range(EACH // 2))
        taking = asyncio.create_task(work.take(first))
        await eventually(lambda: work.failed > 1, "the key fails")
        async with consumer_of(local, "n") as second:
            joined = asyncio.create_task(work.take(second))
            await eventually(lambda: second.partitions, "the second has a partition")
            await publish(producer, range(EACH // 2, EACH))
            await eventually(lambda: work.others == others, "the others are done")
            joined.cancel()
        work.is_mended = True
        await eventually(
            lambda: all(len(set(work.done[key])) == EACH for key in KEYS), "all is done"
        )
        taking.cancel()
    for done in work.done.values():
        assert list(dict.fromkeys(done)) == list(range(EACH))
