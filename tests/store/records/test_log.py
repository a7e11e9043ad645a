"""Reading a log and trimming it."""

from dataclasses import replace

import pytest

from partq.core.model import BrokerEpoch, BrokerId, Offset
from partq.errors import FencedError
from partq.store.records.log import AppendBatch, Entry
from partq.wire.batch import Message, encode, encode_message
from tests.store.record import BORN, born, flush, write


def firsts(entries):
    return [entry.first for entry in entries]


# ---- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "found"),
    [
        pytest.param(0, [0, 3, 5], id="from the first message"),
        pytest.param(2, [0, 3, 5], id="inside an entry: from its beginning"),
        pytest.param(3, [3, 5], id="at an entry"),
        pytest.param(8, [5], id="the last message"),
        pytest.param(9, [], id="the end"),
        pytest.param(99, [], id="beyond the end"),
    ],
)
async def test_read_begins_with_the_entry_that_holds_the_offset(log, partition, fill, start, found):
    assert await fill(3, 2, 4) == 9
    entries = await log.read(partition, start, max_bytes=1000, max_entries=100)
    assert firsts(entries) == found


async def test_an_entry_is_what_was_appended(log, partition, broker_epoch, fill):
    await fill(3, 2)
    (entry,) = await log.read(partition, 3, max_bytes=1000, max_entries=100)
    assert (entry.count, entry.broker_epoch, entry.data) == (2, broker_epoch, bytes([2]) * 10)
    assert entry.at_ms > 1_500_000_000_000


def test_an_entry_knows_the_slots_of_its_messages():
    found = Entry(
        Offset(5),
        3,
        BrokerEpoch(1),
        0,
        encode([encode_message(Message(None, b"v"))] * 3, [7, 65_535, 7]),
    )
    assert list(found.slots) == [7, 65_535, 7]
    damaged = replace(found, data=bytes(40))
    assert list(damaged.slots) == [0, 0, 0], "one slot for all keeps their order"
    assert list(replace(found, count=2).slots) == [0, 0]


async def test_read_is_bounded_by_entries_and_bytes(log, partition, fill):
    await fill(*[1] * 100, size=100)
    read = log.read
    assert firsts(await read(partition, 7, max_bytes=10**6, max_entries=3)) == [7, 8, 9]
    assert len(await read(partition, 7, max_bytes=1000, max_entries=100)) == 11
    assert len(await read(partition, 7, max_bytes=1, max_entries=100)) == 1
    assert len(await read(partition, 7, max_bytes=10**6, max_entries=10**6)) == 93


async def test_read_stays_bounded_when_a_small_entry_is_followed_by_large_ones(
    log, partition, fill
):
    await fill(1, size=10)
    for _ in range(8):
        await fill(1, size=12 * 1024 * 1024)
    entries = await log.read(partition, 0, max_bytes=10**6, max_entries=1000)
    assert 1 <= sum(len(entry.data) for entry in entries) <= 76 * 1024 * 1024


async def test_read_of_a_log_that_was_never_written(log, partition, broker_epoch):
    assert await log.read(partition, 0, max_bytes=1000, max_entries=100) == []


async def test_a_time_is_found_and_told(
    partitions, log, partition, broker_epoch, fill, clock_passes
):
    assert await log.find_time(partition, 0) == 0
    assert (await log.read_times(partition, [0]))[1] == [None]
    times = []
    for count in (3, 2, 4, 1):
        await fill(count)
        (*_, entry) = await log.read(partition, 0, max_bytes=10**6, max_entries=9)
        times.append(entry.at_ms)
        await clock_passes(entry.at_ms)
    found = [await log.find_time(partition, at_ms) for at_ms in (0, *times)]
    assert found == [0, 0, 3, 5, 9]
    assert [await log.find_time(partition, at_ms + 1) for at_ms in times] == [3, 5, 9, 10]
    await flush(partitions, partition, broker_epoch, "workers", 5)
    await log.trim(partition, broker_epoch=broker_epoch)
    assert [await log.find_time(partition, at_ms) for at_ms in times] == [5, 5, 5, 9]
    for number, (at_ms, cursor) in enumerate(
        ((0, 5), (times[1], 5), (times[2], 5), (times[3], 9), (times[3] + 1, 10))
    ):
        await partitions.add_group(partition, f"of-time-{number}", start=at_ms)
        assert (await partitions.read_cursor(partition, f"of-time-{number}")).cursor == cursor
    await partitions.add_group(partition, "of-time-0", start=times[3])
    assert (await partitions.read_cursor(partition, "of-time-0")).cursor == 5, "a repeat"
    now_ms, found = await log.read_times(partition, [2, 6, 9, 10])
    assert found == [None, *times[2:], None]
    assert now_ms > times[-1]


