"""Consumers of a group of order Key, in a program, at brokers in this process.

One key of 24 fails for a while. The others are done in the meantime, and each key keeps its order,
through handoffs and the death of a broker.
"""

import asyncio
from collections import defaultdict
from itertools import pairwise

import pytest

from partq import Consumer
from partq.core.hashing import slot_of
from partq.testing import eventually
from partq.wire import batch, frames
from tests.broker.conftest import CONSUME, Handoff, open_producer
from tests.broker.delivery.keyed import KEY_ORDER, follow
from tests.broker.ownership.test_failover import kill

KEYS = [key for key in (f"key-{number}" for number in range(400)) if slot_of(key) < 1 << 14][:24]
"""All of partition 1.0."""
POISON = KEYS[5]
EACH, AT_ONCE = 20, 60
TOTAL = len(KEYS) * EACH
WAIT_S = 60.0


@pytest.fixture
def lease_ttl_s():
    """Short enough for a broker that is killed."""
    return 4.0


class Work:
    """What members do, and whether the keys keep their order."""

    def __init__(self, *, fails):
        self.fails = fails
        """How often the first message of the key fails."""
        self.done = defaultdict(list)
        self.before_poison = 0
        """How many messages of other keys were done before the first of this key."""
        self.failed = 0

    @property
    def others(self):
        return sum(len(done) for key, done in self.done.items() if key != POISON)

    @property
    def is_over(self):
        return all(len(set(self.done[key])) == EACH for key in KEYS)

    def check(self):
        """Each key was done in order; what was done again is what may have been in hand."""
        for key, done in self.done.items():
            firsts = list(dict.fromkeys(done))
            assert firsts == sorted(firsts), f"{key}: {done}"
            for before, after in pairwise(done):
                assert after <= before + 1, f"{key}: {done}"

    async def take(self, consumer):
        """Process messages until all of the queue is done."""
        async for message in consumer:
            await asyncio.sleep(0)
            if message.key == POISON and self.failed < self.fails:
                assert int(message.value) == 0, "nothing of the key comes before its first"
                self.failed += 1
                await consumer.nack(message)
                continue
            if message.key == POISON and not self.done[POISON]:
                self.before_poison = self.others
            self.done[message.key].append(int(message.value))
            consumer.ack_nowait(message)


def consumer_of(running, member):
    return Consumer(
        running.url, queue="orders", group="workers", token=CONSUME, member=member,
        handle_signals=False, leave_timeout_s=0.05,
    )  # fmt: skip


async def published(running):
    """Publish all, each batch with messages of all keys."""
    producer = await open_producer(running)
    messages = [(key, number) for number in range(EACH) for key in KEYS]
    for start in range(0, TOTAL, AT_ONCE):
        part = messages[start : start + AT_ONCE]
        bodies = [batch.encode_message(batch.Message(key, b"%d" % n)) for key, n in part]
        data = batch.encode(bodies, [slot_of(key) for key, _ in part])
        await producer.send(frames.Publish(1, 1, 0, start), data)
        await producer.expect(frames.Published)


async def until(condition, what):
    await eventually(condition, what, timeout_s=WAIT_S)


@pytest.fixture
async def keyed(running):
    await follow(running, nack={**KEY_ORDER, "delaySeconds": 0.3})
    await running.assign("m", [0])
    await published(running)
    return running


async def test_one_key_fails_and_the_others_are_done_meanwhile(keyed):
    work = Work(fails=4)
    async with consumer_of(keyed, "m") as consumer:
        taking = asyncio.create_task(work.take(consumer))
        await until(lambda: work.others == TOTAL - EACH, "the others are done")
        await until(lambda: work.is_over, "all is done")
        await consumer.flush()
        taking.cancel()
    work.check()
    assert work.failed == 4
    assert (await keyed.state())["lag"] == 0
    assert all(done == list(range(EACH)) for done in work.done.values()), "each once"


