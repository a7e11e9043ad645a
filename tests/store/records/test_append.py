"""Appending: the chain of calls, numbered producers, quota, and the shape of entries."""

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partq.core.model import BrokerId, PartitionId
from partq.core.producer_series import series_name
from partq.errors import AppendGapError, FencedError
from partq.store.records.log import AppendBatch, AppendResult

FIRST_OFFSET = 100
"""Where the log ends before a table's batches: offsets and numbers must not look alike."""


class Appender:
    """Appends as a broker does: one call after another."""

    def __init__(self, log, partition, broker_epoch):
        self.log = log
        self.partition = partition
        self.broker_epoch = broker_epoch
        self.number = 0
        self.next = 0

    async def __call__(self, *batches, room_bytes=None, passed_ms=0):
        appended = await self.log.append(
            self.partition,
            broker_epoch=self.broker_epoch,
            number=self.number,
            expected=self.next,
            batches=[AppendBatch(*batch) for batch in batches],
            room_bytes=room_bytes,
            passed_ms=passed_ms,
        )
        self.number += 1
        self.next = appended.next
        return appended

    async def entries(self):
        return await self.log.read(self.partition, 0, max_bytes=2**40, max_entries=2**40)


@pytest.fixture
async def append(log, partition, broker_epoch):
    return Appender(log, partition, broker_epoch)


# ---- entries ------------------------------------------------------------------------------------


async def test_entries_are_as_documented(store, keys, append, partition, broker_epoch):
    appended = await append(
        ("", 0, 3, b"abc"), ("p", 0, 2, b"\x00\xff"), ("p", 2, 1, b"short", 60_000)
    )
    raw = await store.read("XRANGE", keys.log(partition), "-", "+")
    at_ms, epoch = str(appended.at_ms).encode(), str(broker_epoch).encode()
    stamp = [b"broker_epoch", epoch, b"at_ms", at_ms]
    assert raw == [
        [b"0-1", [b"n", b"3", *stamp, b"before", b"0", b"batch", b"abc"]],
        [
            b"3-1",
            [
                b"n",
                b"2",
                *stamp,
                b"before",
                b"3",
                b"batch",
                b"\x00\xff",
                b"ttl_ms",
                b"0",
                b"producer",
                b"p",
                b"number",
                b"0",
            ],
        ],
        [
            b"5-1",
            [
                b"n",
                b"1",
                *stamp,
                b"before",
                b"5",
                b"batch",
                b"short",
                b"ttl_ms",
                b"60000",
                b"producer",
                b"p",
                b"number",
                b"2",
            ],
        ],
    ]
    entries = await append.entries()
    assert [entry.ttl_ms for entry in entries] == [0, 0, 60_000]
    assert [(entry.producer, entry.sequence(4)) for entry in entries] == [
        ("", -1),
        ("p", 1),
        ("p", 1),
    ]
    assert appended.results == [
        AppendResult("stored", 0, -1),
        AppendResult("stored", 3, 2),
        AppendResult("stored", 5, 3),
    ]
    assert appended.next == 6


async def test_the_record_follows(partitions, append, partition):
    await append(("", 0, 3, b"abc"), ("", 0, 2, b"de"))
    record = await partitions.read(partition)
    assert (record.next, record.bytes, record.append_number) == (5, 5, 0)


async def test_time_never_falls_within_a_partition(store, keys, append, partition):
    ahead = 2**52
    await store.read("HSET", keys.meta(partition), "at_ms", ahead)
    assert (await append(("", 0, 1, b"x"))).at_ms == ahead
    assert [entry.at_ms for entry in await append.entries()] == [ahead]


async def test_offsets_are_exact_up_to_2_to_the_53(store, keys, append, partition, partitions):
    high = 2**53 - 100
    await store.read("HSET", keys.meta(partition), "next", high, "total_bytes", high)
    await store.read("HSET", keys.producers(partition), "p", f"{high} 1 {high - 2}:2:{high - 2}")
    append.next = high
    appended = await append(("p", high, 3, b"abc"), ("p", high - 2, 2, b"x"))
    assert appended.results == [
        AppendResult("stored", high, high + 3),
        AppendResult("duplicate", high - 2, high + 3),
    ]
    assert [entry.first for entry in await append.entries()] == [high]
    assert (await partitions.read(partition)).bytes == high + 3


# ---- the chain ----------------------------------------------------------------------------------


