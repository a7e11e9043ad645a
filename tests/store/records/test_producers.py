"""Numbered producers whose records had to go, and numbers that are used for other messages."""

import pytest

from partq.core.dead_letters import producer_of, replayer_of
from partq.core.model import PartitionId
from partq.core.producer_series import series_name
from partq.store.records.log import AppendBatch
from partq.wire.batch import Codec, Message, digest, encode, encode_message, read_header
from tests.store.records.test_append import Appender

MAX_PRODUCERS = 10_000
MAX_SERIES = 20_000
AT_ONCE = 500
SENT_BEFORE_MS = 1
DAY_MS = 24 * 3600 * 1000
STORED, DUPLICATE, REUSED = "stored", "duplicate", "number_reused"


@pytest.fixture
async def append(log, partition, broker_epoch):
    return Appender(log, partition, broker_epoch)


async def append_all(append, names, age_ms=0):
    """Append the first message of each producer; return what became of each."""
    statuses = {}
    for start in range(0, len(names), AT_ONCE):
        some = names[start : start + AT_ONCE]
        appended = await append(*((name, 0, 1, b"x", 0, "", age_ms) for name in some))
        statuses |= {n: r.status for n, r in zip(some, appended.results, strict=True)}
    return statuses


async def test_a_record_that_was_pushed_out_is_no_reason_to_store_a_repeat(append):
    """What is sent for the first time is stored; of what was sent before nobody knows it."""
    early = [f"early-{n}" for n in range(AT_ONCE)]
    await append_all(append, early)
    await append_all(append, [f"later-{n}" for n in range(MAX_PRODUCERS + AT_ONCE)])
    repeated = await append_all(append, early, SENT_BEFORE_MS)
    assert set(repeated.values()) <= {DUPLICATE, "unknown_producer"}
    assert "unknown_producer" in repeated.values(), "some were pushed out"
    assert (await append_all(append, ["fresh"])) == {"fresh": STORED}


async def test_a_repeat_is_stored_when_nothing_that_young_had_to_go(append, store, keys, partition):
    """The first copy never arrived: those who went were idle since long before it was sent."""
    at_ms = (await append(("p", 0, 1, b"x"))).at_ms
    await store.read("HSET", keys.producers(partition), "idle", f"1 {at_ms - DAY_MS - 1} 0:1:0")
    await append(("q", 0, 1, b"x"))
    assert not await store.read("HEXISTS", keys.producers(partition), "idle")
    assert await append_all(append, ["r"], SENT_BEFORE_MS) == {"r": STORED}


async def test_an_idle_record_that_goes_later_hides_no_younger_one(append, store, keys, partition):
    at_ms = (await append(("p", 0, 1, b"x"))).at_ms
    await store.read("HSET", keys.meta(partition), "producers_forgotten_ms", str(at_ms))
    await store.read("HSET", keys.producers(partition), "idle", f"1 {at_ms - DAY_MS - 1} 0:1:0")
    await append(("q", 0, 1, b"x"))
    assert not await store.read("HEXISTS", keys.producers(partition), "idle")
    assert await append_all(append, ["r"], SENT_BEFORE_MS) == {"r": "unknown_producer"}


async def jump(store, keys, partition, jump_ms):
    """Set Redis's clock ahead, as far as the partition can tell."""
    await store.read("HINCRBY", keys.meta(partition), "at_ms", jump_ms)


async def test_a_clock_that_jumps_makes_no_record_idle(append, store, keys, partition):
    await append(("p", 0, 1, b"x"))
    await jump(store, keys, partition, 2 * DAY_MS)
    await append_all(append, [f"later-{n}" for n in range(AT_ONCE)])
    assert await append_all(append, ["p"], SENT_BEFORE_MS) == {"p": DUPLICATE}


async def test_a_clock_that_jumps_hides_no_record_that_was_pushed_out(
    append, store, keys, partition
):
    """Neither before the record goes, nor between that and the repeat."""
    early = [f"early-{n}" for n in range(AT_ONCE)]
    await append_all(append, early)
    await jump(store, keys, partition, DAY_MS)
    await append_all(append, [f"later-{n}" for n in range(MAX_PRODUCERS + AT_ONCE)])
    await jump(store, keys, partition, DAY_MS)
    repeated = await append_all(append, early, SENT_BEFORE_MS)
    assert set(repeated.values()) <= {DUPLICATE, "unknown_producer"}
    assert "unknown_producer" in repeated.values(), "some were pushed out"


