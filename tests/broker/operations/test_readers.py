"""A `Reader` beside its broker: its pin, its place, and what becomes of its wait."""

import asyncio

import pytest

from partq import LogPosition, QuotaExceededError, Reader, RolledBackError
from partq.broker.api.app_keys import LOG_WAITS
from partq.client import reader as reader_module
from partq.client.log_reader import LogReader
from partq.errors import BadRequestError
from partq.store.records import pins
from partq.testing import eventually


@pytest.fixture
def partition(peers):
    return peers.partition_id(0)


@pytest.fixture
def open_reader(running, peers, partition):
    """Make a reader of the first partition."""

    def make(**settings):
        settings = {"token": peers.CONSUME, "partitions": [partition], **settings}
        return Reader(running.url, "orders", **settings)

    return make


@pytest.fixture
async def log(running, peers):
    async with LogReader(running.url, queue="orders", token=peers.CONSUME) as opened:
        yield opened


async def read(reader):
    """Return the next message; it has a limit, as a reader waits without end."""
    async with asyncio.timeout(60):
        return await anext(reader)


async def acknowledge_all(log):
    """Have the only group be done with everything."""
    await log.commit("workers", await log.positions("latest"))


async def until_trimmed(log, partition, to):
    async def is_trimmed():
        return (await log.bounds([partition]))[partition].first == to

    await eventually(is_trimmed, f"the log begins at {to}")


async def test_a_pin_follows_what_was_read_and_ends_with_the_reader(
    producer, open_reader, log, partition, peers, monkeypatch
):
    monkeypatch.setattr(reader_module, "PIN_RENEW_S", 0.05)
    for value in "abcd":
        await producer.publish(value)
    async with open_reader() as reader:
        await acknowledge_all(log)
        for offset in range(3):
            assert (await read(reader)).offset == offset
            await until_trimmed(log, partition, offset + 1)
            # The trimmer looks at all partitions: it has looked again at the one that is pinned.
            for value in "xy":
                await producer.publish(value, partition=1)
            await acknowledge_all(log)
            await until_trimmed(log, peers.partition_id(1), 2 * offset + 2)
            assert (await log.bounds([partition]))[partition].first == offset + 1
    await until_trimmed(log, partition, 4)


async def test_without_a_pin_nothing_is_kept(producer, open_reader, log, partition):
    await producer.publish("a")
    async with open_reader(is_pinned=False):
        await acknowledge_all(log)
        await until_trimmed(log, partition, 1)


async def test_the_pin_of_a_reader_that_died_ends_by_itself(
    producer, open_reader, log, partition, monkeypatch
):
    monkeypatch.setattr(pins, "MAX_PIN_MS", 1)
    await producer.publish("a")
    async with open_reader() as reader:
        reader._renewing.cancel()  # as when its process has ended
        await acknowledge_all(log)
        await until_trimmed(log, partition, 1)


async def test_a_reader_that_gets_no_pin_leaves_none(
    running, open_reader, log, partition, peers, store
):
    """A process has as many pins as readers, and a partition has room for 16."""
    full = peers.partition_id(1)
    for number in range(pins.MAX_PINS):
        await log.pin(f"pin-{number}", {full: 0})
    with pytest.raises(QuotaExceededError, match=r"partition 1\.1: 16 pins hold its log"):
        async with open_reader(partitions=None):
            pass

    async def pinned():
        meta = await store.read("HGETALL", running.broker.keys.meta(partition))
        return [name for name in meta[::2] if name.startswith(b"pin:")]

    assert await pinned() == []
    async with open_reader(partitions=None, is_pinned=False) as reader:
        assert len(reader.positions()) == 4
    async with open_reader():
        assert len(await pinned()) == 1
    assert await pinned() == []


async def test_a_partition_that_moves_while_it_is_waited_for_is_read_on(
    running, start_broker, open_reader, partition, peers
):
    waits = running.app[LOG_WAITS]
    other = await start_broker("orders-1")
    async with open_reader() as reader:
        reading = asyncio.create_task(read(reader))
        await eventually(lambda: waits.count == 1, "it waits at the owner")
        await running.admin("/yield", {"partitions": [str(partition)]})
        (result,) = await other.admin("/claim", {"partitions": [str(partition)]})
        assert "error" not in result, result
        await eventually(lambda: other.app[LOG_WAITS].count == 1, "it waits at the next one")
        assert waits.count == 0
        at_other = await peers.open_producer(other)
        await at_other.publish("a")
        found = await reading
        assert (found.partition, found.offset, found.message.value) == (partition, 0, b"a")
        await at_other.close()


async def test_what_is_closed_while_it_waits_waits_no_longer(running, open_reader, monkeypatch):
    waits = running.app[LOG_WAITS]
    async with open_reader(partitions=None) as reader:
        reading = asyncio.create_task(read(reader))
        await eventually(lambda: waits.count == 4, "it waits in each partition")
    await eventually(lambda: waits.count == 0, "no call of it is left")
    with pytest.raises(RuntimeError, match="the reader was closed"):
        await reading


async def test_a_seek_stays_within_the_log(producer, open_reader, log, partition):
    for value in "abcd":
        await producer.publish(value)
    await log.commit("workers", {partition: LogPosition(partition, 0, 2)})
    await until_trimmed(log, partition, 2)
    async with open_reader(start={partition: 0}) as reader:

        async def place(where):
            await reader.seek(where)
            return reader.positions()[partition].offset

        assert reader.positions()[partition].offset == 2, "also at the start"
        last = [await read(reader) for _ in range(2)][1]
        assert [await place({partition: each}) for each in (0, 1, 3, 4)] == [2, 2, 3, 4]
        assert [await place({"at_ms": each}) for each in (0, 10**14)] == [2, 4]
        for seconds_or_microseconds in (1_700_000_000, 1_700_000_000_000_000):
            with pytest.raises(BadRequestError, match="usually not in milliseconds"):
                await reader.seek({"at_ms": seconds_or_microseconds})
        at = await place({"at_ms": last.publish_time_ms})
        assert at in (2, 3), "both may have been stored in one millisecond"
        assert (await read(reader)).publish_time_ms == last.publish_time_ms
        assert await place({partition: 10**30}) == 4
        reading = asyncio.create_task(read(reader))
        await producer.publish("e")
        assert (await reading).offset == 4
        # A position is checked, and tells what the store has lost.
        beyond = LogPosition(partition, last.append_broker_epoch, 99)
        await reader.seek({partition: beyond})
        with pytest.raises(RolledBackError, match="the log ends at 5, below 99"):
            await read(reader)
        assert await place({partition: beyond.offset}) == 5
