"""Batches as bytes, right and wrong ones, made without the code that is tested."""

import struct

from partq.wire.batch import Codec, Message

ALL_SLOTS = {"slots": (range(65_536),), "max_message_bytes": 5 * 1024 * 1024}
HEADER = struct.Struct("<HBBHIII")
"""The header without its checksum."""
PARTS = ["magic", "version", "codec", "flags", "n", "raw_len", "body_len"]


MESSAGES = [
    Message("k", b"v"),
    Message(None, b"", {"a": "b"}, 1_700_000_000_000),
    Message("", b"\x00\xff", {}, -1),
]
ENCODED = [
    bytes.fromhex("94 a16b c40176 c0 00"),
    bytes.fromhex("94 c0 c400 81a161a162 cf0000018bcfe56800"),
    bytes.fromhex("94 a0 c40200ff 80 ff"),
]
SLOTS = [258, 0, 65_535]
RAW_HEX = "94a16bc40176c0 00 94c0c40081a161a162cf0000018bcfe56800 94a0c40200ff80ff"
INDEX_HEX = "0201 0000 ffff  08000000 1a000000 22000000"
GOLDEN = {
    Codec.NONE: "7071 01 00 0000 03000000 22000000 22000000 cce535be" + INDEX_HEX + RAW_HEX,
    # An LZ4 block of literals only: a token, the rest of their number, the bytes.
    Codec.LZ4: "7071 01 01 0000 03000000 22000000 24000000 41e322c5" + INDEX_HEX
    + "f013" + RAW_HEX,
    # A Zstandard frame of one block that is not compressed: magic, size, block header, the bytes.
    Codec.ZSTD: "7071 01 02 0000 03000000 22000000 2b000000 09da3238" + INDEX_HEX
    + "28b52ffd 2022 110100" + RAW_HEX,
    # A zlib stream of one stored block: head, last block, its length and that inverted, the bytes,
    # their Adler-32.
    Codec.ZLIB: "7071 01 03 0000 03000000 22000000 2d000000 422cbf08" + INDEX_HEX
    + "7801 01 2200 ddff" + RAW_HEX + "16251029",
    # A Snappy block of one literal: the length of all, the literal's tag, the bytes.
    Codec.SNAPPY: "7071 01 04 0000 03000000 22000000 24000000 90acb481" + INDEX_HEX
    + "22 84" + RAW_HEX,
}  # fmt: skip


def crc32c(data):
    """CRC-32C from its description: the oracle for the library."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def assemble(body, ends, slots=None, crc=None, **header):
    """A batch from its parts, right where nothing else is said."""
    fields = {
        "magic": 0x7170, "version": 1, "codec": 0, "flags": 0,
        "n": len(ends), "raw_len": ends[-1] if ends else 0, "body_len": len(body), **header,
    }  # fmt: skip
    slots = [7] * len(ends) if slots is None else slots
    head = HEADER.pack(*(fields[part] for part in PARTS))
    rest = struct.pack(f"<{len(slots)}H", *slots) + struct.pack(f"<{len(ends)}I", *ends) + body
    return head + struct.pack("<I", crc32c(head + rest) if crc is None else crc) + rest
