"""The bytes of a batch never change once released, and what goes in comes out."""

import random
import struct
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partq.wire import batch
from partq.wire.batch import Codec, Message
from tests.wire.batch_bytes import (
    ALL_SLOTS,
    ENCODED,
    GOLDEN,
    HEADER,
    MESSAGES,
    PARTS,
    SLOTS,
    assemble,
    crc32c,
)

# ---- golden bytes -------------------------------------------------------------------------------


def test_the_oracle_knows_the_published_check_value():
    assert crc32c(b"123456789") == 0xE3069283


def test_golden_messages():
    assert [batch.encode_message(message) for message in MESSAGES] == ENCODED
    assert batch.encode_messages(MESSAGES) == ENCODED


def test_golden_encoding():
    golden = bytes.fromhex(GOLDEN[Codec.NONE])
    assert batch.encode(ENCODED, SLOTS) == golden
    assert assemble(b"".join(ENCODED), list(accumulate(map(len, ENCODED))), SLOTS) == golden


@pytest.mark.req("PUL-64", "PUL-65")
@pytest.mark.parametrize("codec", list(Codec))
def test_golden_decoding(codec):
    golden = bytes.fromhex(GOLDEN[codec])
    header = batch.check(golden, **ALL_SLOTS)
    assert (header.codec, header.count, header.raw_bytes) == (codec, 3, 34)
    assert list(batch.read_slots(golden, header)) == SLOTS
    assert list(batch.read_ends(golden, header)) == [8, 26, 34]
    assert batch.decode(golden) == batch.decode(memoryview(golden)) == MESSAGES


@pytest.mark.parametrize("codec", list(Codec))
def test_an_outline_is_of_slots_and_sizes_message_by_message(codec):
    pairs = zip(SLOTS, [8, 18, 8], strict=True)
    expected = crc32c(b"".join(struct.pack("<HI", *pair) for pair in pairs))
    assert batch.read_outline(bytes.fromhex(GOLDEN[codec])) == expected


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("window", [(0, 0), (0, 1), (1, 2), (1, 3), (2, 3), (3, 3)])
def test_a_window_of_a_batch_decodes(codec, window):
    assert batch.decode(bytes.fromhex(GOLDEN[codec]), *window) == MESSAGES[slice(*window)]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("places", [[], [0], [1], [0, 2], [1, 2], [0, 1, 2]])
def test_some_messages_of_a_batch_decode(codec, places):
    golden = bytes.fromhex(GOLDEN[codec])
    some = batch.decode_some(golden, [(place, place + 1) for place in places])
    assert some == [MESSAGES[place] for place in places]
    assert batch.decode_some(golden, [(0, 3)]) == MESSAGES


NOISE = random.Random(1).randbytes(20_000)
TEXT = b'{"order": 17, "paid": true, "by": "card"}\n' * 500


@pytest.mark.parametrize(("raw", "codec"), [
    pytest.param(TEXT, Codec.LZ4, id="text"),
    pytest.param(NOISE, Codec.NONE, id="noise"),
    pytest.param(TEXT[: batch.MIN_CHOICE_BYTES], Codec.LZ4, id="as short as may be"),
    pytest.param(TEXT[: batch.MIN_CHOICE_BYTES - 1], Codec.NONE, id="too short"),
    pytest.param(NOISE[:4096] + TEXT[:10_000], Codec.LZ4, id="noise at the start alone"),
    pytest.param(TEXT[:4096] + NOISE, Codec.LZ4, id="half of the sample is text"),
    pytest.param(TEXT[:1000] + NOISE[:7000], Codec.NONE, id="less than 15 percent are saved"),
])  # fmt: skip
def test_a_codec_is_chosen_by_a_sample(raw, codec):
    assert batch.choose_codec(raw) == codec
    outline = b"\7\0", struct.pack("<I", len(raw))
    assert batch.assemble(raw, *outline, None) == batch.assemble(raw, *outline, codec)


@pytest.mark.req("PUL-64")
@pytest.mark.parametrize("codec", sorted(set(Codec) - {Codec.NONE}))
def test_compression_changes_the_body_and_nothing_else(codec):
    plain = batch.encode(ENCODED * 50, SLOTS * 50)
    packed = batch.encode(ENCODED * 50, SLOTS * 50, codec)
    at = batch.HEADER_SIZE + 6 * 150
    assert len(packed) < len(plain)
    assert packed[batch.HEADER_SIZE : at] == plain[batch.HEADER_SIZE : at]
    fields = dict(zip(PARTS, HEADER.unpack_from(packed), strict=True))
    assert fields == {
        "magic": 0x7170, "version": 1, "codec": codec.value, "flags": 0,
        "n": 150, "raw_len": 34 * 50, "body_len": len(packed) - at,
    }  # fmt: skip
    assert batch.decode(packed) == MESSAGES * 50


def test_elements_that_a_later_version_adds_are_ignored():
    later = bytes.fromhex("97 a16b c40176 c0 05 81a178c0 92c2cb3ff8000000000000 c7030101 02 03")
    assert batch.decode(assemble(later, [len(later)])) == [Message("k", b"v", None, 5)]


def test_elements_with_a_default_may_be_missing():
    shorter = bytes.fromhex("92 a16b c40176")
    assert batch.decode(assemble(shorter, [len(shorter)])) == [Message("k", b"v")]


# ---- whatever goes in comes out -----------------------------------------------------------------

TEXTS = st.one_of(st.just(""), st.text(max_size=40))
ANY_MESSAGES = st.lists(
    st.builds(
        Message,
        st.none() | TEXTS,
        st.binary(max_size=300) | st.integers(0, 70_000).map(bytes),
        st.none() | st.dictionaries(TEXTS, TEXTS, max_size=4),
        st.integers(-(2**63), 2**63 - 1),
    ),
    min_size=1,
    max_size=20,
)


@settings(deadline=None)
@given(ANY_MESSAGES, st.sampled_from(Codec), st.data())
def test_round_trip(messages, codec, data):
    slots = data.draw(
        st.lists(st.integers(0, 65_535), min_size=len(messages), max_size=len(messages))
    )
    encoded = batch.encode_messages(messages)
    stored = batch.encode(encoded, slots, codec)
    header = batch.check(stored, **ALL_SLOTS)
    assert list(batch.read_slots(stored, header)) == slots
    assert list(batch.read_ends(stored, header)) == list(accumulate(map(len, encoded)))
    assert batch.decode(stored) == messages
    start = data.draw(st.integers(0, len(messages)))
    stop = data.draw(st.integers(start, len(messages)))
    assert batch.decode(stored, start, stop) == messages[start:stop]


@pytest.mark.req("AZR-65", "PUL-17")
@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_may_be_as_large_as_the_format_allows(codec):
    small = batch.encode_message(Message(None, b"x" * 250))
    assert len(small) * batch.MAX_BATCH_COUNT == batch.MAX_BATCH_BYTES
    stored = batch.encode([small] * batch.MAX_BATCH_COUNT, [0] * batch.MAX_BATCH_COUNT, codec)
    assert batch.check(stored, **ALL_SLOTS).count == batch.MAX_BATCH_COUNT
    assert batch.decode(stored, 65_535) == [Message(None, b"x" * 250)]
