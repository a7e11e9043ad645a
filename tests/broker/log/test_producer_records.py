"""How records of numbered producers age: by what the broker has seen pass, and by no jump."""

import asyncio

import pytest

from partq.broker.log.appender import MAX_CALL_BATCHES, MAX_PASSED_MS
from partq.core.model import PartitionId
from partq.store.keys import Keys
from partq.store.records.log import AppendBatch
from tests.broker.conftest import UID

PARTITION = PartitionId(1, 0)
HOUR_S = 3600
DAY_S = 24 * HOUR_S


class Submitter:
    """Submits batches to the appender of a partition and waits for what becomes of them."""

    def __init__(self, running, keys):
        self.running = running
        self.keys = keys

    @property
    def appender(self):
        return self.running.broker.owned[PARTITION].appender

    def submit(self, producer, age_ms=0):
        """Submit the first message of a producer; return the future result."""
        answered = asyncio.get_running_loop().create_future()
        batch = AppendBatch(producer, 0, 1, b"x", age_ms=age_ms)
        self.appender.submit(batch, answered.set_result)
        return answered

    async def __call__(self, producer, age_ms=0):
        return (await self.submit(producer, age_ms)).status

    async def passed_ms(self):
        """Return how much time has passed in the partition, as it is stored."""
        key = self.keys.meta(PARTITION)
        return int(await self.running.store.read("HGET", key, "passed_ms"))

    async def known(self):
        """Return the producers that the partition knows."""
        key = self.keys.producers(PARTITION)
        return set(await self.running.store.read("HKEYS", key))

    async def forget(self, producer):
        """Push a producer's record out, as a newer one does where the table is full."""
        table, meta = self.keys.producers(PARTITION), self.keys.meta(PARTITION)
        record = await self.running.store.read("HGET", table, producer)
        used_ms = record.split()[1].decode()
        await self.running.store.read("HDEL", table, producer)
        await self.running.store.read("HSET", meta, "producers_forgotten_ms", used_ms)


@pytest.fixture
def lease_ttl_s():
    """A played clock that goes ahead must not end it."""
    return 30.0 * DAY_S


@pytest.fixture
def submit(running, key_prefix):
    return Submitter(running, Keys(key_prefix, "default", "orders", UID))


async def test_time_that_passes_is_counted(submit, clock):
    await submit("p")
    before, began = await submit.passed_ms(), clock()
    clock.ahead_s += 5.0
    await submit("q")
    assert 5000 <= await submit.passed_ms() - before <= (clock() - began) * 1000 + 1000


async def test_small_gaps_are_counted_whole(submit, clock):
    """Hundreds of calls, each a part of a millisecond after the one before it."""
    await submit("p")
    before = await submit.passed_ms()
    for _ in range(100):
        clock.ahead_s += 0.0105
        await submit("")
    assert await submit.passed_ms() - before >= 1050 - 1


async def test_of_a_time_that_a_broker_stood_still_the_rest_is_never_counted(submit, clock):
    """Neither at once nor with the calls that follow."""
    await submit("p")
    before, began = await submit.passed_ms(), clock()
    clock.ahead_s += 2 * DAY_S
    for _ in range(3):
        await submit("")
    moved_ms = (clock() - began - 2 * DAY_S) * 1000
    assert await submit.passed_ms() - before <= MAX_PASSED_MS + moved_ms + 1000


async def test_a_broker_that_stood_still_makes_no_record_idle(submit, clock):
    """Repeats that waited to be read did not grow older meanwhile."""
    await submit("p")
    clock.ahead_s += 2 * DAY_S
    assert await submit("q") == "stored"
    assert await submit.known() == {b"p", b"q"}
    assert await submit("p", age_ms=1) == "duplicate"


async def test_a_broker_that_stood_still_hides_no_record_that_was_pushed_out(submit, clock):
    await submit("p")
    clock.ahead_s += HOUR_S
    await submit("q")
    await submit.forget("p")
    clock.ahead_s += HOUR_S
    await submit("q")
    assert await submit("p", age_ms=1) == "unknown_producer"


async def test_a_repeat_grows_older_while_it_waits_to_be_stored(submit, running, clock):
    """The calls before it take long: the age that it came with is as of then."""
    await submit("p")
    await submit.forget("p")
    append = running.broker.log.append

    async def slow_append(*args, **kwargs):
        clock.ahead_s += 9.0
        return await append(*args, **kwargs)

    running.broker.log.append = slow_append
    earlier = [submit.submit("") for _ in range(MAX_CALL_BATCHES * 20)]
    repeat = submit.submit("p", age_ms=1)
    assert (await repeat).status == "unknown_producer"
    assert {each.result().status for each in earlier} == {"stored"}
