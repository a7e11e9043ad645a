"""Rows as messages: the wire's own decoder and encoder are the judges."""

from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partq.core.hashing import slot_of
from partq.core.layout import Layout
from partq.core.numbering.scheduled_ids import AT_ONCE, DueTime
from partq.errors import BadRequestError, MessageTooLargeError
from partq.spark.write import batcher, encoding
from partq.spark.write.batcher import Batcher
from partq.spark.write.encoding import RowEncoder
from partq.spark.write.keyless import KeylessSlots
from partq.spark.write.sink_columns import WriteColumns
from partq.wire import batch as wire
from partq.wire.batch import Codec, Message
from partq.wire.frame import SCHEDULED

COLUMNS = WriteColumns(value=0, key=1, headers=2, event_time=3, ttl_ms=4)
TYPES = {
    "value": pa.binary(),
    "key": pa.string(),
    "headers": pa.map_(pa.string(), pa.string()),
    "event_time": pa.int64(),
    "ttl_ms": pa.int64(),
}
LAYOUT = Layout.first(3)

lengths = st.sampled_from([0, 1, 31, 32, 33, 255, 256, 257, 1024])
keys = st.one_of(
    st.none(), st.text(st.characters(codec="utf-8"), max_size=40), lengths.map(lambda n: "k" * n)
)
values = st.one_of(st.binary(max_size=40), st.sampled_from([255, 256, 65_535, 65_536]).map(bytes))
headers = st.one_of(
    st.none(),
    st.dictionaries(st.text(max_size=5), st.text(st.characters(codec="utf-8")), max_size=20),
)
times = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(
        [b + d for b in (0, 2**7, 2**8, 2**15, 2**16, 2**31, 2**32) for d in (-1, 0, 1)]
    ),
    st.sampled_from([-b + d for b in (32, 2**7, 2**15, 2**31) for d in (-1, 0, 1)]),
)
ttls = st.sampled_from([None, 0, 5, 7])
rows = st.lists(st.tuples(values, keys, headers, times, ttls), max_size=30)