# ---- reading within bytes -----------------------------------------------------------------------


@pytest.fixture
def within(log, partition):
    async def within(start, max_bytes, *, stop=10**6, max_entries=1000):
        found = await log.read_within(
            partition, start, stop, max_bytes=max_bytes, max_entries=max_entries
        )
        return firsts(found)

    return within


@pytest.mark.parametrize(
    ("start", "found"),
    [
        pytest.param(0, [0, 3, 5], id="from the first message"),
        pytest.param(4, [3, 5], id="inside an entry: from its beginning"),
        pytest.param(5, [5], id="at an entry"),
        pytest.param(9, [], id="the end"),
        pytest.param(99, [], id="beyond the end"),
    ],
)
async def test_reading_within_begins_with_the_entry_that_holds_the_offset(
    fill, within, start, found
):
    await fill(3, 2, 4)
    assert await within(start, 1000) == found


@pytest.mark.parametrize(
    ("max_bytes", "found"),
    [
        pytest.param(10, [0], id="what is behind the hole does not fit"),
        pytest.param(30, [0, 11], id="it fits, with the bytes that are gone"),
        pytest.param(40, [0, 11, 12], id="all fits"),
    ],
)
async def test_reading_within_ends_where_the_log_has_a_hole(
    store, log, partition, fill, within, max_bytes, found
):
    """As a backup that was put back may leave it: Redis must not look there for ever."""
    await fill(1, 10, 1, 1)
    await store.read("XDEL", log._keys.log(partition), "1-1")
    for stop in range(2, 13):
        assert await within(0, max_bytes, stop=stop) == [first for first in found if first < stop]
    assert await within(0, max_bytes) == found


async def test_reading_within_never_goes_beyond_the_bytes(fill, within):
    """However the sizes change: small ones first, then large ones, and back."""
    sizes = [10, 10, 2000, 10, 500, 500, 10, 3000, 10]
    for size in sizes:
        await fill(2, size=size)
    for start in range(len(sizes)):
        for max_bytes in (1, 10, 19, 20, 25, 520, 1020, 2030, 6049, 6050, 10**6):
            fitting, used = [], 0
            for number in range(start, len(sizes)):
                used += sizes[number]
                if fitting and used > max_bytes:
                    break
                fitting.append(2 * number)
            assert await within(2 * start, max_bytes) == fitting, (start, max_bytes)


async def test_reading_within_ends_with_the_entry_that_holds_the_last_message(fill, within):
    await fill(3, 2, 4, 1)
    found = [await within(4, 1000, stop=stop) for stop in (4, 5, 6, 9, 10)]
    assert found == [[3], [3], [3, 5], [3, 5], [3, 5, 9]]


async def test_reading_within_has_a_number_of_entries_too(fill, within):
    await fill(*[1] * 50)
    assert await within(7, 10**6, max_entries=3) == [7, 8, 9]


async def test_reading_within_a_log_that_was_trimmed_begins_with_what_is_left(
    partitions, log, partition, broker_epoch, fill, within
):
    await fill(3, 2, 4)
    await flush(partitions, partition, broker_epoch, "workers", 5)
    await log.trim(partition, broker_epoch=broker_epoch)
    assert await within(0, 1000) == [5]
    await flush(partitions, partition, broker_epoch, "workers", 9)
    await log.trim(partition, broker_epoch=broker_epoch)
    assert await within(0, 1000) == []
    assert await within(9, 1000) == []


