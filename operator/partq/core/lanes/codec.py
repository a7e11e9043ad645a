"""The fields of a lane book as the record of a group holds them.

`acked`: the byte 0x01, then one bit for each offset from the cursor on, the least significant bit
of a byte first, 1: acknowledged; zero bytes at the end are left out, and no ack at all is empty.
A group of another order has ranges in that field, which begin with a digit: a reader of ranges
refuses what begins with 0x01.

`parked`: `written_ms@` and `slot:until_ms` pairs, joined by commas, in milliseconds of Redis's
clock. A key that waits until it is released has `block` or `quarantine` in the place of the time: a
broker that does not know these refuses the record.
"""

import re

from partq.core.cursor.progress import Range

BITS = b"\x01"
"""Begins the bits; ranges begin with a digit."""
MAX_BITS = 100_000
"""The most offsets above a cursor that a book speaks of: bounds what a damaged value can make."""
_ONES = re.compile(rb"1+")


def encode_bits(flags: bytes) -> bytes:
    """Return the bits of offsets; `flags` has one of the bytes `0` and `1` for each."""
    if b"1" not in flags:
        return b""
    return BITS + pack(flags).rstrip(b"\0")


def pack(flags: bytes) -> bytes:
    """Return one bit for each of the bytes `0` and `1`, the least significant first."""
    if not flags:
        return b""
    return int(flags[::-1], 2).to_bytes((len(flags) + 7) // 8, "little")


def end_of_bits(field: bytes, cursor: int) -> int:
    """Return the end of the highest offset whose bit is 1; without one, the cursor."""
    return cursor + int.from_bytes(field[len(BITS) :], "little").bit_length()


def decode_bits(field: bytes, cursor: int) -> list[Range]:
    """Return the ranges of offsets that the bits of a field name, rising.

    Raises:
        ValueError: it names more offsets than `MAX_BITS`, or does not begin with 0x01.
    """
    bits = field.removeprefix(BITS)
    if len(bits) == len(field):
        raise ValueError(f"begins with {field[:1]!r}; expected {BITS!r}, then bits")
    if len(bits) > MAX_BITS // 8:
        raise ValueError(f"has {len(bits)} bytes of bits; expected at most {MAX_BITS // 8}")
    flags = format(int.from_bytes(bits, "little"), "b").encode()[::-1]
    return [(cursor + run.start(), cursor + run.end()) for run in _ONES.finditer(flags)]