async def test_records_age_by_the_time_that_brokers_have_seen_pass(append, store, keys, partition):
    await append(("p", 0, 1, b"x"))
    await append(("early", 0, 1, b"x"), passed_ms=DAY_MS)
    await append(("later", 0, 1, b"x"), passed_ms=1)
    assert sorted(await store.read("HKEYS", keys.producers(partition))) == [b"early", b"later"]
    repeated = await append(("q", 0, 1, b"x", 0, "", SENT_BEFORE_MS))
    assert repeated.results[0].status == STORED
    repeated = await append(("p", 0, 1, b"x", 0, "", DAY_MS))
    assert repeated.results[0].status == "unknown_producer"


async def test_records_of_an_earlier_version_age_from_where_they_are(
    append, store, keys, partition
):
    """It had no count of its own: it aged them by Redis's clock, as the log's last time says."""
    at_ms = (await append(("p", 0, 1, b"x"))).at_ms
    await store.read("HDEL", keys.meta(partition), "passed_ms")
    await store.read("HSET", keys.producers(partition), "idle", f"1 {at_ms - DAY_MS} 0:1:0")
    await append(("q", 0, 1, b"x"))
    assert await store.read("HEXISTS", keys.producers(partition), "idle")
    await append(("r", 0, 1, b"x"), passed_ms=1)
    assert not await store.read("HEXISTS", keys.producers(partition), "idle")


def former_replayer(broker_epoch):
    """Return under which name earlier versions replayed: one for each broker epoch."""
    return f"dlq:0f3a9c1e#1.0@{broker_epoch}/"


async def test_outboxes_and_replays_are_never_forgotten_but_those_of_earlier_versions(
    append, store, keys, partition
):
    lasting = [
        producer_of("0f3a9c1e", PartitionId(1, 0), "workers"),
        replayer_of("0f3a9c1e", PartitionId(1, 0)),
    ]
    former = list(map(former_replayer, range(10)))
    await append(*((name, 5, 1, b"x") for name in [*lasting, *former]))
    await append(("p", 0, 1, b"x"), passed_ms=DAY_MS)
    repeated = await append(*((name, 5, 1, b"x") for name in [*lasting, *former[1:]]))
    assert {result.status for result in repeated.results} == {DUPLICATE}
    await append(("q", 0, 1, b"x"), passed_ms=1)
    left = await store.read("HKEYS", keys.producers(partition))
    assert sorted(left) == sorted([*(name.encode() for name in lasting), b"p", b"q"])


async def test_replays_are_not_pushed_out_by_number(append, store, keys, partition):
    at_ms = (await append(("p", 0, 1, b"x"))).at_ms
    replays = list(map(former_replayer, range(5000)))
    others = [f"p-{n}" for n in range(MAX_PRODUCERS - len(replays))]
    fields = [text for name in replays for text in (name, f"1 {at_ms - DAY_MS} 0:1:0")]
    fields += [text for name in others for text in (name, f"1 {at_ms} 0:1:0")]
    await store.read("HSET", keys.producers(partition), *fields)
    await append_all(append, [f"new-{n}" for n in range(AT_ONCE)])
    left = await store.read("HKEYS", keys.producers(partition))
    assert sum(name.startswith(b"dlq:") for name in left) == len(replays)


async def test_series_and_producers_do_not_push_each_other_out(append, store, keys, partition):
    series = [series_name("http", f"order-{n}") for n in range(MAX_PRODUCERS + AT_ONCE)]
    await append_all(append, ["library"])
    await append_all(append, series)
    assert await store.read("HKEYS", keys.producers(partition)) == [b"library"]
    assert await store.read("HLEN", keys.series(partition)) == len(series)


async def test_above_twenty_thousand_idle_series_make_room(append, store, keys, partition):
    at_ms = (await append((series_name("http", "first"), 0, 1, b"x"))).at_ms
    names = [series_name("http", f"order-{n}") for n in range(1, MAX_SERIES)]
    fields = [text for n, name in enumerate(names, 1) for text in (name, f"1 {at_ms - n} 0:1:0")]
    await store.read("HSET", keys.series(partition), *fields)
    newcomers = [series_name("http", f"new-{n}") for n in range(5)]
    await append_all(append, newcomers)
    assert await store.read("HLEN", keys.series(partition)) == MAX_SERIES
    assert None not in await store.read("HMGET", keys.series(partition), *newcomers)
    pushed_out = await store.read("HGET", keys.meta(partition), "series_forgotten_ms")
    assert at_ms - MAX_SERIES < int(pushed_out) < at_ms