# ---- trimming -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "trimmed"),
    [
        pytest.param(0, 0, id="nothing is behind"),
        pytest.param(2, 0, id="inside the first entry"),
        pytest.param(3, 3, id="at an entry: those before it go"),
        pytest.param(4, 3, id="inside an entry: it stays"),
        pytest.param(8, 5, id="inside the last one"),
        pytest.param(9, 9, id="at the end: all goes"),
    ],
)
async def test_trim_cuts_at_the_entry_that_holds_the_mark(
    partitions, log, partition, broker_epoch, fill, mark, trimmed
):
    await fill(3, 2, 4)
    await flush(partitions, partition, broker_epoch, "workers", mark)
    assert (await log.trim(partition, broker_epoch=broker_epoch)).first == trimmed
    entries = await log.read(partition, 0, max_bytes=1000, max_entries=100)
    assert firsts(entries) == [first for first in (0, 3, 5) if first >= trimmed]
    record = await partitions.read(partition)
    assert (record.trimmed, record.bytes, record.next) == (trimmed, 10 * len(entries), 9)
    assert (await log.trim(partition, broker_epoch=broker_epoch)).first == trimmed


@pytest.mark.req("PUL-03", "PUL-18")
async def test_the_slowest_group_holds_the_log(partitions, log, partition, broker_epoch, fill):
    await partitions.add_group(partition, "slow", start="Earliest")
    await fill(3, 2, 4)
    await flush(partitions, partition, broker_epoch, "workers", 9)
    assert (await log.trim(partition, broker_epoch=broker_epoch)).first == 0
    await flush(partitions, partition, broker_epoch, "slow", 5)
    assert (await log.trim(partition, broker_epoch=broker_epoch)).first == 5
    await partitions.remove_group(partition, "slow", born=await born(partitions, partition, "slow"))
    assert (await log.trim(partition, broker_epoch=broker_epoch)).first == 9


@pytest.mark.req("PUL-58", "PUL-59")
async def test_without_a_group_nothing_is_trimmed(partitions, log, partition, broker_epoch, fill):
    await fill(3, 2, 4)
    await partitions.remove_group(partition, "workers", born=BORN)
    assert (await log.trim(partition, broker_epoch=broker_epoch)).first == 0
    assert len(await log.read(partition, 0, max_bytes=1000, max_entries=100)) == 3


@pytest.mark.req("PUL-76")
async def test_the_log_goes_on_after_all_of_it_was_trimmed(
    partitions, log, partition, broker_epoch, fill
):
    await fill(3)
    await flush(partitions, partition, broker_epoch, "workers", 3)
    await log.trim(partition, broker_epoch=broker_epoch)
    assert await fill(2) == 5
    await partitions.add_group(partition, "late", start="Earliest")
    assert (await partitions.read_cursor(partition, "late")).cursor == 3
    assert firsts(await log.read(partition, 0, max_bytes=1000, max_entries=100)) == [3]


async def test_one_trim_frees_a_bounded_number_of_entries(
    partitions, log, partition, broker_epoch, fill
):
    for _ in range(25):
        await fill(*[1] * 500)
    await flush(partitions, partition, broker_epoch, "workers", 12_345)
    freed = [(await log.trim(partition, broker_epoch=broker_epoch)).first for _ in range(3)]
    assert 9_000 <= freed[0] <= 10_000
    assert freed[1:] == [12_345, 12_345]
    assert (await partitions.read(partition)).bytes == (12_500 - 12_345) * 10


async def test_a_commit_moves_the_mark_too(partitions, log, partition, broker_epoch, fill):
    await fill(3, 2, 4)
    await partitions.commit(
        partition, "workers", **write(), broker_epoch=broker_epoch, source=None,
        epoch=0, attempt=1, target="m", cause=0, cursor=5, acked=[], redeliveries={},
    )  # fmt: skip
    assert (await log.trim(partition, broker_epoch=broker_epoch)).first == 5