async def test_a_repeated_call_is_answered_from_memory(log, append, partition, broker_epoch):
    await append(("", 0, 1, b"first"))
    call = {"broker_epoch": broker_epoch, "number": 1, "expected": 1, "room_bytes": None}
    batches = [AppendBatch("", 0, 2, b"x"), AppendBatch("p", 7, 1, b"y")]
    first = await log.append(partition, batches=batches, **call)
    assert await log.append(partition, batches=batches, **call) == first
    assert [entry.data for entry in await append.entries()] == [b"first", b"x"]


async def test_a_call_that_stored_nothing_is_repeated_too(append, log, partition, broker_epoch):
    call = {"broker_epoch": broker_epoch, "number": 0, "expected": 0}
    refused = await log.append(
        partition, batches=[AppendBatch("", 0, 1, b"x")], room_bytes=0, **call
    )
    again = await log.append(
        partition, batches=[AppendBatch("", 0, 1, b"x")], room_bytes=None, **call
    )
    assert again == refused
    assert await append.entries() == []


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        pytest.param(2, 0, id="the log is longer"),
        pytest.param(2, 3, id="the log is shorter"),
        pytest.param(0, 2, id="the number is older than the last one"),
    ],
)
async def test_a_gap_stores_nothing(log, append, partition, broker_epoch, number, expected):
    await append(("", 0, 1, b"a"))
    await append(("", 0, 1, b"b"))
    with pytest.raises(AppendGapError):
        await log.append(
            partition,
            broker_epoch=broker_epoch,
            number=number,
            expected=expected,
            batches=[AppendBatch("", 0, 1, b"c")],
            room_bytes=None,
        )
    assert [entry.data for entry in await append.entries()] == [b"a", b"b"]


async def test_numbers_start_again_under_a_new_broker_epoch(
    partitions, log, append, partition, broker_epoch
):
    await append(("p", 0, 1, b"a"))
    claim = await partitions.claim(partition, BrokerId("b-1"), "i", expected=broker_epoch)
    with pytest.raises(FencedError):
        await append(("p", 1, 1, b"late"))
    other = Appender(log, partition, claim.broker_epoch)
    other.next = claim.next
    appended = await other(("p", 0, 1, b"a"), ("p", 1, 1, b"b"))
    assert [result.status for result in appended.results] == ["duplicate", "stored"]
    assert [entry.broker_epoch for entry in await append.entries()] == [
        broker_epoch,
        claim.broker_epoch,
    ]


async def test_a_log_that_lost_its_end_goes_on_without_mixing(
    store, keys, partitions, log, append, partition, broker_epoch
):
    """Redis forgets the second call; whoever believes in it is stopped, and a claim continues."""
    await append(("p", 0, 2, b"kept"))
    meta, producers = keys.meta(partition), keys.producers(partition)
    old_meta = await store.read("HGETALL", meta)
    old_producers = await store.read("HGETALL", producers)
    await append(("p", 2, 3, b"lost"))
    await store.read("HSET", meta, *old_meta)
    await store.read("HSET", producers, *old_producers)
    await store.read("DEL", keys.log(partition))
    await store.read(
        *("XADD", keys.log(partition), "0-1", "n", 2, "broker_epoch", broker_epoch),
        *("at_ms", 1, "before", 0, "batch", b"kept"),
    )
    with pytest.raises(AppendGapError):
        await append(("p", 5, 1, b"next"))
    claim = await partitions.claim(partition, BrokerId("b-0"), "i-0", expected=broker_epoch)
    assert claim.broker_epoch > broker_epoch
    assert claim.next == 2
    again = Appender(log, partition, claim.broker_epoch)
    again.next = claim.next
    appended = await again(("p", 5, 1, b"next"), ("p", 2, 3, b"lost"))
    assert [result.status for result in appended.results] == ["out_of_sequence", "stored"]


async def test_entries_of_earlier_versions_have_no_producer(store, keys, append, partition):
    """Those read the fields by their places: the sixth value is the time to live, or is missing."""
    stamp = ("broker_epoch", 1, "at_ms", 1, "before", 0, "batch", b"old")
    await store.read("XADD", keys.log(partition), "0-1", "n", 2, *stamp)
    await store.read("XADD", keys.log(partition), "2-1", "n", 1, *stamp, "ttl_ms", 5)
    entries = await append.entries()
    told = [(each.ttl_ms, each.producer, each.sequence(each.first)) for each in entries]
    assert told == [(0, "", -1), (5, "", -1)]


async def test_the_producer_of_a_series_is_told_without_its_key(append):
    await append((series_name("p é", "some key"), 0, 2, b"ab"), (series_name("q", "k"), 0, 1, b"c"))
    entries = await append.entries()
    assert [(each.producer, each.sequence(each.first + 1)) for each in entries] == [
        ("p é", 1),
        ("q", 1),
    ]


