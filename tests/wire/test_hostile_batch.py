"""Bytes that are no batch end as our errors, whoever has made them."""

import contextlib
import struct
import subprocess
import sys
import zlib

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partq.errors import (
    BadBatchError,
    MessageTooLargeError,
    UndecodableError,
    WrongPartitionError,
)
from partq.wire import batch
from partq.wire.batch import Codec
from tests.wire.batch_bytes import (
    ALL_SLOTS,
    ENCODED,
    GOLDEN,
    HEADER,
    SLOTS,
    assemble,
    crc32c,
)

# ---- hostile bytes ------------------------------------------------------------------------------

ONE = ENCODED[0]
TWO = ONE + ONE


@pytest.mark.parametrize(("data", "words"), [
    pytest.param(assemble(ONE, [8], magic=0x7171), "magic 0x7171", id="magic"),
    pytest.param(assemble(ONE, [8], version=0), "version 0", id="version 0"),
    pytest.param(assemble(ONE, [8], version=2), "version 2", id="a later version"),
    pytest.param(assemble(ONE, [8], flags=1), "flags 1", id="flags"),
    pytest.param(assemble(ONE, [8], codec=5), "unknown codec 5", id="codec 5"),
    pytest.param(assemble(ONE, [8], codec=255), "unknown codec 255", id="codec 255"),
    pytest.param(assemble(b"", []), "0 messages", id="n is 0"),
    pytest.param(assemble(ONE, [8], n=0), "0 messages", id="n says 0"),
    pytest.param(assemble(ONE, [8], n=2), "its header says", id="n is one too many"),
    pytest.param(assemble(ONE, [8], n=65_537), "65537 messages", id="n is above the limit"),
    pytest.param(assemble(ONE, [8], n=2**32 - 1), "4294967295 messages", id="n is absurd"),
    pytest.param(assemble(ONE, [8], raw_len=16 * 2**20 + 1, codec=2), "expands to 16777217",
                 id="raw_len is above the limit"),
    pytest.param(assemble(ONE, [8], raw_len=2**32 - 1), "expands to 4294967295",
                 id="raw_len is absurd"),
    pytest.param(assemble(ONE, [8], raw_len=9), "not compressed, yet",
                 id="raw_len of a body as it is"),
    pytest.param(assemble(ONE, [8], codec=1, body_len=7), "got 36 bytes; its header says 35",
                 id="body_len too small"),
    pytest.param(assemble(ONE, [8], codec=1, body_len=9), "got 36 bytes; its header says 37",
                 id="body_len too large"),
    pytest.param(assemble(ONE, [8], codec=1, body_len=2**32 - 1), "its header says",
                 id="body_len is absurd"),
    pytest.param(assemble(ONE, [8]) + b"\0", "got 37 bytes; its header says 36", id="a byte more"),
    pytest.param(b"", "got 0 bytes, expected at least 22", id="nothing"),
])  # fmt: skip
def test_a_broken_header_is_refused_by_broker_and_consumer(data, words):
    with pytest.raises(BadBatchError, match=words):
        batch.check(data, **ALL_SLOTS)
    with pytest.raises(UndecodableError, match=words):
        batch.decode(data)


@pytest.mark.parametrize(("data", "words"), [
    pytest.param(assemble(ONE, [8], crc=0), "CRC-32C is .* its header says 0x00000000", id="crc"),
    pytest.param(assemble(ONE, [7], raw_len=8), "ends at 7; raw_len says 8", id="ends too early"),
    pytest.param(assemble(ONE, [9], raw_len=8), "ends at 9; raw_len says 8", id="ends too late"),
    pytest.param(assemble(TWO, [0, 16]), "do not grow", id="the first is empty"),
    pytest.param(assemble(TWO, [16, 16]), "do not grow", id="the last is empty"),
    pytest.param(assemble(TWO, [17, 16]), "do not grow", id="an end beyond the last"),
    pytest.param(assemble(TWO + ONE, [16, 8, 24]), "do not grow", id="an end goes back"),
    pytest.param(assemble(b"", [0]), "do not grow", id="no bytes at all"),
])  # fmt: skip
def test_a_broken_checksum_or_index_is_refused_by_the_broker(data, words):
    with pytest.raises(BadBatchError, match=words):
        batch.check(data, **ALL_SLOTS)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_is_cut_off_anywhere_is_refused(codec):
    golden = bytes.fromhex(GOLDEN[codec])
    for size in range(len(golden)):
        with pytest.raises(BadBatchError):
            batch.check(golden[:size], **ALL_SLOTS)
        with pytest.raises(UndecodableError):
            batch.decode(golden[:size])


@pytest.mark.parametrize("codec", list(Codec))
def test_any_changed_bit_is_noticed(codec):
    golden = bytes.fromhex(GOLDEN[codec])
    for bit in range(len(golden) * 8):
        broken = bytearray(golden)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadBatchError):
            batch.check(bytes(broken), **ALL_SLOTS)


