"""Trimming a log that keeps some of what all groups have acknowledged."""

import pytest

from partq.store.records.log import RetainedMessages
from tests.store.record import BORN, flush


@pytest.fixture
def trim(log, partition, broker_epoch):
    async def trim(*kept, **options):
        bounds = RetainedMessages(*kept) if kept else None
        return await log.trim(partition, broker_epoch=broker_epoch, kept=bounds, **options)

    return trim


@pytest.mark.req("PUL-19")
@pytest.mark.parametrize(
    ("mark", "kept", "first", "retained"),
    [
        pytest.param(9, (), 9, 0, id="nothing is to stay"),
        pytest.param(9, (0,), 0, 30, id="all of it"),
        pytest.param(9, (5,), 5, 10, id="what was stored lately"),
        pytest.param(9, (4,), 3, 20, id="inside an entry: all of the entry"),
        pytest.param(9, (99,), 9, 0, id="all was stored too long ago"),
        pytest.param(9, (0, 30), 0, 30, id="all of it fits"),
        pytest.param(9, (0, 29), 3, 20, id="the oldest does not fit"),
        pytest.param(9, (0, 19), 5, 10, id="only the newest fits"),
        pytest.param(9, (0, 9), 9, 0, id="none fits"),
        pytest.param(9, (5, 20), 5, 10, id="the lower of both bounds: by time"),
        pytest.param(9, (3, 10), 5, 10, id="the lower of both bounds: by bytes"),
        pytest.param(5, (0, 0), 5, 0, id="what is not acknowledged stays"),
        pytest.param(4, (9, 0), 3, 0, id="the entry that a group has begun stays"),
        pytest.param(4, (0, 10), 0, 10, id="it does not count"),
        pytest.param(0, (0, 0), 0, 0, id="nothing is acknowledged"),
    ],
)
async def test_what_stays(
    partitions, partition, broker_epoch, fill, trim, mark, kept, first, retained
):
    await fill(3, 2, 4)
    if mark:
        await flush(partitions, partition, broker_epoch, "workers", mark)
    dry = await trim(*kept, is_dry_run=True)
    found = await trim(*kept)
    assert dry.first == found.first == first
    assert (found.held, found.retained_bytes) == (mark, retained)
    record = await partitions.read(partition)
    assert (record.trimmed, record.retained_bytes) == (first, retained)
    assert await trim(*kept) == found, "a repeat"


async def test_any_number_of_bytes_finds_its_entry(partitions, partition, broker_epoch, fill, trim):
    """The search agrees with a sum over all entries."""
    sizes = [1 + (7 * index) % 41 for index in range(60)]
    for size in sizes:
        await fill(1 + size % 3, size=size)
    firsts = [sum(1 + size % 3 for size in sizes[:index]) for index in range(len(sizes) + 1)]
    await flush(partitions, partition, broker_epoch, "workers", firsts[-1])
    for max_bytes in range(0, sum(sizes) + 20, 13):
        found = await trim(0, max_bytes, is_dry_run=True)
        fitting = (i for i in range(len(sizes) + 1) if sum(sizes[i:]) <= max_bytes)
        assert found.first == firsts[next(fitting)], max_bytes


async def test_it_is_found_again_and_freed_later(partitions, partition, broker_epoch, fill, trim):
    """A group that is created later gets it. A broker that knows no retention frees it."""
    await fill(3, 2, 4)
    await flush(partitions, partition, broker_epoch, "workers", 9)
    await trim(3)
    await partitions.add_group(partition, "late", start="Earliest")
    assert (await partitions.read_cursor(partition, "late")).cursor == 3
    found = await trim(0)
    assert (found.first, found.held, found.retained_bytes) == (3, 3, 0), "a group needs it"
    await flush(partitions, partition, broker_epoch, "late", 5)
    assert (await trim(0)).retained_bytes == 10
    assert (await trim()).first == 5
    assert (await partitions.read(partition)).retained_bytes == 0


async def test_a_pin_holds_more(partitions, partition, broker_epoch, fill, trim, pins):
    await fill(3, 2, 4)
    await flush(partitions, partition, broker_epoch, "workers", 9)
    await pins.set(partition, "reader", 3, broker_epoch=broker_epoch)
    found = await trim(5, 0)
    assert (found.first, found.held, found.retained_bytes) == (3, 3, 20)


async def test_without_a_group_it_has_no_say(partitions, partition, trim, ten_messages):
    await partitions.remove_group(partition, "workers", born=BORN)
    assert (await trim(0, expired=10)).first == 10