# ---- numbering ----------------------------------------------------------------------------------

S, D, R = "stored", "duplicate", "resend_from"
O, U, Q = "out_of_sequence", "unknown_producer", "quota_exceeded"  # noqa: E741 # the script's word


@pytest.mark.parametrize(
    ("batches", "verdicts"),
    [
        pytest.param([(0, 3)], [(S, 100, 3)], id="new: stored"),
        pytest.param([(4, 3)], [(U, -1, -1)], id="unknown: refused"),
        pytest.param([(4, 1), (0, 1)], [(U, -1, -1), (S, 100, 1)], id="unknown, then new"),
        pytest.param([(0, 3), (3, 2)], [(S, 100, 3), (S, 103, 5)], id="due: stored"),
        pytest.param([(0, 3), (0, 3)], [(S, 100, 3), (D, 100, 3)], id="known: duplicate"),
        pytest.param([(0, 3), (1, 2)], [(S, 100, 3), (D, 101, 3)], id="re-cut: duplicate"),
        pytest.param(
            [(0, 3), (3, 3), (1, 4)],
            [(S, 100, 3), (S, 103, 6), (D, -1, 6)],
            id="across two batches: a duplicate whose place has no single name",
        ),
        pytest.param([(0, 3), (2, 2)], [(S, 100, 3), (R, -1, 3)], id="partly known: resend"),
        pytest.param([(0, 3), (4, 1)], [(S, 100, 3), (O, -1, 3)], id="above: out of sequence"),
        pytest.param(
            [(0, 3), (4, 1), (3, 1), (4, 1)],
            [(S, 100, 3), (O, -1, 3), (S, 103, 4), (S, 104, 5)],
            id="a refused batch takes no offset",
        ),
    ],
)
@pytest.mark.parametrize("is_one_call", [True, False], ids=["one call", "call by call"])
async def test_numbering(append, batches, verdicts, is_one_call):
    await append(("other", 0, FIRST_OFFSET, b"before"))
    calls = [("p", first, count, b"x") for first, count in batches]
    if is_one_call:
        results = (await append(*calls)).results
    else:
        results = [(await append(call)).results[0] for call in calls]
    assert results == [AppendResult(*verdict) for verdict in verdicts]


async def test_only_the_last_five_batches_have_a_place(append, log, partition):
    await append(*[("p", number, 1, b"x") for number in range(6)])
    again = await append(*[("p", number, 1, b"x") for number in range(6)])
    assert [result.status for result in again.results] == ["duplicate"] * 6
    assert [result.offset for result in again.results] == [-1, 1, 2, 3, 4, 5]
    assert await log.producer_due(partition, "p") == 6
    assert await log.producer_due(partition, "stranger") is None


async def test_the_last_batch_of_a_producer_is_found(append, log, partition):
    await append(("p", 0, 3, b"one"), ("q", 0, 1, b"x"), ("p", 3, 2, b"two"), ("q", 1, 1, b"y"))
    first, entry = await log.last_batch(partition, "p")
    assert (first, entry.first, entry.count, entry.data) == (3, 4, 2, b"two")
    assert await log.last_batch(partition, "stranger") is None


async def test_producers_do_not_know_of_each_other(append):
    appended = await append(
        ("p", 0, 1, b"x"), ("q", 5, 1, b"x"), ("q", 0, 2, b"x"), ("p", 1, 1, b"x"), ("", 9, 1, b"x")
    )
    assert [result.status for result in appended.results] == [S, U, S, S, S]


# ---- quota --------------------------------------------------------------------------------------


async def test_room_is_judged_per_batch_before_numbering(append):
    appended = await append(
        ("p", 0, 1, b"1234"), ("p", 1, 1, b"1234567"), ("p", 2, 1, b"1"), ("q", 0, 1, b"123456"),
        room_bytes=10,
    )  # fmt: skip
    assert appended.results == [
        AppendResult(S, 0, 1),
        AppendResult(Q, -1, 1),
        AppendResult(O, -1, 1),
        AppendResult(S, 1, 1),
    ]
    again = await append(("p", 1, 1, b"1"), ("p", 0, 1, b"1234"), room_bytes=0)
    assert again.results == [AppendResult(Q, -1, 1), AppendResult(D, 0, 1)]
    assert (await append(("p", 1, 1, b"1234567"), room_bytes=None)).results[0].status == S


