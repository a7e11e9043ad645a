"""Appending batches that wait for their time, and batches whose id is known."""

from functools import partial

import pytest

from partq.core.model import Offset
from partq.store.records.log import AppendBatch, AppendResult
from partq.store.schedule.scheduled_entries import ScheduledEntries

HOUR_MS = 3_600_000
ID, OTHER_ID, THIRD_ID = "a1" * 16, "b2" * 16, "c3" * 16
schedule = partial(AppendBatch, kind="schedule")
later = partial(AppendBatch, kind="schedule", after_ms=HOUR_MS)
SPARSE = "dlq:UID#1.0@5/g"


@pytest.fixture
async def append(log, partition, broker_epoch):
    """Append as a broker does, one call after another."""
    number, end = 0, Offset(0)

    async def append(*batches, room_bytes=None, window_ms=HOUR_MS, max_ids=0):
        nonlocal number, end
        appended = await log.append(
            partition,
            broker_epoch=broker_epoch,
            number=number,
            expected=end,
            batches=batches,
            room_bytes=room_bytes,
            id_window_ms=window_ms,
            max_ids=max_ids,
        )
        number, end = number + 1, appended.next
        return appended.results

    return append


@pytest.fixture
def waiting(store, keys, partition):
    """Return the entries that wait, by when they are due, and their texts."""

    async def waiting():
        numbers = await store.read("ZRANGE", keys.due(partition), 0, -1)
        found = await store.read("HGETALL", keys.scheduled(partition))
        texts = dict(zip(found[::2], found[1::2], strict=True))
        assert texts.keys() == set(numbers)
        return [(int(each), texts[each]) for each in numbers]

    return waiting


@pytest.fixture
def let_be_due(store, keys, partition):
    async def let_be_due(*numbers):
        for at, number in enumerate(numbers):
            await store.read("ZADD", keys.due(partition), 1 + at, f"{number:016}")

    return let_be_due