@pytest.mark.parametrize(("slots", "is_ours"), [
    ([100, 150, 199], True), ([99, 150, 199], False), ([100, 200, 150], False), ([0, 0, 0], False),
])  # fmt: skip
def test_every_message_belongs_into_the_partition(slots, is_ours):
    stored = batch.encode(ENCODED, slots)
    limits = {"slots": (range(100, 200),), "max_message_bytes": 1000}
    if is_ours:
        batch.check(stored, **limits)
        return
    with pytest.raises(WrongPartitionError, match="the partition holds 100 to 199"):
        batch.check(stored, **limits)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_largest_message_is_found_wherever_it_stands(place):
    sizes = [10, 10, 10]
    sizes[place] = 31
    stored = batch.encode([bytes(size) for size in sizes], SLOTS)
    batch.check(stored, slots=(range(65_536),), max_message_bytes=31)
    with pytest.raises(
        MessageTooLargeError, match="31 bytes with key and headers; the queue takes at most 30"
    ):
        batch.check(stored, slots=(range(65_536),), max_message_bytes=30)


@pytest.mark.parametrize("body", [
    pytest.param("c1", id="no MessagePack"),
    pytest.param("94 a16b c40176 c0", id="a message that is cut off"),
    pytest.param("94 a16b c40176 c0 00 00", id="bytes behind the messages"),
    pytest.param("91 a16b", id="no value"),
    pytest.param("92 01 c40176", id="a key that is a number"),
    pytest.param("92 a16b a176", id="a value that is text"),
    pytest.param("92 a2ff41 c40176", id="a key that is not UTF-8"),
    pytest.param("93 a16b c40176 81a161a1ff", id="a header that is not UTF-8"),
    pytest.param("93 a16b c40176 dfffffffff", id="four billion headers"),
    pytest.param("92 a16b c6ffffffff76", id="a value of four gigabytes"),
    pytest.param("95 a16b c40176 c0 00" + "91" * 100_000 + "c0", id="nested deeply"),
])  # fmt: skip
def test_a_body_that_is_not_what_the_header_promises_is_undecodable(body):
    raw = bytes.fromhex(body)
    stored = batch.encode([raw], [7])
    batch.check(stored, **ALL_SLOTS)  # a broker never opens the body
    with pytest.raises(UndecodableError, match="does not decode"):
        batch.decode(stored)


@pytest.mark.parametrize("window", [(-1, 1), (0, 4), (4, 4), (2, 1), (0, 2**40), (-3, -1)])
def test_a_window_outside_the_batch_is_undecodable(window):
    with pytest.raises(UndecodableError, match="it holds 3"):
        batch.decode(bytes.fromhex(GOLDEN[Codec.NONE]), *window)


@pytest.mark.parametrize(("codec", "body"), [
    pytest.param(Codec.LZ4, cramjam.lz4.compress_block(TWO, store_size=False), id="lz4, more"),
    pytest.param(Codec.LZ4, cramjam.lz4.compress_block(ONE[:5], store_size=False), id="lz4, less"),
    pytest.param(Codec.LZ4, b"", id="lz4, empty"),
    pytest.param(Codec.LZ4, b"\x1f\x00\xff\xff\x00", id="lz4, a match before the start"),
    pytest.param(Codec.ZSTD, cramjam.zstd.compress(TWO), id="zstd, more"),
    pytest.param(Codec.ZSTD, cramjam.zstd.compress(ONE[:5]), id="zstd, less"),
    pytest.param(Codec.ZSTD, b"", id="zstd, empty"),
    pytest.param(Codec.ZSTD, ONE, id="zstd, not at all"),
    pytest.param(Codec.ZLIB, zlib.compress(TWO), id="zlib, more"),
    pytest.param(Codec.ZLIB, zlib.compress(ONE[:5]), id="zlib, less"),
    pytest.param(Codec.ZLIB, b"", id="zlib, empty"),
    pytest.param(Codec.ZLIB, ONE, id="zlib, not at all"),
    pytest.param(Codec.SNAPPY, cramjam.snappy.compress_raw(TWO), id="snappy, more"),
    pytest.param(Codec.SNAPPY, cramjam.snappy.compress_raw(ONE[:5]), id="snappy, less"),
    pytest.param(Codec.SNAPPY, b"", id="snappy, empty"),
    pytest.param(Codec.SNAPPY, b"\x08\x05\x09", id="snappy, a copy from before the start"),
    pytest.param(Codec.SNAPPY, b"\x08\x38" + ONE + ONE, id="snappy, a literal beyond its length"),
])  # fmt: skip
def test_a_body_that_expands_to_another_length_is_undecodable(codec, body):
    stored = assemble(bytes(body), [len(ONE)], codec=codec.value)
    batch.check(stored, **ALL_SLOTS)
    with pytest.raises(UndecodableError):
        batch.decode(stored)


