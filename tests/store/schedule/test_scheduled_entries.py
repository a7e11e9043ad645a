"""What waits beside a log is read in the order of due times, and removed once."""

import pytest

from partq.core.model import BrokerId
from partq.errors import FencedError
from partq.store.records.audit import Audits
from partq.store.schedule.scheduled_entries import ScheduledCounts, ScheduledEntries, ScheduledPlace
from tests.audit_record import decode_group
from tests.store.parked import park

DUE = 1_800_000_000_000
ID = "0123456789abcdef" * 2


@pytest.fixture
def entries(store, keys):
    return ScheduledEntries(store, keys)


@pytest.fixture
def parked(store, keys, partition, broker_epoch):
    async def parked(*dues, first=1, **options):
        for number, due in enumerate(dues, first):
            data = b"batch %d" % number
            await park(store, keys, partition, number, DUE + due, data, **options)

    return parked


async def numbers(entries, partition, **options):
    part = await entries.read(partition, **{"max_entries": 9, "max_bytes": 999, **options})
    return [each.number for each in part.entries], part.has_more


async def test_they_are_read_by_due_time_and_then_as_they_were_accepted(entries, partition, parked):
    assert await numbers(entries, partition) == ([], False)
    await parked(9, 5, 5, 5, 1, ttl_ms=7)
    assert await numbers(entries, partition) == ([5, 2, 3, 4, 1], False)
    part = await entries.read(partition, max_entries=2, max_bytes=999)
    assert part.has_more
    assert part.entries[1][:] == (2, DUE + 5, 7, b"batch 2")


@pytest.mark.parametrize(
    ("after", "rest"),
    [
        (ScheduledPlace(DUE), [5, 2, 3, 4, 1]),
        (ScheduledPlace(DUE + 1, 5), [2, 3, 4, 1]),
        (ScheduledPlace(DUE + 5, 2), [3, 4, 1]),
        (ScheduledPlace(DUE + 5, 4), [1]),
        (ScheduledPlace(DUE + 5), [1]),
        (ScheduledPlace(DUE + 9, 1), []),
        (ScheduledPlace(DUE + 99, 1), []),
    ],
)
async def test_they_are_read_on_from_a_place_also_if_its_entry_has_gone(
    entries, partition, parked, broker_epoch, after, rest
):
    await parked(9, 5, 5, 5, 1)
    assert (await numbers(entries, partition, after=after))[0] == rest
    if after.number:
        await entries.cancel(partition, [after.number], broker_epoch=broker_epoch)
    assert (await numbers(entries, partition, after=after))[0] == rest


async def test_a_read_has_bounds_of_count_bytes_and_time(entries, partition, parked):
    await parked(1, 2, 3, 4)
    assert await numbers(entries, partition, max_entries=2) == ([1, 2], True)
    assert await numbers(entries, partition, max_entries=4) == ([1, 2, 3, 4], False)
    assert await numbers(entries, partition, max_bytes=1) == ([1], True)
    assert await numbers(entries, partition, max_bytes=12) == ([1, 2], True)
    assert await numbers(entries, partition, before_ms=DUE + 3) == ([1, 2], False)
    assert await numbers(entries, partition, before_ms=DUE + 3, max_entries=2) == ([1, 2], False)


async def test_they_are_counted(entries, partition, parked):
    assert await entries.read_counts([partition]) == {}
    assert await entries.last_number(partition) == 0
    await parked(4, 2, 3)
    assert await entries.read_counts([partition]) == {partition: ScheduledCounts(3, DUE + 2, 21)}
    assert await entries.count([partition]) == {partition: 3}
    assert await entries.count([partition], before_ms=DUE + 4) == {partition: 2}
    assert await entries.last_number(partition) == 3


async def test_each_is_removed_once_and_its_bytes_are_counted_back(
    entries, partition, parked, broker_epoch, store, keys
):
    await parked(1, 2, 3)

    async def cancel(*numbers):
        return (await entries.cancel(partition, numbers, broker_epoch=broker_epoch))[:2]

    assert await cancel(2, 7) == (7, [True, False])
    assert await cancel(2) == (0, [False])
    assert await numbers(entries, partition) == ([1, 3], False)
    assert await store.read("HGET", keys.meta(partition), "scheduled_bytes") == b"14"
    assert await store.read("HLEN", keys.scheduled(partition)) == 2


async def test_a_broker_that_owns_the_partition_no_more_removes_nothing(
    entries, partition, parked, broker_epoch
):
    await parked(1)
    with pytest.raises(FencedError):
        await entries.cancel(partition, [1], broker_epoch=broker_epoch - 1)
    assert await numbers(entries, partition) == ([1], False)


async def test_its_id_is_forgotten(entries, partition, parked, broker_epoch, store, keys):
    await parked(1, message_id=ID)
    await entries.cancel(partition, [1], broker_epoch=broker_epoch)
    assert await store.read("ZCARD", keys.ids(partition)) == 0
    assert await store.read("HLEN", keys.id_entries(partition)) == 0


async def test_the_id_of_a_later_message_that_waits_stays_known(
    entries, partition, parked, broker_epoch, store, keys
):
    await parked(1, message_id=ID)
    await parked(2, first=2, message_id=ID)
    await entries.cancel(partition, [1], broker_epoch=broker_epoch)
    assert await store.read("ZCARD", keys.ids(partition)) == 1
    assert await store.read("HGET", keys.id_entries(partition), ID) == b"2"


async def test_a_cancel_is_in_the_audit_record(
    entries, partition, parked, broker_epoch, store, keys
):
    audits = Audits(store, keys)
    options = {"broker_epoch": broker_epoch, "number": 0, "is_on": True}
    await audits.switch(partition, BrokerId("b-0"), **options)
    await parked(1, 2)
    await entries.cancel(partition, [1, 9], broker_epoch=broker_epoch)
    groups = await audits.read(partition, 0, max_bytes=1 << 20)
    (record,) = decode_group(partition, groups[-1])
    assert (record.kind, record.number) == ("unschedule", 1)
