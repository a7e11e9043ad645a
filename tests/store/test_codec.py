"""Ranges and counts as text, and the names of keys."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.lanes.codec import encode_bits
from partq.core.model import PartitionId
from partq.errors import InternalError
from partq.store import codec
from partq.store.keys import Keys

OFFSETS = st.integers(min_value=0, max_value=2**53)


@given(st.lists(st.tuples(OFFSETS, OFFSETS), max_size=20))
def test_ranges_come_back(ranges):
    assert codec.decode_ranges(codec.encode_ranges(ranges).encode()) == ranges


@given(st.dictionaries(OFFSETS, OFFSETS, max_size=20))
def test_counts_come_back(counts):
    assert codec.decode_counts(codec.encode_counts(counts).encode()) == counts


def test_text_is_as_documented():
    assert codec.encode_ranges([(3, 7), (9, 12)]) == "3-7,9-12"
    assert codec.encode_counts({9: 2, 5: 1}) == "5:1,9:2"
    assert codec.encode_ranges([]) == ""


@pytest.mark.parametrize("text", [b"3", b"3-", b"-3", b"a-b", b"3:4", b"3-4,", b"3-4-5"])
def test_damaged_text_is_refused(text):
    with pytest.raises(InternalError, match="damaged"):
        codec.decode_ranges(text)


def test_bits_are_as_documented():
    assert encode_bits(b"") == encode_bits(b"000") == b""
    assert encode_bits(b"01") == b"\x01\x02"
    assert encode_bits(b"1000000001000000000") == b"\x01\x01\x02"
    assert codec.encode_acks(b"\x01\x01\x02", 5) == (b"\x01\x01\x02", 15)
    assert codec.encode_acks([(7, 9)], 5) == ("7-9", 9)
    assert codec.encode_acks([], 5) == ("", 5)


@given(st.sets(st.integers(0, 300)), OFFSETS)
def test_bits_come_back(offsets, cursor):
    flags = bytes(ord("1") if at in offsets else ord("0") for at in range(301))
    field, end = codec.encode_acks(encode_bits(flags), cursor)
    assert end == max(offsets, default=-1) + 1 + cursor
    pairs = codec.decode_acks(field, cursor)
    assert {offset - cursor for pair in pairs for offset in range(*pair)} == offsets
    assert all(before[1] < after[0] for before, after in pairwise(pairs))


def test_bits_are_bounded():
    with pytest.raises(InternalError, match="12501 bytes of bits; expected at most 12500"):
        codec.decode_acks(b"\x01" + bytes(12_501), 0)


def test_waiting_lanes_are_slots():
    assert codec.encode_parked({9: 2, 5: 1}, 7) == "7@5:1,9:2"
    assert (codec.encode_parked({}), codec.encode_parked(None)) == ("", "=")
    assert codec.decode_parked(b"3@65536:7") == ({65_536: 7}, 3)
    assert codec.decode_parked(b"") == ({}, 0)
    held = {5: -1, 7: 4, 9: -2}
    assert codec.encode_parked(held, 3) == "3@5:block,7:4,9:quarantine"
    assert codec.decode_parked(b"3@5:block,7:4,9:quarantine") == (held, 3)
    with pytest.raises(InternalError, match="damaged"):
        codec.decode_parked(b"3@5:blocked")
    with pytest.raises(InternalError, match="damaged"):
        codec.decode_counts(b"5:block")  # as a reader that does not know the words
    with pytest.raises(InternalError, match="slot 65537 waits; expected at most 65535, or 65536"):
        codec.decode_parked(b"3@65537:7")


def test_both_directions_are_bounded():
    too_many = [(number, number + 1) for number in range(0, 2 * codec.MAX_PAIRS + 2, 2)]
    with pytest.raises(InternalError, match="at most"):
        codec.encode_ranges(too_many)
    text = ",".join(f"{first}-{end}" for first, end in too_many).encode()
    with pytest.raises(InternalError, match="damaged"):
        codec.decode_ranges(text)


def test_keys_of_a_partition_share_a_tag():
    keys = Keys("partq", "ns", "orders", "0f3a9c1e")
    partition = PartitionId(1, 3)
    tag = "partq:{ns/orders@0f3a9c1e#1.3}:"
    assert keys.log(partition) == tag + "log"
    assert keys.meta(partition) == tag + "meta"
    assert keys.producers(partition) == tag + "producers"
    assert keys.cursor(partition, "workers") == tag + "cursor:workers"


def test_keys_of_queue_and_group():
    keys = Keys("partq", "ns", "orders", "0f3a9c1e")
    assert keys.lives() == "partq:{ns/orders}:lives"
    assert keys.ended_life("0f3a9c1e") == "partq:{ns/orders}:ended:0f3a9c1e"
    assert keys.layout() == "partq:{ns/orders@0f3a9c1e}:layout"
    assert keys.config() == "partq:{ns/orders@0f3a9c1e}:config"
    assert keys.brokers() == "partq:{ns/orders@0f3a9c1e}:brokers"
    group = "partq:{ns/orders@0f3a9c1e/workers}:"
    assert keys.group_config("workers") == group + "config"
    assert keys.assignment("workers") == group + "assignment"
    assert keys.members("workers") == group + "members"
    assert keys.handoffs("workers") == group + "handoffs"
    assert keys.events() == "partq:events"
