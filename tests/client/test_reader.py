"""A reader without a group: through the death of a broker, seeks, trims and a store rolled back."""

import asyncio
import shutil

import pytest

from partq import (
    BadRequestError,
    Consumer,
    DataLossError,
    PartitionId,
    Reader,
    RolledBackError,
    SettingsError,
)
from partq.testing import eventually
from tests.client.test_log_reader import P0, P1, queue

__all__ = ["queue"]


def open_reader(queue, **settings):
    return Reader(queue.local.url, "orders", token=queue.local.tokens.consume, **settings)


async def read(reader, count):
    """Return the next messages; it has a limit, as a reader waits without end."""
    async with asyncio.timeout(60):
        return [await anext(reader) for _ in range(count)]


def contents(found):
    return {(each.partition, each.offset): each.message.value for each in found}


async def test_it_reads_all_and_on_through_the_death_of_a_broker(queue):
    await queue.publish("p", 60)
    async with open_reader(queue) as reader:
        found = await read(reader, 60)
        waiting = asyncio.create_task(read(reader, 60))
        await (await queue.owner(P0)).kill()
        await queue.publish("q", 60)
        found += await waiting
        assert contents(found) == queue.stored
        for partition in (P0, P1):
            offsets = [each.offset for each in found if each.partition == partition]
            assert offsets == list(range(len(offsets)))
            assert reader.positions()[partition].offset == len(offsets)


async def test_nothing_from_before_a_seek_is_returned_after_it(queue):
    await queue.publish("p", 60)
    async with open_reader(queue) as reader:
        start = reader.positions()
        first = await read(reader, 5)
        await reader.seek("latest")
        waiting = asyncio.create_task(read(reader, 10))
        await queue.publish("late", 10)
        assert {each.message.value[:4] for each in await waiting} == {b"late"}

        await reader.seek("earliest")
        assert contents(await read(reader, 70)) == queue.stored
        await reader.seek(start)
        assert len(await read(reader, 70)) == 70
        await reader.seek({"at_ms": 0})
        assert len(await read(reader, 70)) == 70
        await reader.seek({P0: 3})
        assert [each.offset for each in await read(reader, 2)] == [3, 4], "the other one stays"
        assert first[0].publish_time_ms > 0
        for wrong in ("middle", {PartitionId(1, 9): 0}, {P0: -1}, {P0: True}, {}):
            with pytest.raises(BadRequestError):
                await reader.seek(wrong)


async def test_it_reads_the_partitions_that_are_named(queue):
    await queue.publish("p", 40)
    async with open_reader(queue, partitions=[P1], start={P1: 2}) as reader:
        wanted = [offset for partition, offset in sorted(queue.stored) if partition == P1][2:]
        assert [each.offset for each in await read(reader, len(wanted))] == wanted
        with pytest.raises(BadRequestError, match="partitions that it reads"):
            await reader.seek({P0: 0})
    with pytest.raises(SettingsError, match="expected 1 to 64"):
        async with open_reader(queue, partitions=[]):
            pass
    with pytest.raises(RuntimeError, match="the reader was closed: make another one"):
        await anext(reader)


async def consume_all(queue, count):
    for group in ("workers", "lake"):
        token = queue.local.tokens.consume
        async with Consumer(queue.local.url, queue="orders", group=group, token=token) as consumer:
            seen = 0
            async for message in consumer:
                await message.ack()
                seen += 1
                if seen == count:
                    break


async def test_what_it_has_not_read_is_kept_and_what_nobody_keeps_is_named(queue):
    await queue.publish("p", 40)
    async with open_reader(queue) as reader:
        start = reader.positions()
        async with asyncio.timeout(60):
            await consume_all(queue, 40)
        assert contents(await read(reader, 40)) == queue.stored
    async with queue.reader() as log:

        async def is_trimmed():
            found = await log.positions("earliest")
            return all(each.offset > 0 for each in found.values())

        await eventually(is_trimmed, "the pin went with the reader, and the log is trimmed")
    async with open_reader(queue, start=start) as reader:
        with pytest.raises(DataLossError, match="no longer stored"):
            await read(reader, 1)
        await reader.seek("earliest")
        await queue.publish("q", 10)
        values = {each.message.value for each in await read(reader, 10)}
        assert values == {b"q-%d" % n for n in range(10)}


async def test_a_store_that_was_rolled_back_is_named(queue, tmp_path):
    await queue.publish("kept", 20)
    copy = tmp_path / "copy"
    shutil.copytree(queue.local.runtime.data_dir / "redis", copy)
    await queue.publish("lost", 20)
    async with open_reader(queue) as reader:
        await read(reader, 40)
        await queue.roll_back(to=copy)
        with pytest.raises(RolledBackError):
            await read(reader, 1)
        await reader.seek("earliest")
        found = await read(reader, 20)
        assert {each.message.value[:4] for each in found} == {b"kept"}
