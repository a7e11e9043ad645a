"""The bytes of the audit record: what is written is read, and what is broken is refused."""

from hashlib import sha1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.model import PartitionId
from partq.errors import UndecodableError
from partq.wire import audit
from tests.audit_record import decode_group, encode_group, written_again

PARTITION = PartitionId(1, 3)
NAMES = st.text(max_size=20)
NUMBERS = st.integers(-1, 2**53)
FIELDS = {
    name: NAMES if kind == 0 else NUMBERS
    for name, kind in audit.FIELDS + audit.LATER_FIELDS
    if name != "kind"
}


def group_of(*records, previous=audit.GENESIS, sequence=0):
    place = {"sequence": sequence, "at_ms": 17, "broker": "orders-0", "broker_epoch": 5}
    return encode_group(previous, records, **place)


def publish(first, slots, **fields):
    stop = first + len(slots) // 2
    return audit.encode_record("publish", slots=slots, first=first, stop=stop, **fields)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(set(audit.KINDS) - {"publish"})),
            st.fixed_dictionaries({}, optional=FIELDS),
        )
    )
)
def test_what_is_written_is_read(records):
    """Whatever is in the names; what was not said is "" or -1, and that is written as nothing."""
    group = group_of(*(audit.encode_record(kind, **fields) for kind, fields in records))
    read = decode_group(PARTITION, group)
    assert [record.kind for record in read] == [kind for kind, _ in records]
    for place, (record, (_, fields)) in enumerate(zip(read, records, strict=True)):
        assert (record.partition, record.sequence, record.place) == ("1.3", 0, place)
        for name, kind in audit.FIELDS[1:] + audit.LATER_FIELDS:
            assert getattr(record, name) == fields.get(name, "" if kind == 0 else -1), name
    if records:
        assert written_again(group) == group


def test_a_later_field_changes_no_byte_of_a_line_without_it():
    """The chains of older records stay as they are; what they lack is read as nothing."""
    before, after = publish(0, b"\1\0"), publish(0, b"\1\0", content_crc=0)
    assert before.count(b"\t") == len(audit.FIELDS) - 1
    assert after == before.replace(b"\n", b"\t0\n", 1)
    read = decode_group(PARTITION, group_of(before, after))
    assert [record.content_crc for record in read] == [-1, 0]


def test_slots_are_bytes_of_any_kind():
    """Also those that look like the end of a line."""
    slots = b"\n\n\t%\n\x00"
    group = group_of(publish(7, slots, producer="p"), audit.encode_record("trim", first=0, stop=7))
    first, second = decode_group(PARTITION, group)
    assert (first.first, first.stop, first.slots, first.producer) == (7, 10, slots, "p")
    assert (second.kind, second.slots) == ("trim", b"")


def test_the_chain_is_that_of_the_bytes():
    one = group_of(audit.encode_record("claim"))
    two = group_of(audit.encode_record("bind"), previous=one.chain, sequence=1)
    assert one.chain == sha1(b"0" * 40 + one.data).hexdigest()
    assert two.previous == one.chain
    assert (one.is_whole, two.is_whole, two.sequence) == (True, True, 1)
    assert not two._replace(data=two.data.replace(b"bind", b"nack")).is_whole
    assert not two._replace(previous=audit.GENESIS).is_whole


def test_an_answer_is_split_and_becomes_columns_of_equal_length():
    one = group_of(publish(0, b"\x01\x00\x02\x00"), audit.encode_record("claim", first=0, stop=0))
    two = group_of(audit.encode_record("end"), previous=one.chain, sequence=1)
    groups = audit.split_answer(audit.encode_answer([one, two]))
    assert groups == [one, two]
    columns = audit.decode_columns(PARTITION, groups)
    assert list(columns) == list(audit.COLUMNS)
    assert {len(column) for column in columns.values()} == {3}
    assert columns["kind"] == ["publish", "claim", "end"]
    assert columns["sequence"] == [0, 0, 1]
    assert columns["place"] == [0, 1, 0]
    assert columns["chain"] == [one.chain, one.chain, two.chain]
    assert columns["slots"] == [b"\x01\x00\x02\x00", b"", b""]
    assert audit.decode_columns(PARTITION, []) == {name: [] for name in audit.COLUMNS}


ANSWER = audit.encode_answer([group_of(audit.encode_record("claim"))])


@pytest.mark.parametrize("size", [1, 43, 44, len(ANSWER) - 1])
def test_an_answer_that_is_cut_off_is_refused(size):
    with pytest.raises(UndecodableError):
        audit.split_answer(ANSWER[:size])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"1 0 17 5 orders-0", id="no end of the head"),
        pytest.param(b"2 0 17 5 orders-0\n", id="another version"),
        pytest.param(b"1 x 17 5 orders-0\n", id="a sequence that is no number"),
        pytest.param(b"1 0 17 5 b\nclaim\n", id="too few fields"),
        pytest.param(group_of(b"claim" + b"\t" * 15).data, id="no end of the line"),
        pytest.param(group_of(publish(0, b"abcd")[:-1]).data, id="slots cut off"),
        pytest.param(group_of(publish(9, b"").replace(b"\t9\t9\t", b"\t9\t1\t")).data, id="upside"),
        pytest.param(b"1 0 17 5 b\nclaim" + b"\tx" * 15 + b"\n", id="numbers that are none"),
        pytest.param(b"1 0 17 5 b\n\xff" + b"\t" * 15 + b"\n", id="no text"),
    ],
)
def test_bytes_that_are_no_group_are_refused(data):
    with pytest.raises(UndecodableError):
        audit.decode_columns(PARTITION, [audit.AuditGroup(audit.GENESIS, audit.GENESIS, data)])
