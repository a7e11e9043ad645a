"""A deterministic producer whose store forgets messages, and a change of the partition count."""

import asyncio
import shutil
from contextlib import suppress

import pytest

from partq.errors import PartqError
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.client.produce.deterministic.test_across_changes import (
    MESSAGES,
    WAIT_S,
    expected,
    followed,
    producer_of,
    publish,
    reached,
    stored,
)
from tests.client.test_change_with_brokers import change


class Disk:
    """The files of a local Redis, which a test may put back."""

    def __init__(self, local, directory):
        self.redis = local.runtime.redis
        self.data, self.copy = directory / "data" / "redis", directory / "copy"

    def keep(self):
        """Keep what is confirmed by now."""
        self.redis.freeze()
        shutil.copytree(self.data, self.copy)
        self.redis.thaw()

    async def put_back(self):
        """Have Redis lose what it has confirmed since."""
        await self.redis.stop()
        shutil.rmtree(self.data)
        shutil.copytree(self.copy, self.data)
        await self.redis.start()


@pytest.fixture
async def local(tmp_path):
    async with (
        asyncio.timeout(WAIT_S),
        LocalBroker(queue="orders", partitions=4, data_dir=tmp_path / "data") as local,
    ):
        yield local


@pytest.fixture
async def producer(local):
    producer = await producer_of(local).__aenter__()
    yield producer
    with suppress(PartqError):  # the test looks at what it has told
        await producer.close()


async def changed(local, producer):
    """Make a change, and have the producer follow it."""
    await change(local, 6)
    await reached(local, 2)
    await followed(producer, 2)


async def change_again(local):
    """Ask for a change; return whether the broker has taken it, which sees a new Redis."""
    try:
        await change(local, 6)
    except AssertionError:
        return False
    return True


async def publish_until_it_stops(producer, messages):
    """Expect that a producer gives up, and says that the store has lost messages."""

    async def publish_all():
        await publish(producer, messages)
        await producer.flush()

    with pytest.raises(PartqError) as stopped:
        await publish_all()
    return str(stopped.value)


async def test_a_store_that_keeps_the_change_and_loses_messages_ends_it(local, producer, tmp_path):
    """The next process begins with the first message, and each of them is stored once."""
    disk = Disk(local, tmp_path)
    await publish(producer, MESSAGES[:200])
    await changed(local, producer)
    await publish(producer, MESSAGES[200:300])
    await producer.flush()
    disk.keep()
    await publish(producer, MESSAGES[300:400])
    await producer.flush()
    await disk.put_back()
    assert "the store has lost" in await publish_until_it_stops(producer, MESSAGES[400:])
    with suppress(PartqError):
        await producer.close()
    async with producer_of(local) as last:
        assert await publish(last) >= 300
    assert await stored(local) == expected()


async def test_a_change_that_the_store_loses_and_that_is_made_again_ends_it(
    local, producer, tmp_path
):
    """Nothing of what it sends next has a number, yet: the partitions take it as the first."""
    disk = Disk(local, tmp_path)
    await publish(producer, MESSAGES[:100])
    await producer.flush()
    disk.keep()
    await publish(producer, MESSAGES[100:200])
    await changed(local, producer)
    await producer.flush()
    await disk.put_back()
    await eventually(lambda: change_again(local), "the change is begun again")
    await reached(local, 2)
    told = await publish_until_it_stops(producer, MESSAGES[200:300])
    assert "from before a change of the partition count, and the store has" in told
