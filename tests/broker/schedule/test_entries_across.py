"""A change of the partition count while batches wait, at a broker."""

import asyncio
from functools import partial

import pytest

from partq.aio import resolve
from partq.broker.operations.publish.scheduled import cancel
from partq.core.hashing import slot_of
from partq.core.model import PartitionId
from partq.errors import ConflictError
from partq.store.records.log import AppendBatch
from partq.testing import eventually
from partq.wire import batch
from tests.broker.rescale.change import ChangeByHand, batch_of, keys_for_five

OLD, NEW = PartitionId(1, 0), PartitionId(2, 4)


async def park(owned, *keys):
    answer = asyncio.get_running_loop().create_future()
    waiting = AppendBatch("", 0, len(keys), batch_of(*keys), kind="schedule", after_ms=3_600_000)
    owned.appender.submit(waiting, partial(resolve, answer))
    return (await answer).entry


async def test_each_message_is_appended_where_its_slot_is(running):
    moving, staying = keys_for_five(running.broker.config.layout)
    assert slot_of(moving) != slot_of(staying)
    for keys in ((moving,), (staying,), (staying, moving)):
        await park(running.broker.owned[OLD], *keys)
    await ChangeByHand(running).change(5)

    async def waits(partition):
        return await running.store.read("ZCARD", running.broker.keys.due(partition))

    async def have_left():
        return (await waits(OLD), await waits(NEW)) == (2, 2)

    await eventually(have_left, "the entries are where their slots are")
    for partition in (OLD, NEW):
        due = running.broker.keys.due(partition)
        for at, number in enumerate(await running.store.read("ZRANGE", due, 0, -1)):
            await running.store.read("ZADD", due, 1 + at, number)
        running.broker.owned[partition].due_news.set()
    owned = running.broker.owned
    await eventually(lambda: owned[OLD].tail.end == owned[NEW].tail.end == 2, "all is appended")
    for partition, key in ((OLD, staying), (NEW, moving)):
        entries = await running.broker.log.read(partition, 0, max_bytes=10**6, max_entries=9)
        found = [message.key for each in entries for message in batch.decode(each.data)]
        assert found == [key, key]


async def test_who_cancels_a_part_of_a_divided_batch_hears_that_there_are_others(running):
    moving, staying = keys_for_five(running.broker.config.layout)
    number = await park(running.broker.owned[OLD], staying, moving)
    await ChangeByHand(running).change(5)

    async def is_divided():
        return await running.store.read("ZCARD", running.broker.keys.due(NEW)) == 1

    await eventually(is_divided, "a part has left")
    for partition in (OLD, NEW):
        with pytest.raises(ConflictError, match="divided"):
            await cancel(running.broker, partition, number)
        assert await running.store.read("ZCARD", running.broker.keys.due(partition)) == 0
    assert not await cancel(running.broker, NEW, number)


async def test_what_is_due_when_the_slots_leave_comes_in_the_new_partition(running, monkeypatch):
    moving, _ = keys_for_five(running.broker.config.layout)
    number = await park(running.broker.owned[OLD], moving)
    await running.store.read("ZADD", running.broker.keys.due(OLD), 1, f"{number:016}")
    await ChangeByHand(running).change(5)
    await eventually(lambda: running.broker.owned[NEW].tail.end == 1, "it is appended there")
    assert running.broker.owned[OLD].tail.end == 0