def batch_of(rows, types=TYPES):
    columns = zip(*rows, strict=True) if rows else [()] * len(types)
    arrays = [
        pa.array([list(v.items()) if isinstance(v, dict) else v for v in column], kind)
        for column, kind in zip(columns, types.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, list(types))


def encoder(columns=COLUMNS, *, layout=LAYOUT, policy="Random", **given):
    given = {"max_message_bytes": 10**6, "ttl_ms": 0, **given}
    return RowEncoder(columns, layout, KeylessSlots("task", layout, policy), **given)


def batches_of(runs, codec=Codec.NONE):
    """Return all batches, by partition."""
    out = defaultdict(list)
    gathered = Batcher(codec)
    for run in runs:
        for partition, ready in gathered.add(run):
            out[partition].append(ready)
    for partition, ready in gathered.rest():
        out[partition].append(ready)
    return out


def expected_of(row):
    value, key, its_headers, time, _ = row
    return Message(key, value, its_headers, time or 0)


@settings(deadline=None)
@given(rows, st.sampled_from(Codec), st.integers(1, 4))
def test_messages_are_what_the_wire_makes_of_the_rows(rows, codec, step):
    encode = encoder().encode
    runs = []
    for start in range(0, len(rows), step):
        runs += encode(batch_of(rows[start : start + step]))
    read = []
    for partition, batches in batches_of(runs, codec).items():
        for ready in batches:
            header = wire.check(
                ready.data,
                slots=LAYOUT.slots(partition),
                max_message_bytes=10**6,
            )
            messages = wire.decode(ready.data)
            assert ready.count == header.count == len(messages)
            assert ready.size_bytes == sum(map(len, wire.encode_messages(messages)))
            slots = wire.read_slots(ready.data, header)
            ends = wire.read_ends(ready.data, header)
            assert ends[-1] == header.raw_bytes
            for message, slot in zip(messages, slots, strict=True):
                assert message.key is None or slot == slot_of(message.key)
                read.append((partition, message, ready.ttl_ms))
    for key in {row[1] for row in rows} - {None}:
        wanted = [(expected_of(row), row[4] or 0) for row in rows if row[1] == key]
        assert [(m, ttl) for _, m, ttl in read if m.key == key] == wanted
    as_bytes = sorted(wire.encode_message(message) for _, message, _ in read)
    assert as_bytes == sorted(wire.encode_message(expected_of(row)) for row in rows)


@settings(deadline=None)
@given(rows)
def test_each_message_is_byte_for_byte_the_clients(rows):
    one = Layout.first(1)
    plain = [(*row[:4], None) for row in rows]
    runs = list(encoder(layout=one).encode(batch_of(plain)))
    raw = b"".join(run.raw for run in runs)
    assert raw == b"".join(wire.encode_messages(map(expected_of, plain)))


@settings(deadline=None)
@given(rows.filter(bool), st.integers(1, 4))
def test_an_outline_does_not_depend_on_how_rows_are_cut(rows, step):
    plain = [(*row[:4], None) for row in rows]
    one = Layout.first(1)
    [(_, [ready])] = batches_of(encoder(layout=one).encode(batch_of(plain))).items()
    encode, crc = encoder(layout=one).encode, 0
    for start in range(0, len(plain), step):
        for run in encode(batch_of(plain[start : start + step])):
            slots, sizes = run.slots.astype("<u2"), run.sizes.astype("<u4")
            crc = wire.outline(slots.tobytes(), sizes.tobytes(), crc)
    assert wire.read_outline(ready.data) == crc


@pytest.mark.parametrize("policy", ["Random", "RoundRobin"])
@pytest.mark.parametrize("step", [1, 7, 100])
def test_rows_without_a_key_go_to_the_same_slots_at_every_attempt(policy, step):
    rows = [(b"v%d" % n, None if n % 3 else "k", None, None, None) for n in range(100)]

    def placed(step):
        encode = encoder(policy=policy).encode
        runs = [r for at in range(0, 100, step) for r in encode(batch_of(rows[at : at + step]))]
        return {
            partition: [m.value for ready in batches for m in wire.decode(ready.data)]
            for partition, batches in batches_of(runs).items()
        }

    assert placed(step) == placed(13)
    assert len(placed(step)) == 3


def test_round_robin_gives_every_partition_its_turn():
    slots = KeylessSlots("task", LAYOUT, "RoundRobin").take(300)
    counts = [
        sum(slot in LAYOUT.slots(p)[0] for slot in slots.tolist()) for p in LAYOUT.partitions()
    ]
    assert counts == [100, 100, 100]


def test_columns_may_be_missing_and_strings_may_be_values():
    only_value = WriteColumns(value=0, key=None, headers=None, event_time=None, ttl_ms=None)
    rows = pa.RecordBatch.from_pydict({"value": pa.array(["é", ""])})
    runs = list(encoder(only_value, layout=Layout.first(1), ttl_ms=9).encode(rows))
    assert [run.ttl_ms for run in runs] == [9]
    assert b"".join(run.raw for run in runs) == b"".join(
        wire.encode_messages([Message(None, "é".encode()), Message(None, b"")])
    )


def test_times_are_floored_to_milliseconds():
    columns = WriteColumns(value=0, key=None, headers=None, event_time=1, ttl_ms=None)
    stamps = pa.array([1_500_999, -1, None], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = pa.RecordBatch.from_arrays([pa.array([b"a", b"b", b"c"]), stamps], ["value", "at"])
    runs = encoder(columns, layout=Layout.first(1)).encode(rows)
    [(_, [ready])] = batches_of(runs).items()
    assert [m.event_time_ms for m in wire.decode(ready.data)] == [1500, -1, 0]


def test_batches_end_at_their_limits(monkeypatch):
    monkeypatch.setattr(batcher, "MAX_BATCH_MESSAGES", 4)
    monkeypatch.setattr(batcher, "MAX_BYTES", 100)
    sizes = [10, 10, 10, 10, 10, 60, 60, 500, 10]
    rows = [(bytes(size), "k", None, None, None) for size in sizes]
    runs = encoder().encode(batch_of(rows))
    [(_, batches)] = batches_of(runs).items()
    found = [[len(m.value) for m in wire.decode(ready.data)] for ready in batches]
    assert found == [[10, 10, 10, 10], [10, 60], [60], [500], [10]]


def test_with_many_partitions_batches_become_smaller(monkeypatch):
    monkeypatch.setattr(batcher, "MAX_GATHERED_BYTES", 100)
    rows = [(bytes(40), f"k{n}", None, None, None) for n in range(10)]
    gathered = Batcher(Codec.NONE)
    sent = [ready for run in encoder().encode(batch_of(rows)) for _, ready in gathered.add(run)]
    assert sum(ready.count for ready in sent) >= 8


def test_rows_above_what_is_encoded_at_once_are_cut(monkeypatch):
    monkeypatch.setattr(encoding, "MAX_SLICE_BYTES", 200)
    rows = [(bytes([n]) * 50, "k", None, None, None) for n in range(20)]
    runs = list(encoder().encode(batch_of(rows)))
    assert len(runs) > 4
    [(_, batches)] = batches_of(runs).items()
    assert [m.value[0] for r in batches for m in wire.decode(r.data)] == list(range(20))


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us", tz="UTC")])
def test_rows_that_are_due_at_one_time_are_batches_for_themselves(kind):
    columns = WriteColumns(0, None, None, None, None, deliver_at=1)
    scale = 1 if kind == pa.int64() else 1000
    later = 10**11
    dues = [None, later, later, later + 2, None, -3]
    given = [(b"%d" % n, due and due * scale) for n, due in enumerate(dues)]
    rows = batch_of(given, {"value": pa.binary(), "deliver_at": kind})
    runs = list(encoder(columns, layout=Layout.first(1)).encode(rows))
    [(_, batches)] = batches_of(runs).items()
    assert [(each.due, each.needs, each.count) for each in batches] == [
        (AT_ONCE, frozenset(), 1),
        (DueTime(later), {SCHEDULED}, 2),
        (DueTime(later + 2), {SCHEDULED}, 1),
        (AT_ONCE, frozenset(), 2),
    ]
    assert [m.value for each in batches for m in wire.decode(each.data)] == [
        b"%d" % n for n in range(6)
    ]


@pytest.mark.parametrize(
    ("at_ms", "told"),
    [(2**60, ": 1152921504606846976"), (1_795_955_974, ": got 1795955974, which")],
)
def test_a_time_that_is_none_is_refused(at_ms, told):
    columns = WriteColumns(0, None, None, None, None, deliver_at=1)
    rows = batch_of([(b"", at_ms)], {"value": pa.binary(), "deliver_at": pa.int64()})
    with pytest.raises(BadRequestError, match=f"column 'deliver_at'{told}"):
        list(encoder(columns).encode(rows))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ((None, "k", None, None, None), "column 'value': 1 of 1 rows have none"),
        ((b"", "k" * 1025, None, None, None), "at most 1024"),
        ((b"", "k", {"a": None}, None, None), "a header is null"),
        ((b"", "k", {"SessionId": "s"}, None, None), "SessionId is s and key is k"),
        ((b"", None, {"JMSXGroupID": "s"}, None, None), "JMSXGroupID is s, and the message has no"),
        ((b"", "k", None, None, -1), "column 'ttl_ms': -1"),
        ((b"", "k", None, None, 2**60), "column 'ttl_ms': 1152921504606846976"),
    ],
)
def test_rows_that_cannot_be_messages_are_refused(row, says):
    with pytest.raises(BadRequestError, match=says):
        list(encoder().encode(batch_of([row])))


