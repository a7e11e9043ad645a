"""A reader of logs through the death of brokers, and of a Redis that has forgotten some of them."""

import asyncio
import shutil

import pytest

from partq import PartitionId, Producer, RolledBackError
from partq.client.log_reader import LogReader
from partq.client.producer_state import producer_due
from partq.testing.local_broker import LocalBroker
from partq.wire import batch
from tests.even_shares import even_shares

P0, P1 = PartitionId(1, 0), PartitionId(1, 1)


class Queue:
    """A queue of two partitions and two brokers, what is published to it, and what is read."""

    def __init__(self, local):
        self.local = local
        self.stored = {}

    async def publish(self, name, count):
        async with Producer(
            self.local.url, queue="orders", token=self.local.tokens.produce, producer_id=name,
            max_batch_count=7,
        ) as producer:  # fmt: skip
            values = [f"{name}-{n}".encode() for n in range(count)]
            sent = [await producer.send(value, key=f"key-{value}") for value in values]
            for value, place in zip(values, await asyncio.gather(*sent), strict=True):
                self.stored[place.partition, place.offset] = value

    def reader(self, **settings):
        token = self.local.tokens.consume
        return LogReader(self.local.url, queue="orders", token=token, **settings)

    async def owner(self, partition):
        """Return the process that owns a partition."""
        async with self.reader() as reader:
            url = (await reader._router.queue_layout()).owners[partition]
        return next(broker for broker in self.local.runtime.brokers if broker.url == url)

    async def roll_back(self, *, to):
        """Start Redis on older files: all that was confirmed since is lost."""
        redis, data = self.local.runtime.redis, self.local.runtime.data_dir / "redis"
        await redis.stop()
        shutil.rmtree(data)
        shutil.copytree(to, data)
        await redis.start()


@pytest.fixture
async def queue():
    async with LocalBroker(partitions=2, broker_count=2, groups=["workers", "lake"]) as local:
        await even_shares(local.queue)
        yield Queue(local)


async def test_everything_is_read_once_through_the_death_of_a_broker(queue):
    await queue.publish("p", 200)
    seen = {}
    # Each answer holds one batch: the kill comes in the middle.
    async with queue.reader(fetch_bytes=1) as reader:
        ends = await reader.positions("latest")
        for partition, end in ends.items():
            at = 0
            async for each in reader.entries(partition, 0, end):
                assert each.first == at
                at += each.count
                values = [message.value for message in batch.decode(each.data)]
                seen |= {(partition, each.first + n): value for n, value in enumerate(values)}
                if partition == P0 and each.first == 0:
                    await (await queue.owner(P0)).kill()
            assert at == end.offset
        assert seen == queue.stored

        wanted = {partition: end.offset for partition, end in ends.items()}
        assert await reader.commit("lake", ends) == wanted
        assert await reader.commit("lake", await reader.positions("earliest")) == wanted
        cursors = await reader.positions({"group": "lake"})
        assert {partition: each.offset for partition, each in cursors.items()} == wanted
        others = await reader.positions({"group": "workers"})
        assert {each.offset for each in others.values()} == {0}
        assert {each.append_broker_epoch for each in others.values()} == {0}
    due = await producer_due(queue.local.url, "p", queue="orders", token=queue.local.tokens.produce)
    assert due == wanted


async def test_a_store_that_has_forgotten_messages_is_noticed(queue, tmp_path):
    """Others are stored at the same offsets by then: they are not taken for those of before."""
    await queue.publish("kept", 20)
    copy = tmp_path / "copy"
    shutil.copytree(queue.local.runtime.data_dir / "redis", copy)
    async with queue.reader(fetch_bytes=1) as reader:
        kept = await reader.positions("latest")
        await queue.publish("lost", 60)
        lost = await reader.positions("latest")
        middle = reader.entries(P0, kept[P0], lost[P0])
        await anext(middle)
        await queue.roll_back(to=copy)
        # Below what is known of it, or beyond: until then the log just ends too early.
        with pytest.raises(RolledBackError, match="the log ends at"):
            async for _ in reader.entries(P0, lost[P0]):
                pass
        with pytest.raises(RolledBackError, match="the log ends at"):
            await reader.commit("lake", lost)
        await queue.publish("after", 100)
        ends = await reader.positions("latest")
        assert ends[P0].offset > lost[P0].offset

        for reading in (
            reader.entries(P0, lost[P0]),
            reader.entries(P0, kept[P0], lost[P0]),
            middle,
        ):
            with pytest.raises(RolledBackError, match="the store has lost"):
                async for _ in reading:
                    pass
        with pytest.raises(RolledBackError, match="the store has lost"):
            await reader.commit("lake", lost)
        assert {each.offset for each in (await reader.positions({"group": "lake"})).values()} == {0}

        # What was not lost is read on, and committed, as if nothing had been.
        values = []
        for partition, end in ends.items():
            async for each in reader.entries(partition, kept[partition], end):
                values += [message.value for message in batch.decode(each.data)]
        assert sorted(values) == sorted(b"after-%d" % n for n in range(100))
        assert await reader.commit("lake", kept) == {p: each.offset for p, each in kept.items()}