async def now_ms(store):
    seconds, micros = await store.read("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


async def stored(log, partition):
    entries = await log.read(partition, Offset(0), max_bytes=2**40, max_entries=2**20)
    return [(each.first, each.data) for each in entries]


def enqueue(number, data, message_id=""):
    return AppendBatch("", number, 1, data, kind="enqueue", message_id=message_id)


# ---- parked, and enqueued -----------------------------------------------------------------------


async def test_what_is_not_due_waits_beside_the_log(
    store, append, waiting, log, partition, partitions
):
    before = await now_ms(store)
    due_ms = before + HOUR_MS
    (parked,) = await append(schedule("p", 0, 2, b"abc", ttl_ms=5, due_ms=due_ms))
    assert (parked.status, parked.offset, parked.due) == ("parked", -1, 2)
    assert parked.due_ms == due_ms
    assert parked.entry >= before
    assert await waiting() == [(parked.entry, b"5 abc")]
    assert await stored(log, partition) == []
    record = await partitions.read(partition)
    assert (record.next, record.bytes, record.scheduled_bytes) == (0, 0, 3)


async def test_a_time_from_now_on_is_counted_by_redis(store, append):
    before = await now_ms(store)
    (parked,) = await append(later("", 0, 1, b"x"))
    assert before + HOUR_MS <= parked.due_ms <= await now_ms(store) + HOUR_MS


async def test_what_is_due_already_is_stored_at_once(store, append, log, partition, waiting):
    batches = [schedule("", 0, 1, b"past", due_ms=1), schedule("p", 0, 1, b"now", after_ms=0)]
    assert await append(*batches) == [AppendResult("stored", 0, -1), AppendResult("stored", 1, 1)]
    assert await stored(log, partition) == [(0, b"past"), (1, b"now")]
    assert await waiting() == []


async def test_entries_of_the_same_time_stand_in_the_order_of_acceptance(store, append, waiting):
    due_ms = await now_ms(store) + HOUR_MS
    results = await append(*[schedule("", 0, 1, b"%d" % n, due_ms=due_ms) for n in range(12)])
    results += await append(schedule("", 0, 1, b"12", due_ms=due_ms))
    numbers = [each.entry for each in results]
    assert numbers == sorted(set(numbers))
    assert [text for _, text in await waiting()] == [b"0 %d" % n for n in range(13)]


async def test_numbers_of_entries_grow_though_the_clock_was_set_back(
    store, keys, append, partition
):
    ahead = 2**52
    await store.read("HSET", keys.meta(partition), "scheduled_number", ahead)
    results = await append(later("", 0, 1, b"x"), later("", 0, 1, b"x"))
    assert [each.entry for each in results] == [ahead + 1, ahead + 2]


async def test_an_entry_that_is_due_is_appended_once(
    append, let_be_due, waiting, log, partition, partitions
):
    first, second = await append(later("p", 0, 1, b"one"), later("p", 1, 1, b"two!"))
    await let_be_due(first.entry)
    results = await append(
        enqueue(first.entry, b"one"), enqueue(first.entry, b"one"), enqueue(second.entry, b"two!")
    )
    assert results == [
        AppendResult("stored", 0, -1),
        AppendResult("gone", -1, -1, first.entry),
        AppendResult("gone", -1, -1, second.entry),
    ]
    assert await append(enqueue(first.entry, b"one")) == [AppendResult("gone", -1, -1, first.entry)]
    assert await stored(log, partition) == [(0, b"one")]
    assert await waiting() == [(second.entry, b"0 two!")]
    record = await partitions.read(partition)
    assert (record.bytes, record.scheduled_bytes) == (3, 4)


async def test_a_repeated_call_parks_and_enqueues_nothing_more(
    append, let_be_due, waiting, log, partition, broker_epoch
):
    call = {"broker_epoch": broker_epoch, "number": 0, "expected": 0, "room_bytes": None}
    batches = [later("", 0, 1, b"x")]
    first = await log.append(partition, batches=batches, **call)
    assert await log.append(partition, batches=batches, **call) == first
    assert len(await waiting()) == 1
    await let_be_due(first.results[0].entry)
    call["number"] = 1
    batches = [enqueue(first.results[0].entry, b"x")]
    again = [await log.append(partition, batches=batches, **call) for _ in range(2)]
    assert again[0] == again[1]
    assert await stored(log, partition) == [(0, b"x")]


async def test_what_moved_away_is_not_enqueued_and_stays(append, let_be_due, waiting):
    (parked,) = await append(later("", 0, 1, b"x"))
    await let_be_due(parked.entry)
    (moved,) = await append(enqueue(parked.entry, b""))
    assert moved.status == "moved"
    assert await waiting() == [(parked.entry, b"0 x")]


async def test_a_repeat_of_what_was_parked_names_the_entry(append, let_be_due, log, partition):
    parked = await append(*[later("p", at, 1, b"x", digest=f"{at}.b.0") for at in range(2)])
    repeats = [later("p", at, 1, b"x", digest=f"{at}.b.0") for at in range(2)]
    duplicates = [AppendResult("duplicate", -1, 2, each.entry) for each in parked]
    assert await append(*repeats) == duplicates
    await let_be_due(parked[0].entry)
    await append(enqueue(parked[0].entry, b"x"))
    assert await append(*repeats) == duplicates  # whatever became of it
    record = await log.producer_record(partition, "p")
    assert (record.place_of(1, 1), record.entry_of(1, 1)) == (-1, parked[1].entry)
    (reused,) = await append(later("p", 1, 1, b"y", digest="9.c.0"))
    assert reused.status == "number_reused"


async def test_only_the_last_five_parked_batches_are_named(append):
    parked = await append(*[later("p", number, 1, b"x") for number in range(6)])
    again = await append(*[AppendBatch("p", number, 1, b"x") for number in range(6)])
    assert [each.status for each in again] == ["duplicate"] * 6
    assert [each.entry for each in again] == [-1, *[each.entry for each in parked[1:]]]


async def test_parked_bytes_count_in_the_room_of_the_call_and_enqueued_ones_do_not(
    append, let_be_due
):
    first, refused = await append(later("", 0, 1, b"123"), later("", 0, 1, b"12"), room_bytes=4)
    assert (first.status, refused.status) == ("parked", "quota_exceeded")
    await let_be_due(first.entry)
    results = await append(
        enqueue(first.entry, b"123"), AppendBatch("", 0, 1, b"1"), AppendBatch("", 0, 1, b"1"),
        room_bytes=1,
    )  # fmt: skip
    assert [each.status for each in results] == ["stored", "stored", "quota_exceeded"]


async def test_the_record_tells_what_waits_and_what_came_of_it(
    store, keys, append, let_be_due, partition
):
    await store.read("HSET", keys.meta(partition), "audit", f"0 {'0' * 40} 0 b-0")
    (parked,) = await append(later("p", 0, 1, b"x" * 24, content_crc=7))
    await let_be_due(parked.entry)
    await append(enqueue(parked.entry, b"x" * 24))
    groups = [entry[1][7] for entry in await store.read("XRANGE", keys.audit(partition), "-", "+")]
    waits, stored = [group.split(b"\n", 1)[1].split(b"\t") for group in groups]
    number, due_ms = b"%d" % parked.entry, b"%d" % parked.due_ms
    assert (waits[0], waits[7:9]) == (b"schedule", [b"0", b"1"])
    assert waits[12:15] == [b"p", number, due_ms]
    assert waits[16] == b"7\n"
    assert (stored[0], stored[7:9], stored[12:14]) == (b"publish", [b"0", b"1"], [b"", number])
    assert stored[15].startswith(b"scheduled\n")


# ---- ids ----------------------------------------------------------------------------------------


async def test_without_a_limit_an_id_means_nothing(store, keys, append, partition):
    results = await append(*[AppendBatch("", 0, 1, b"x", message_id=ID) for _ in range(2)])
    assert [each.status for each in results] == ["stored", "stored"]
    assert await store.read("EXISTS", keys.ids(partition)) == 0


async def test_a_known_id_is_not_stored_and_uses_up_its_numbers(append, log, partition):
    batches = [
        AppendBatch("p", 0, 1, b"a", message_id=ID),
        AppendBatch("p", 1, 2, b"b", message_id=ID),
        AppendBatch("q", 0, 1, b"c", message_id=ID),
        AppendBatch("", 0, 1, b"d", message_id=ID),
        AppendBatch("p", 3, 1, b"e", message_id=OTHER_ID),
        AppendBatch("p", 1, 2, b"b", message_id=ID),
    ]
    assert await append(*batches, max_ids=9) == [
        AppendResult("stored", 0, 1),
        AppendResult("known_id", -1, 3),
        AppendResult("known_id", -1, 1),
        AppendResult("known_id", -1, -1),
        AppendResult("stored", 1, 4),
        AppendResult("known_id", -1, 4),
    ]
    assert [data for _, data in await stored(log, partition)] == [b"a", b"e"]


async def test_the_record_tells_of_a_known_id(store, keys, append, partition):
    await store.read("HSET", keys.meta(partition), "audit", f"0 {'0' * 40} 0 b-0")
    await append(*[AppendBatch("p", at, 1, b"a", message_id=ID) for at in range(2)], max_ids=9)
    ((_, fields),) = await store.read("XRANGE", keys.audit(partition), "-", "+")
    line = fields[7].splitlines()[-1].split(b"\t")
    assert (line[0], line[7:9], line[12:14]) == (b"known_id", [b"1", b"2"], [b"p", b""])


async def test_an_id_is_stored_as_its_bytes_at_the_time_of_its_message(
    store, keys, append, log, partition
):
    await append(AppendBatch("", 0, 1, b"a", message_id=ID), max_ids=9)
    (entry,) = await log.read(partition, Offset(0), max_bytes=1, max_entries=1)
    found = await store.read("ZRANGE", keys.ids(partition), 0, -1, "WITHSCORES")
    assert (found[0], float(found[1])) == (bytes.fromhex(ID), entry.at_ms)


async def test_an_id_above_the_window_is_new(store, keys, append, partition):
    await append(AppendBatch("", 0, 1, b"a", message_id=ID), max_ids=1)
    await store.read("ZADD", keys.ids(partition), await now_ms(store) - HOUR_MS, bytes.fromhex(ID))
    (result,) = await append(AppendBatch("", 0, 1, b"b", message_id=ID), max_ids=1)
    assert result.status == "stored"
    (result,) = await append(AppendBatch("", 0, 1, b"c", message_id=ID), max_ids=1)
    assert result.status == "known_id"


async def test_at_most_64_old_ids_go_with_a_call(store, keys, append, partition):
    old = [text for n in range(100) for text in (1 + n, b"%016d" % n)]
    await store.read("ZADD", keys.ids(partition), *old)
    ids = [AppendBatch("", 0, 1, b"a", message_id=each) for each in (ID, OTHER_ID)]
    await append(*ids, max_ids=1000)
    assert await store.read("ZRANGE", keys.ids(partition), 0, 0) == [b"%016d" % 64]
    assert await store.read("ZCARD", keys.ids(partition)) == 100 - 64 + 2


async def test_when_all_places_are_taken_a_new_id_is_refused_until_the_oldest_goes(
    store, keys, append, log, partition
):
    at_ms = await now_ms(store)
    await store.read("ZADD", keys.ids(partition), at_ms - HOUR_MS + 60_000, bytes.fromhex(ID))
    await store.read("ZADD", keys.ids(partition), at_ms, bytes.fromhex(OTHER_ID))
    known, refused, behind, plain = await append(
        AppendBatch("p", 0, 1, b"a", message_id=ID),
        AppendBatch("p", 1, 1, b"b", message_id=THIRD_ID),
        AppendBatch("p", 2, 1, b"c"),
        AppendBatch("", 0, 1, b"d"),
        max_ids=2,
    )
    assert (known.status, refused.status, refused.due) == ("known_id", "quota_exceeded", 1)
    assert 0 < refused.retry_after_ms <= 60_000
    assert (behind.status, plain.status) == ("out_of_sequence", "stored")
    assert [data for _, data in await stored(log, partition)] == [b"d"]
    (result,) = await append(
        AppendBatch("p", 1, 1, b"b", message_id=THIRD_ID), window_ms=HOUR_MS - 60_000, max_ids=2
    )
    assert result.status == "stored"


async def test_what_finds_no_room_does_not_enter_its_id(append):
    batch = AppendBatch("", 0, 1, b"abc", message_id=ID)
    results = [(await append(batch, room_bytes=room, max_ids=9))[0] for room in (2, 3, 3)]
    assert [each.status for each in results] == ["quota_exceeded", "stored", "known_id"]


async def test_the_id_of_what_waits_names_the_entry_and_stays_known(
    store, keys, append, let_be_due, partition
):
    (parked,) = await append(later("", 0, 1, b"x", message_id=ID), max_ids=9)
    assert await store.read("HGETALL", keys.scheduled(partition)) == [
        b"%016d" % parked.entry,
        b"0#" + ID.encode() + b" x",
    ]
    known = await append(AppendBatch("p", 0, 1, b"y", message_id=ID), max_ids=9)
    assert known == [AppendResult("known_id", -1, 1, parked.entry)]
    assert await append(AppendBatch("p", 0, 1, b"y", message_id=ID), max_ids=9) == [
        AppendResult("duplicate", -1, 1, parked.entry)
    ]
    await let_be_due(parked.entry)
    (result,) = await append(enqueue(parked.entry, b"x", ID), max_ids=9)
    assert result.status == "stored"
    assert await append(AppendBatch("", 0, 1, b"z", message_id=ID), max_ids=9) == [
        AppendResult("known_id", -1, -1)
    ]
    assert await store.read("EXISTS", keys.id_entries(partition)) == 0


async def test_the_id_of_a_later_message_stays_known_though_what_waits_is_cancelled(
    store, keys, append, partition, broker_epoch
):
    batch = AppendBatch("", 0, 1, b"y", message_id=ID)
    (parked,) = await append(later("", 0, 1, b"x", message_id=ID), max_ids=9)
    (later_one,) = await append(batch, window_ms=-1, max_ids=9)
    assert later_one.status == "stored", "the window of what waits is over"
    entries = ScheduledEntries(store, keys)
    cancelled = await entries.cancel(partition, [parked.entry], broker_epoch=broker_epoch)
    assert cancelled.were_there == [True]
    assert (await append(batch, max_ids=9))[0].status == "known_id"


async def test_an_entry_that_is_appended_leaves_the_id_to_a_later_one_that_waits(
    store, keys, append, partition, let_be_due
):
    first, second = [
        (await append(later("", 0, 1, b"x", message_id=ID), window_ms=-1, max_ids=9))[0].entry
        for _ in range(2)
    ]
    await let_be_due(first)
    assert (await append(enqueue(first, b"x", ID), max_ids=9))[0].status == "stored"
    assert await store.read("HGET", keys.id_entries(partition), ID) == str(second).encode()


async def test_ids_age_by_a_time_that_does_not_fall(store, keys, append, partition):
    batch = AppendBatch("", 0, 1, b"x", message_id=ID)
    await append(batch, max_ids=9)
    ahead_ms = await now_ms(store) + 2 * HOUR_MS
    await store.read("HSET", keys.meta(partition), "at_ms", ahead_ms)
    assert (await append(batch, max_ids=9))[0].status == "stored"


async def test_what_is_cancelled_may_be_sent_again_also_after_the_clock_was_set_back(
    store, keys, append, partition, broker_epoch
):
    """Ids are known by a time that does not fall, entries are numbered by one that does."""
    ahead_ms = await now_ms(store) + HOUR_MS
    await store.read("HSET", keys.meta(partition), "at_ms", ahead_ms)
    (parked,) = await append(later("", 0, 1, b"x", message_id=ID), max_ids=9)
    entries = ScheduledEntries(store, keys)
    await entries.cancel(partition, [parked.entry], broker_epoch=broker_epoch)
    (again,) = await append(AppendBatch("", 0, 1, b"x", message_id=ID), max_ids=9)
    assert again.status == "stored"


# ---- producers with gaps ------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", ["no room", "moved", "too many ids"])
@pytest.mark.parametrize("is_known", [True, False])
async def test_behind_a_refused_batch_of_a_sparse_producer_nothing_of_it_is_stored(
    append, log, partition, refusal, is_known
):
    if is_known:
        await append(AppendBatch(SPARSE, 3, 1, b"before"))
    await append(AppendBatch("", 0, 1, b"", message_id=OTHER_ID), max_ids=1)
    await append(AppendBatch("", 0, 1, b"id", message_id=OTHER_ID), max_ids=1)
    refused = AppendBatch(
        SPARSE, 5, 1, b"" if refusal == "moved" else b"refused",
        message_id=ID if refusal == "too many ids" else "",
    )  # fmt: skip
    results = await append(
        refused, AppendBatch(SPARSE, 7, 1, b"x"), AppendBatch("dlq:other", 8, 1, b"y"),
        room_bytes=1 if refusal == "no room" else None, max_ids=1,
    )  # fmt: skip
    status = "moved" if refusal == "moved" else "quota_exceeded"
    assert [each.status for each in results] == [status, "out_of_sequence", "stored"]
    again = await append(AppendBatch(SPARSE, 5, 1, b"refused"), AppendBatch(SPARSE, 7, 1, b"x"))
    assert [each.status for each in again] == ["stored", "stored"]
