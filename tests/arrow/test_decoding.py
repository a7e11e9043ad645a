"""What the columns hold is what the wire's own decoder says, message by message."""

import struct
from datetime import UTC, datetime, timedelta

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partq.arrow.columns import FIRST_EVENT_MS, LAST_EVENT_MS, record_batches
from partq.core.model import PartitionId
from partq.errors import UndecodableError
from partq.spark.read.schema import arrow_schema, source_schema
from partq.wire import batch as wire
from partq.wire.batch import Codec, Message
from partq.wire.calls.entries import StoredBatch

PARTITION = PartitionId(3, 7)
SCHEMA = arrow_schema(source_schema(with_headers=True))
AT_MS = 1_700_000_000_000
EPOCH = 1_699_999_999_000
START = datetime(1970, 1, 1, tzinfo=UTC)

texts = st.text(max_size=40) | st.text(alphabet="ab", min_size=250, max_size=260)
keys = st.none() | texts
values = st.binary(max_size=60) | st.binary(min_size=250, max_size=260)
headers = st.none() | st.dictionaries(st.text(max_size=8), texts, max_size=20)
times = st.integers(-(2**63), 2**64 - 1) | st.integers(-40, 300) | st.just(AT_MS)
messages = st.builds(Message, keys, values, headers, times)


def stored(encoded, first=0, codec=Codec.NONE):
    data = wire.encode(encoded, [0] * len(encoded), codec)
    return StoredBatch(first, len(encoded), EPOCH, AT_MS, 0, data)


def rows_of(batches, start=0, stop=2**62, schema=SCHEMA):
    made = record_batches(
        batches, schema, queue="orders", partition=PARTITION, start=start, stop=stop
    )
    return [row for batch in made for row in pa.Table.from_batches([batch]).to_pylist()]


def expected(message, offset):
    at = message.event_time_ms
    is_time = at != 0 and FIRST_EVENT_MS <= at <= LAST_EVENT_MS
    return {
        "queue": "orders",
        "partition": "3.7",
        "generation": 3,
        "partition_index": 7,
        "offset": offset,
        "key": message.key,
        "value": message.value,
        "headers": None if message.headers is None else list(message.headers.items()),
        "publish_time": START + timedelta(milliseconds=AT_MS),
        "event_time": START + timedelta(milliseconds=at) if is_time else None,
        "redeliveries": None,
        "append_broker_epoch": EPOCH,
        "token": {"generation": 3, "broker_epoch": EPOCH, "epoch": 0, "offset": offset},
    }


@given(st.lists(st.lists(messages, min_size=1, max_size=6), min_size=1, max_size=4), st.data())
def test_any_messages_come_out_as_they_went_in(groups, data):
    batches, every = [], []
    for group in groups:
        codec = data.draw(st.sampled_from(Codec))
        batches.append(stored([wire.encode_message(each) for each in group], len(every), codec))
        every += group
    start = data.draw(st.integers(0, len(every)))
    stop = data.draw(st.integers(start, len(every) + 1))
    assert (
        rows_of(batches, start, stop)
        == [expected(message, offset) for offset, message in enumerate(every)][start:stop]
    )


array_16 = st.builds(
    lambda text: b"\xdc\x00\x04" + text[1:], st.builds(wire.encode_message, messages)
)
with_more = st.builds(
    lambda message, more: msgspec.msgpack.encode([*msgspec.structs.astuple(message), *more]),
    messages,
    st.lists(st.none() | st.integers(0, 9) | st.lists(st.text(), max_size=2), max_size=3),
)
fewer = st.builds(lambda key, value: msgspec.msgpack.encode([key, value]), keys, values)
many_headers = st.builds(
    lambda count: wire.encode_message(Message("k", b"v", {str(each): "" for each in range(count)})),
    st.sampled_from([15, 16, 64, 65, 300]),
)
wide = st.sampled_from(  # the same message, each length and number wider than it needs be
    [
        b"\x94\xd9\x01k\xc5\x00\x01v\xde\x00\x01\xda\x00\x01a\xdb\x00\x00\x00\x01b\xcf"
        + b"\0" * 7
        + b"\7",
        b"\x94\xdb\x00\x00\x00\x01k\xc6\x00\x00\x00\x01v\xdf\x00\x00\x00\x01\xa1a\xa1b\xd3"
        + b"\xff" * 8,
        b"\x94\xda\x00\x01k\xc4\x01v\x80\xd0\x80",
        b"\x94\xc0\xc4\x00\xc0\xd1\xff\x00",
        b"\x94\xa1k\xc4\x01v\x82\xa1a\xa1b\xa1a\xa1c\x01",  # a header twice: the last one counts
        b"\x94\xc0\xc4\x00\x83\xa1a\xa1x\xa1b\xa1y\xa1a\xa1z\x01",
    ]
)
encodings = array_16 | with_more | fewer | many_headers | wide