async def test_a_handoff_does_not_wait_for_a_key_that_waits(keyed):
    """The key fails for good, until the second member has taken over."""
    work = Work(fails=1_000_000)
    await follow(keyed, nack={"delaySeconds": 3600.0})
    async with consumer_of(keyed, "m") as first, consumer_of(keyed, "n") as second:
        members = [asyncio.create_task(work.take(each)) for each in (first, second)]
        await until(lambda: work.failed and work.others >= TOTAL // 3, "some are done")
        handoff = await Handoff.begin(keyed)
        assert (await handoff.pause())["code"] == ""
        drained = await handoff.drain(wait_ms=10_000)
        assert drained["is_drained"], drained
        assert (await handoff.commit())["code"] == ""
        await until(lambda: work.others == TOTAL - EACH, "the others are done")

        async def all_others_are_stored():
            state = await keyed.state()
            return (state["member"], state["lag"], state["parked_keys"]) == ("n", EACH, 1)

        await until(all_others_are_stored, "their acks have come, and the key waits")
        work.fails = 0
        body = {"key": POISON, "partitions": ["1.0"]}
        path = "/v1/queues/orders/groups/workers/keys/release"
        _, answer = await keyed.call("POST", path, json=body)
        assert answer["partitions"]["1.0"] == {"is_released": True}
        await until(lambda: work.is_over, "all is done")
        for each in members:
            each.cancel()
    work.check()
    assert work.failed == 1


async def test_a_broker_is_killed_while_a_key_waits(keyed, start_broker):
    """The next broker has the key wait on, and its order is kept."""
    work = Work(fails=6)
    other = await start_broker("orders-1")
    async with consumer_of(other, "m") as consumer:
        taking = asyncio.create_task(work.take(consumer))
        await until(lambda: work.failed and work.others >= TOTAL // 3, "some are done")
        await kill(keyed)

        async def all_is_stored():
            return work.is_over and (await other.state())["lag"] == 0

        await until(all_is_stored, "all is done, and stored")
        taking.cancel()
    work.check()
    assert work.failed >= 6


async def test_releases_race_with_nacks_of_the_key(keyed):
    """Each nack waits for an hour, unless a release ends that; none is lost between the two."""
    work = Work(fails=20)
    await follow(keyed, nack={"delaySeconds": 3600.0})
    path = "/v1/queues/orders/groups/workers/keys/release"

    async def release():
        while not work.is_over:
            _, answer = await keyed.call("POST", path, json={"key": POISON})
            assert "error" not in answer["partitions"]["1.0"], answer

    async with consumer_of(keyed, "m") as consumer:
        taking = asyncio.create_task(work.take(consumer))
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*(release() for _ in range(3)))
        taking.cancel()
    work.check()
    assert work.failed == 20
    assert all(done == list(range(EACH)) for done in work.done.values()), "each once"


async def test_the_order_changes_while_keys_wait_and_back(keyed):
    """Nothing is lost: what waits goes out again at once, by whichever order holds then."""
    failed, done = 0, set()
    is_failing = True
    await follow(keyed, nack={"delaySeconds": 3600.0})

    async def take(consumer):
        nonlocal failed
        async for message in consumer:
            if message.key == POISON and is_failing:
                await consumer.nack(message)
                failed += 1
            else:
                done.add((message.key, int(message.value)))
                consumer.ack_nowait(message)

    async with consumer_of(keyed, "m") as consumer:
        taking = asyncio.create_task(take(consumer))
        await until(lambda: len(done) == TOTAL - EACH, "the others are done")
        assert (failed, (await keyed.state())["parked_keys"]) == (1, 1)
        await follow(keyed, nack={"order": "Free"})
        await until(lambda: failed == 1 + EACH, "each of the key fails alone")
        await follow(keyed, nack={"order": "Key"})
        await until(lambda: failed == 2 + EACH, "the first one fails, and holds up the others")
        is_failing = False
        assert not done.intersection((POISON, number) for number in range(EACH))
        await follow(keyed, nack={"order": "Free"})
        await until(lambda: len(done) == TOTAL, "all is done")
        taking.cancel()
        await consumer.flush()
    assert (await keyed.state())["lag"] == 0