async def test_a_new_producer_that_met_the_quota_is_known_from_then_on(append):
    """What it had sent behind the refused batch is out of sequence, in this call and later."""
    first = await append(("p", 0, 1, b"x"), ("p", 1, 1, b"x"), room_bytes=0)
    later = await append(("p", 2, 1, b"x"), ("p", 0, 3, b"x"), room_bytes=None)
    assert first.results == [AppendResult(Q, -1, 0), AppendResult(O, -1, 0)]
    assert later.results == [AppendResult(O, -1, 0), AppendResult(S, 0, 3)]


# ---- producers that are gone --------------------------------------------------------------------


async def test_idle_producers_go_as_new_ones_come(store, keys, append, log, partition):
    at_ms = (await append(("young", 0, 1, b"x"))).at_ms
    day_ms = 24 * 3600 * 1000
    await store.read("HSET", keys.producers(partition), "old", f"7 {at_ms - day_ms - 1} 0:7:0")
    await store.read("HSET", keys.producers(partition), "idle", f"7 {at_ms - day_ms + 60000} 0:7:0")
    await append(("new", 0, 1, b"x"))
    names = await store.read("HKEYS", keys.producers(partition))
    assert sorted(names) == [b"idle", b"new", b"young"]


async def test_above_ten_thousand_idle_ones_make_room(store, keys, append, partition):
    at_ms = (await append(("p-0", 0, 1, b"x"))).at_ms
    fields = [text for n in range(1, 10_000) for text in (f"old-{n}", f"1 {at_ms - n} 0:1:0")]
    await store.read("HSET", keys.producers(partition), *fields)
    newcomers = [(f"new-{n}", 0, 1, b"x") for n in range(5)]
    await append(*newcomers)
    assert await store.read("HLEN", keys.producers(partition)) == 10_000
    found = await store.read("HMGET", keys.producers(partition), *[name for name, *_ in newcomers])
    assert None not in found


# ---- against a model ----------------------------------------------------------------------------


@dataclass
class Model:
    """What appending means, without a store: a log of (producer, number) and nothing else."""

    stored: list[tuple[str, int]] = field(default_factory=list)
    due: dict[str, int] = field(default_factory=dict)
    added: int = 0
    """Bytes of the call under way."""

    def append(self, name, first, count, size, room):
        """Return (status, due) and store."""
        if name:
            due = self.due.get(name)
            if due is None and first > 0:
                return U, -1
            due = due or 0
            if first > due:
                return O, due
            if first + count <= due and name in self.due:
                return D, due
            if first < due:
                return R, due
        if self.added + size > room:
            if name:
                self.due.setdefault(name, 0)
            return Q, self.due.get(name, -1)
        self.added += size
        self.stored += [(name, number) for number in range(first, first + count)]
        if name:
            self.due[name] = first + count
        return S, self.due.get(name, -1)


BATCHES = st.tuples(
    st.sampled_from(["", "p", "q"]),
    st.integers(min_value=0, max_value=8),
    st.integers(min_value=1, max_value=3),
    st.binary(min_size=1, max_size=4),
)
CALLS = st.lists(
    st.tuples(st.lists(BATCHES, max_size=5), st.sampled_from([0, 3, 8, 1000]), st.booleans()),
    min_size=1,
    max_size=8,
)
_cases = iter(range(10**9))


@given(calls=CALLS)
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_appending_follows_the_model(partitions, log, calls):
    """Any calls, each perhaps twice: the log holds what the model holds, once, in order."""
    partition = PartitionId(1, next(_cases))
    await partitions.create(partition)
    claim = await partitions.claim(partition, BrokerId("b"), "i", expected=0)
    append = Appender(log, partition, claim.broker_epoch)
    model = Model()
    for batches, room, is_repeated in calls:
        model.added = 0
        expected = [
            model.append(name, first, count, len(data), room)
            for name, first, count, data in batches
        ]
        number, end = append.number, append.next
        appended = await append(*batches, room_bytes=room)
        if is_repeated:
            append.number, append.next = number, end
            assert await append(*batches, room_bytes=room) == appended
        assert [(result.status, result.due) for result in appended.results] == expected
        for (name, first, count, _), result in zip(batches, appended.results, strict=True):
            if result.offset >= 0:
                place = model.stored[result.offset : result.offset + count]
                assert place == [(name, number) for number in range(first, first + count)]
        assert appended.next == len(model.stored)
    entries = await append.entries()
    assert sum(entry.count for entry in entries) == len(model.stored)
    record = await partitions.read(partition)
    assert record.bytes == sum(len(entry.data) for entry in entries)