def test_rows_of_stored_messages_keep_headers_that_name_a_key():
    """Those of a replay; and of any write, where the header has the value of the key."""
    stored = [(b"", "k", {"SessionId": "s"}, None, None), (b"", None, {"PartitionKey": ""}, 0, 0)]
    repeated = [(b"", "s", {"SessionId": "s"}, None, None)]
    for rows, kept in ((stored, True), (repeated, False)):
        runs = encoder(keeps_key_headers=kept).encode(batch_of(rows))
        messages = [m for batches in batches_of(runs).values() for b in batches
                    for m in wire.decode(b.data)]  # fmt: skip
        assert {(m.key, *m.headers.items()) for m in messages} == {
            (key, *headers.items()) for _, key, headers, *_ in rows
        }


@pytest.mark.parametrize("column", ["key", "headers"])
def test_texts_that_are_no_utf8_are_refused(column):
    broken = pa.array([b"\xff"]).view(pa.string())
    if column == "headers":
        offsets = pa.array([0, 1], pa.int32())
        broken = pa.MapArray.from_arrays(offsets, broken, pa.array(["v"]))
    columns = WriteColumns(**{**dict.fromkeys(TYPES), "value": 0, column: 1})
    rows = pa.RecordBatch.from_arrays([pa.array([b"v"]), broken], ["value", column])
    with pytest.raises(BadRequestError, match=f"column '{column}': no UTF-8"):
        list(encoder(columns).encode(rows))


def test_a_message_above_the_queues_limit_is_refused():
    with pytest.raises(MessageTooLargeError, match="the queue takes at most 10"):
        list(encoder(max_message_bytes=10).encode(batch_of([(bytes(20), "k", None, 0, 0)])))