@given(st.lists(encodings | st.builds(wire.encode_message, messages), min_size=1, max_size=8))
def test_what_other_encoders_write_is_read_like_the_wire_reads_it(encoded):
    decoded = [wire.decode_message(each) for each in encoded]
    assert rows_of([stored(encoded)]) == [
        expected(*pair) for pair in zip(decoded, range(99), strict=False)
    ]


@given(st.data())
def test_hostile_bytes_are_refused_where_the_wire_refuses_them_and_nowhere_else(data):
    good = wire.encode_message(data.draw(messages))
    broken = bytearray(data.draw(encodings | st.builds(wire.encode_message, messages)))
    for _ in range(data.draw(st.integers(0, 3))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(broken[: data.draw(st.integers(1, len(broken)))])
    batch = stored([good, cut, good], first=40)
    try:
        message = wire.decode_message(cut)
    except UndecodableError:
        with pytest.raises(UndecodableError, match=r"'orders', partition 3\.7, offset 41: "):
            rows_of([batch])
    else:
        assert rows_of([batch])[1] == expected(message, 41)


@pytest.mark.parametrize(
    "name", ["key", "value", "headers", "event_time", "offset", "token", "publish_time", "queue"]
)
@settings(max_examples=20)
@given(st.lists(messages | st.just(Message("k", b"v", {"a": "b"}, 5)), min_size=1, max_size=5))
def test_one_column_alone_is_the_same_as_among_all(name, some):
    batch = stored([wire.encode_message(each) for each in some])
    schema = pa.schema([SCHEMA.field(name)])
    want = [{name: expected(each, offset)[name]} for offset, each in enumerate(some)]
    assert rows_of([batch], schema=schema) == want


def test_a_body_is_not_opened_for_columns_that_need_none():
    batch = stored([b"\x94"])._replace(data=b"not a batch")
    schema = pa.schema([SCHEMA.field(name) for name in ("partition", "offset", "publish_time")])
    assert [row["offset"] for row in rows_of([batch], schema=schema)] == [0]


def test_a_body_that_is_not_what_its_header_says_names_its_place():
    batch = stored([wire.encode_message(Message("k", b"v"))], first=12, codec=Codec.ZSTD)
    with pytest.raises(UndecodableError, match="offset 12: batch does not decode"):
        rows_of([batch._replace(data=batch.data[:-3])])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("ends", [(7, 6), (0, 12), (2**32 - 1, 12), (6, 11), (6, 18)])
def test_ends_that_do_not_cut_up_a_body_name_its_place(codec, ends):
    encoded = [wire.encode_message(Message("k", b"v"))] * 2
    good, bad = stored(encoded, codec=codec), stored(encoded, first=2, codec=codec)
    at = wire.read_header(bad.data).ends_at
    data = bad.data[:at] + struct.pack("<2I", *ends) + bad.data[at + 8 :]
    with pytest.raises(UndecodableError, match="offset 2: batch does not decode: batch: the "):
        rows_of([good, bad._replace(data=data), stored(encoded, first=4)])


def test_a_batch_with_another_number_of_messages_than_the_log_says_is_refused():
    batch = stored([wire.encode_message(Message("k", b"v"))] * 3)
    with pytest.raises(UndecodableError, match="batch has 3 messages; it is stored as 2"):
        rows_of([batch._replace(count=2)])


def test_batches_are_joined_and_a_large_one_stays_whole():
    one = [wire.encode_message(Message(None, bytes(100)))] * 1000
    batches = [stored(one, first=1000 * number) for number in range(100)]
    batches.append(stored(one * 60, first=100_000))
    made = list(
        record_batches(batches, SCHEMA, queue="q", partition=PARTITION, start=10, stop=2**62)
    )
    assert [batch.num_rows for batch in made] == [31_990, 32_000, 32_000, 4000, 60_000]
    offsets = pa.concat_arrays([batch.column("offset") for batch in made]).to_pylist()
    assert offsets == list(range(10, 160_000))
