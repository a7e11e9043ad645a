"""The bytes of stored batches follow from their rows: from all that a client of any kind stores."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partq.arrow.columns import record_batches
from partq.arrow.encoding import ROW_COLUMNS, canonical_bytes, stored_bytes
from partq.core.model import PartitionId
from partq.spark.read.schema import arrow_schema, source_schema
from partq.wire import batch as wire
from partq.wire.batch import Message
from tests.arrow.test_decoding import encodings, messages, stored

SCHEMA = arrow_schema(source_schema(with_headers=True, names=[*ROW_COLUMNS, "offset", "encoded"]))
PARTITION = PartitionId(3, 7)
START = datetime(1970, 1, 1, tzinfo=UTC)
EDGES = [
    *(0, 1, 127, 128, 255, 256, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 253_402_300_799_999),
    *(-1, -32, -33, -128, -129, -(2**15), -(2**15) - 1, -(2**31), -(2**31) - 1),
    -62_135_596_800_000,
]
"""Event times at which the encoding of an integer changes, and the last ones of a row."""


def rows_of(batches, start=0, stop=2**62):
    made = record_batches(
        batches, SCHEMA, queue="orders", partition=PARTITION, start=start, stop=stop
    )
    return pa.Table.from_batches(made, SCHEMA).combine_chunks().to_batches()


def columns_of(*rows):
    """Return columns of (key, value, headers, event time)."""
    return [
        pa.array(column, SCHEMA.field(name).type)
        for name, column in zip(ROW_COLUMNS, zip(*rows, strict=True), strict=True)
    ]


def text_of(size):
    return "é" * (size // 2) + "x" * (size % 2)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 255, 256, 65_535, 65_536])
def test_each_width_of_a_length_is_that_of_the_wire(size):
    message = Message(text_of(size), bytes(size), {text_of(size): text_of(size)}, 1)
    row = (message.key, message.value, list(message.headers.items()), START + timedelta(0, 0, 1000))
    assert canonical_bytes(*columns_of(row)).to_pylist() == [wire.encode_message(message)]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_536])
def test_each_number_of_headers_is_that_of_the_wire(count):
    message = Message(None, b"", {str(each): "" for each in range(count)}, 0)
    row = (None, b"", list(message.headers.items()), None)
    without = (None, b"", None, None)
    got = canonical_bytes(*columns_of(row, without, row)).to_pylist()
    other = wire.encode_message(Message(None, b""))
    assert got == [wire.encode_message(message), other, wire.encode_message(message)]


def test_each_width_of_a_time_is_that_of_the_wire():
    rows = [("k", b"v", None, START + timedelta(milliseconds=at) if at else None) for at in EDGES]
    want = [wire.encode_message(Message("k", b"v", None, at)) for at in EDGES]
    columns = columns_of(*rows)
    assert canonical_bytes(*columns).to_pylist() == want
    parts = [column.slice(3, 9) for column in columns]
    assert canonical_bytes(*parts).to_pylist() == want[3:12]


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(("k", None, None, None), id="no value"),
        pytest.param(("k", b"v", None, START), id="a time of 0 that is given"),
        pytest.param(("k", b"v", None, START + timedelta(0, 0, 1001)), id="between milliseconds"),
        pytest.param(("k", b"v", [("a", None)], None), id="a header without a text"),
    ],
)
def test_a_row_that_no_message_has_gives_bytes_that_no_message_has(row):
    (got,) = canonical_bytes(*columns_of(row)).to_pylist()
    assert got not in {
        wire.encode_message(Message("k", b"v", headers, at))
        for headers in (None, {"a": ""})
        for at in (0, 1)
    } | {wire.encode_message(Message("k", b""))}


@settings(max_examples=40)
@given(
    st.lists(
        st.lists(encodings | st.builds(wire.encode_message, messages), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    ),
    st.data(),
)
def test_rows_give_the_bytes_of_their_batches(groups, data):
    """Also of part of a batch; bytes are kept only beside a row that they do not follow from."""
    batches, every = [], []
    for group in groups:
        batches.append(stored(group, len(every), data.draw(st.sampled_from(wire.Codec))))
        every += group
    start = data.draw(st.integers(0, len(every)))
    stop = data.draw(st.integers(start, len(every)))
    wanted = every[start:stop]
    for rows in rows_of(batches, start, stop):
        assert stored_bytes(rows).to_pylist() == wanted
        canonical = canonical_bytes(*(rows.column(name) for name in ROW_COLUMNS)).to_pylist()
        assert rows.column("encoded").to_pylist() == [
            None if bytes_of == message else message
            for bytes_of, message in zip(canonical, wanted, strict=True)
        ]