async def test_what_is_trimmed_no_longer_counts_for_the_quota(
    partitions, log, partition, broker_epoch, fill
):
    """The quota goes by the bytes on record."""
    await fill(3, 2, 4)
    assert (await partitions.read(partition)).bytes == 30
    await flush(partitions, partition, broker_epoch, "workers", 5)
    await log.trim(partition, broker_epoch=broker_epoch)
    assert (await partitions.read(partition)).bytes == 10
    await flush(partitions, partition, broker_epoch, "workers", 9)
    await log.trim(partition, broker_epoch=broker_epoch)
    assert (await partitions.read(partition)).bytes == 0


async def test_without_a_group_what_has_expired_is_freed_and_no_more(
    partitions, log, partition, broker_epoch, ten_messages
):
    await partitions.remove_group(partition, "workers", born=BORN)
    assert (await log.trim(partition, broker_epoch=broker_epoch)).first == 0
    assert (await log.trim(partition, broker_epoch=broker_epoch, expired=10)).first == 10


async def test_a_group_holds_what_has_expired(log, partition, broker_epoch, ten_messages):
    assert (await log.trim(partition, broker_epoch=broker_epoch, expired=10)).first == 0


# ---- positions ----------------------------------------------------------------------------------


@pytest.fixture
def below(log, partition, broker_epoch):
    """Return what the log holds, and who appended what lies below offsets."""

    async def below(*offsets):
        return await log.read_positions(partition, offsets, broker_epoch=broker_epoch)

    return below


async def test_a_position_says_who_appended_what_lies_below_it(fill, below, broker_epoch):
    assert await below(0) == (0, 0, [0])
    assert await fill(3, 2) == 5
    found = await below(0, 1, 3, 4, 5, 6, 2**53)
    assert (found.first, found.end) == (0, 5)
    assert found.epochs == [0, *[broker_epoch] * 4, 0, 0]


async def test_each_broker_s_messages_are_told_apart(
    log, partition, partitions, fill, below, broker_epoch
):
    await fill(2)
    claim = await partitions.claim(partition, BrokerId("b-1"), "i-1", expected=broker_epoch)
    batches = [AppendBatch("", 0, 3, b"x" * 10)]
    await log.append(
        partition, broker_epoch=claim.broker_epoch, number=0, expected=2, batches=batches,
        room_bytes=None,
    )  # fmt: skip
    with pytest.raises(FencedError):
        await below(2)
    found = await log.read_positions(partition, [1, 2, 3, 5], broker_epoch=claim.broker_epoch)
    assert found.epochs == [broker_epoch, broker_epoch, claim.broker_epoch, claim.broker_epoch]


async def test_where_a_log_is_cut_off_the_position_can_still_be_checked(
    log, partition, partitions, fill, below, broker_epoch
):
    """A reader's own cursor is what the log is trimmed by: it stands there whenever it starts."""
    await fill(3, 2, 4)
    for cursor, first in ((4, 3), (6, 5), (9, 9)):
        await flush(partitions, partition, broker_epoch, "workers", cursor)
        await log.trim(partition, broker_epoch=broker_epoch)
        found = await below(first - 1, first, cursor)
        assert found.first == first
        assert found.epochs == [0, broker_epoch, broker_epoch]
    await log.trim(partition, broker_epoch=broker_epoch)
    assert (await below(9)).epochs == [broker_epoch], "nothing went, nothing is forgotten"


async def test_a_log_that_is_trimmed_by_half_says_that_it_does_not_know(
    log, partition, partitions, fill, below, broker_epoch
):
    """One call frees at most so many entries: which went last is not known until the next one."""
    for _ in range(13):
        await fill(*[1] * 1000)
    await flush(partitions, partition, broker_epoch, "workers", 13_000)
    first = (await log.trim(partition, broker_epoch=broker_epoch)).first
    assert 0 < first < 13_000
    assert (await below(first)).epochs == [0]
    assert (await log.trim(partition, broker_epoch=broker_epoch)).first == 13_000
    assert (await below(13_000)).epochs == [broker_epoch]
