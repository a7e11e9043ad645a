"""What a broker shows of a log: golden bytes, and answers that no broker would give."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import MultiDict

from partq.errors import BadRequestError, InternalError
from partq.wire.batch import HEADER_SIZE, MAX_BATCH_COUNT
from partq.wire.calls.bodies import MAX_NATURAL
from partq.wire.calls.body_codec import read_texts
from partq.wire.calls.entries import EntriesQuery, StoredBatch, decode, encode

DATA = bytes(range(HEADER_SIZE))
BATCHES = [StoredBatch(40, 3, 5, 1700000000000, 0, DATA), StoredBatch(43, 1, 6, 2, 9, DATA * 2)]
HEAD = struct.Struct("<HBBIQQ")
INDEX = struct.Struct("<QIIQQQ")

GOLDEN = (
    (
        "716c01000200000028000000000000002c01000000000000"  # ql, 1, 0, 2 batches, 40 to 300
        "28000000000000000300000016000000050000000000000000" + "68e5cf8b0100000000000000000000"
        "2b00000000000000010000002c000000060000000000000002000000000000000900000000000000"
    )
    + (DATA * 3).hex()
)


def test_golden_bytes():
    assert encode(40, 300, BATCHES).hex() == GOLDEN
    assert decode(bytes.fromhex(GOLDEN)) == (40, 300, BATCHES)


def test_nothing_is_shown_of_an_empty_log():
    assert decode(encode(7, 7, [])) == (7, 7, [])


naturals = st.integers(0, MAX_NATURAL)
stored = st.builds(
    StoredBatch,
    first=st.just(0),
    count=st.integers(1, MAX_BATCH_COUNT),
    append_broker_epoch=naturals,
    at_ms=naturals,
    ttl_ms=naturals,
    data=st.binary(min_size=HEADER_SIZE, max_size=60),
)


@given(st.integers(0, 2**40), st.lists(stored, max_size=5), st.integers(0, 99))
def test_what_is_shown_is_read_as_it_is(first, batches, behind):
    at, placed = first, []
    for batch in batches:
        placed.append(batch._replace(first=at))
        at += batch.count
    assert decode(encode(first, at + behind, placed)) == (first, at + behind, placed)


def changed(at, kind, value, of=GOLDEN):
    answer = bytearray.fromhex(of)
    struct.pack_into(kind, answer, at, value)
    return bytes(answer)


ALL = bytes.fromhex(GOLDEN)
SECOND = HEAD.size + INDEX.size
HOSTILE = {
    "nothing": b"",
    "half a head": ALL[:23],
    "a head alone": ALL[:24],
    "half an index": ALL[: SECOND + 5],
    "cut off": ALL[:-1],
    "more than it says": ALL + b"x",
    "JSON": b'{"error": {"code": "internal", "message": "what now?"}}',
    "another magic": changed(0, "<H", 0x7170),
    "a later version": changed(2, "B", 2),
    "flags": changed(3, "B", 1),
    "more batches than bytes": changed(4, "<I", 2**32 - 1),
    "fewer batches than bytes": changed(4, "<I", 1),
    "a log that ends before it begins": changed(16, "<Q", 39),
    "an end beyond all numbers": changed(16, "<Q", 2**63),
    "no messages": changed(HEAD.size + 8, "<I", 0),
    "too many messages": changed(HEAD.size + 8, "<I", MAX_BATCH_COUNT + 1),
    "less than a batch's header": changed(HEAD.size + 12, "<I", HEADER_SIZE - 1),
    "a size beyond the bytes": changed(HEAD.size + 12, "<I", 2**32 - 1),
    "an epoch beyond all numbers": changed(HEAD.size + 16, "<Q", 2**64 - 1),
    "a time beyond all numbers": changed(HEAD.size + 24, "<Q", 2**64 - 1),
    "a time to live beyond all numbers": changed(HEAD.size + 32, "<Q", 2**64 - 1),
    "a gap": changed(SECOND, "<Q", 44),
    "an overlap": changed(SECOND, "<Q", 42),
    "a first offset beyond all numbers": changed(HEAD.size, "<Q", 2**64 - 1),
    "beyond the log's end": changed(16, "<Q", 43),
}


@pytest.mark.parametrize("answer", [pytest.param(a, id=name) for name, a in HOSTILE.items()])
def test_an_answer_that_contradicts_itself_is_refused(answer):
    with pytest.raises(InternalError, match=r"^entries: "):
        decode(answer)


@given(st.integers(0, len(ALL) - 1), st.integers(0, 255))
def test_no_byte_can_be_changed_into_a_crash(at, value):
    answer = bytearray(ALL)
    answer[at] = value
    try:
        found = decode(bytes(answer))
    except InternalError:
        return
    assert sum(len(batch.data) for batch in found.batches) == len(DATA) * 3


@given(st.binary(max_size=200))
def test_noise_is_refused(answer):
    with pytest.raises(InternalError):
        decode(answer)


def test_what_may_be_asked_for_is_bounded():
    asked = read_texts(MultiDict({"from": "12", "max_bytes": "7"}), EntriesQuery, "query")
    assert (asked.from_, asked.max_bytes, asked.append_broker_epoch) == (12, 7, 0)
    for query in (
        {},
        {"from": "-1"},
        {"from": "x"},
        {"from": str(2**54)},
        {"from": "0", "max_bytes": "0"},
        {"from": "0", "max_bytes": str(16 * 2**20 + 1)},
        {"from": "0", "append_broker_epoch": "-1"},
    ):
        with pytest.raises(BadRequestError):
            read_texts(MultiDict(query), EntriesQuery, "query")