async def test_a_series_that_an_earlier_version_has_noted_goes_on(
    append, log, store, keys, partition
):
    name = series_name("http", "order-1")
    at_ms = (await append(("", 0, 3, b"x"))).at_ms
    await store.read("HSET", keys.producers(partition), name, f"3 {at_ms} 0:3:0")
    assert await log.producer_due(partition, name) == 3
    appended = await append((name, 2, 1, b"x"), (name, 3, 1, b"x"))
    assert [(r.status, r.offset) for r in appended.results] == [(DUPLICATE, 2), (STORED, 3)]
    assert await log.producer_due(partition, name) == 4
    assert not await store.read("HEXISTS", keys.producers(partition), name)


# ---- numbers that are used again ----------------------------------------------------------------


def numbered(first, *values, codec=Codec.NONE):
    """Return a numbered batch of texts as a broker appends it."""
    data = encode(
        [encode_message(Message("k", v.encode())) for v in values], [7] * len(values), codec
    )
    header = read_header(data)
    return AppendBatch("p", first, header.count, data, 0, digest(data, header))


LONG = "a" * 500
OTHER = "b" * 500


@pytest.mark.parametrize(
    ("before", "again", "status"),
    [
        pytest.param(numbered(0, "a"), numbered(0, "a"), DUPLICATE, id="the same bytes"),
        pytest.param(numbered(0, "a"), numbered(0, "poison"), REUSED, id="another message"),
        pytest.param(numbered(0, "a"), numbered(0, "b"), REUSED, id="another one of its size"),
        pytest.param(
            numbered(0, LONG), numbered(0, LONG, codec=Codec.ZSTD), DUPLICATE, id="compressed now"
        ),
        pytest.param(
            numbered(0, LONG, codec=Codec.LZ4), numbered(0, LONG, codec=Codec.ZSTD), DUPLICATE,
            id="compressed otherwise",
        ),
        pytest.param(
            numbered(0, LONG, codec=Codec.ZSTD), numbered(0, LONG + "a", codec=Codec.ZSTD), REUSED,
            id="compressed, and another size",
        ),
        pytest.param(
            numbered(0, LONG, codec=Codec.ZSTD), numbered(0, OTHER, codec=Codec.ZSTD), DUPLICATE,
            id="compressed, of the same size: cannot be told from another compression",
        ),
        pytest.param(numbered(0, "a", "b"), numbered(1, "b"), DUPLICATE, id="cut otherwise"),
        pytest.param(numbered(0, "a", "b"), numbered(1, "x"), DUPLICATE, id="cut, not compared"),
        pytest.param(numbered(0, "a", "b"), numbered(0, "a"), DUPLICATE, id="cut behind its first"),
        pytest.param(
            AppendBatch("p", 0, 1, b"old"), numbered(0, "x"), DUPLICATE,
            id="noted by an earlier version",
        ),
        pytest.param(
            AppendBatch("dlq:q", 5, 1, b"old", 0, "00000001.00000001.0"),
            AppendBatch("dlq:q", 5, 1, b"new", 0, "00000002.00000002.0"), DUPLICATE,
            id="a dead letter: its headers may change",
        ),
    ],
)  # fmt: skip
async def test_a_number_stands_for_one_message(log, partition, broker_epoch, before, again, status):
    call = {"broker_epoch": broker_epoch, "room_bytes": None}
    await log.append(partition, number=0, expected=0, batches=[before], **call)
    end = before.count
    appended = await log.append(partition, number=1, expected=end, batches=[again], **call)
    (result,) = appended.results
    assert (result.status, appended.next) == (status, end)
    assert result.due == before.first + before.count
    # Whatever it was, what is due is stored.
    due = AppendBatch(before.producer, result.due, 1, b"due", 0, "00000003.00000003.0")
    appended = await log.append(partition, number=2, expected=end, batches=[due], **call)
    assert appended.results[0].status == STORED