ZSTD_WINDOW_128_MIB = bytes.fromhex("28b52ffd 00 88")
"""The start of a Zstandard frame that wants the largest window that decoders take unasked."""


def zstd_bomb(blocks):
    """Blocks of one repeated byte, 128 KiB each, in four bytes each."""
    head = (131_072 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (131_072 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return ZSTD_WINDOW_128_MIB + head * (blocks - 1) + last


def lz4_bomb(size):
    """One match that repeats one byte, 255 times for each byte of its length."""
    return b"\x1f\x00\x01\x00" + b"\xff" * (size // 255) + b"\x00" + b"\x50" + bytes(5)


def zlib_bomb(size):
    """Zeros: some thousand times smaller."""
    return zlib.compress(bytes(size))


def snappy_bomb(size):
    """One byte, copied 64 times over by every three bytes; the length at its begin is true."""
    copies = size // 64
    length, left = b"", 1 + 64 * copies
    while left >= 128:
        length, left = length + bytes([left & 127 | 128]), left >> 7
    return length + bytes([left]) + b"\x00\x00" + b"\xfe\x01\x00" * copies


def test_the_bombs_are_bombs():
    assert len(cramjam.snappy.decompress_raw(snappy_bomb(64_000))) == 64_001
    assert len(cramjam.zlib.decompress(zlib_bomb(64_000))) == 64_000
    assert len(cramjam.zstd.decompress(zstd_bomb(8))) == 8 * 131_072
    expanded = cramjam.lz4.decompress_block(lz4_bomb(255_000), output_len=300_000)
    assert len(expanded) > 255_000


@pytest.mark.parametrize(("codec", "body"), [
    pytest.param(Codec.ZSTD, zstd_bomb(8192), id="zstd, 1 GiB"),
    pytest.param(Codec.LZ4, lz4_bomb(2**28), id="lz4, 256 MiB"),
    pytest.param(Codec.ZLIB, zlib_bomb(2**26), id="zlib, 64 MiB"),
    pytest.param(Codec.SNAPPY, snappy_bomb(2**26), id="snappy, 64 MiB"),
])  # fmt: skip
def test_a_bomb_is_not_expanded_beyond_what_its_header_says(tmp_path, codec, body):
    raw_bytes = 1000
    path = tmp_path / "bomb"
    head = HEADER.pack(0x7170, 1, codec.value, 0, 1, raw_bytes, len(body))
    path.write_bytes(head + bytes(4) + struct.pack("<HI", 7, raw_bytes) + body)
    # In a process of its own, so that its peak is the bomb's.
    program = """if True:
        import pathlib, re, sys
        from partq.errors import UndecodableError
        from partq.wire import batch
        def peak_kib():
            status = pathlib.Path("/proc/self/status").read_text()
            return int(re.search("VmHWM: *\t *([0-9]+)", status)[1])
        data = pathlib.Path(sys.argv[1]).read_bytes()
        before = peak_kib()
        try:
            batch.decode(data)
        except UndecodableError:
            print(peak_kib() - before)
    """
    child = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, check=True, timeout=60
    )
    assert int(child.stdout) < 16 * 1024, "more than 16 MiB for a body of 1000 bytes"


# ---- bytes that nobody thought of ---------------------------------------------------------------

EDITS = st.lists(
    st.tuples(
        st.sampled_from(["set", "insert", "cut"]), st.integers(0, 120), st.binary(max_size=6)
    ),
    min_size=1,
    max_size=5,
)


def judge(data):
    """Check and decode as broker and consumer do; nothing but our errors may come."""
    with contextlib.suppress(BadBatchError, WrongPartitionError, MessageTooLargeError):
        batch.check(data, slots=(range(40_001),), max_message_bytes=64)
    with contextlib.suppress(UndecodableError):
        assert len(batch.decode_some(data, [(0, 1), (2, 3)])) == 2
    try:
        messages = batch.decode(data)
    except UndecodableError:
        return
    assert len(messages) == batch.read_header(data).count


@settings(deadline=None, max_examples=500)
@given(st.sampled_from(Codec), EDITS, st.booleans())
def test_mutations_end_as_our_errors(codec, edits, is_crc_repaired):
    data = bytearray.fromhex(GOLDEN[codec])
    for edit, at, piece in edits:
        if edit == "set":
            data[at : at + len(piece)] = piece
        elif edit == "insert":
            data[at:at] = piece
        else:
            del data[at : at + len(piece)]
    if is_crc_repaired and len(data) >= 22:
        data[18:22] = struct.pack("<I", crc32c(data[:18] + data[22:]))
    judge(bytes(data))


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(Codec), st.binary(max_size=80), st.integers(0, 2**25), st.integers(1, 3))
def test_any_body_ends_as_our_errors(codec, body, raw_bytes, count):
    ends = [max(1, raw_bytes * place // count) for place in range(1, count + 1)]
    judge(assemble(body, ends, codec=codec.value))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_end_as_our_errors(data):
    judge(data)
