"""Finds the fields of many messages at once, in NumPy, without a Python object for any of them.

What producers write in practice is an array of four: a string or nil, bytes, a map of strings or
nil, an integer. Whatever else the format allows is left to the wire's own decoder, message by
message, so that both always agree on what a message is.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]
"""Places in a body, lengths and counts: 32 bits cost half of what 64 do."""
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

PADDING = 16
"""Bytes behind a body that may be looked at, though nothing there is used."""
MAX_HEADERS = 64
"""A message with more of them is left to the wire's decoder: each one is a pass over all rows."""

_ARRAY_OF_4 = 0x94
_NIL = 0xC0
_MAP_16 = 0xDE
# By type byte: how many bytes of length follow it; -1: not of this kind. A fixed string's length
# is in the type byte itself.
_STRING = np.full(256, -1, np.int8)
_STRING[0xA0:0xC0] = 0
_STRING[[0xD9, 0xDA, 0xDB]] = 1, 2, 4
_BINARY = np.full(256, -1, np.int8)
_BINARY[[0xC4, 0xC5, 0xC6]] = 1, 2, 4
# Integers: how many bytes follow, and as what they are read.
_INTEGERS = {
    0xCC: "u1",
    0xCD: "u2",
    0xCE: "u4",
    0xCF: "u8",
    0xD0: "i1",
    0xD1: "i2",
    0xD2: "i4",
    0xD3: "i8",
}
_MOST = np.iinfo(np.int64).max
_FAR = 2**30
"""A length that leads behind any body: 32 bits hold it with a place in the body added."""


@dataclass(slots=True)
class Fields:
    """Where the fields of each message are; nothing is said of a message that is `odd`."""

    odd: Bools
    """What only the wire's decoder can judge; its positions are those of its start."""
    key_at: Places
    key_end: Places
    has_key: Bools
    value_at: Places
    value_end: Places
    header_count: Places
    """This and what follows are empty where nothing behind the value was asked for."""
    has_headers: Bools
    headers_at: Places
    """Where the first header's name is."""
    event_time_ms: Ints


def find_fields(body: Bytes, starts: Places, ends: Places, *, is_whole: bool = True) -> Fields:
    """Find the fields of the messages that lie in `body` from `starts` to `ends`.

    Args:
        body: with `PADDING` bytes behind the last end.
        starts: of each message; grow, as `ends` do.
        ends: of each message, exclusive.
        is_whole: False: neither headers nor times are asked for, and what is behind the value is
            not looked at.
    """
    finder = _Finder(body, starts, ends)
    finder.require(body[starts] == _ARRAY_OF_4)
    finder.at += 1

    key_kind = body[finder.at]
    has_key = key_kind != _NIL
    key_at, key_end = finder.read_bytes(_STRING, may_be_nil=True)
    value_at, value_end = finder.read_bytes(_BINARY)
    header_count = headers_at = np.empty(0, np.int32)
    has_headers = np.empty(0, np.bool_)
    event_time_ms = np.empty(0, np.int64)
    if is_whole:
        header_count, has_headers = finder.read_map_head()
        headers_at = finder.at.copy()
        finder.skip_strings(2 * header_count)
        event_time_ms = finder.read_integers()
        finder.require(finder.at == ends)
    odd = finder.odd
    if odd.any():
        for places in (key_at, key_end, value_at, value_end, headers_at):
            if len(places):
                places[odd] = starts[odd]
        if is_whole:
            header_count[odd] = 0
    return Fields(
        odd, key_at, key_end, has_key, value_at, value_end, header_count, has_headers, headers_at,
        event_time_ms,
    )  # fmt: skip


def find_headers(
    body: Bytes, fields: Fields, ends: Places
) -> tuple[Places, Places, Places, Places]:
    """Return where each header's name and value begin and end, message by message."""
    counts = fields.header_count
    first = np.cumsum(counts) - counts
    total = int(counts.sum())
    name_at, name_end, value_at, value_end = (np.empty(total, np.int32) for _ in range(4))
    at = fields.headers_at.copy()
    for number in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > number)
        finder = _Finder(body, at[rows], ends[rows])
        places = first[rows] + number
        name_at[places], name_end[places] = finder.read_bytes(_STRING)
        value_at[places], value_end[places] = finder.read_bytes(_STRING)
        at[rows] = finder.at
    return name_at, name_end, value_at, value_end


class _Finder:
    """A place in each message, moved over one field after another."""

    def __init__(self, body: Bytes, starts: Places, ends: Places) -> None:
        self._body = body
        self._starts = starts
        self._ends = ends
        self.at = starts.copy()
        self.odd = np.zeros(len(starts), np.bool_)

    def require(self, holds: Bools) -> None:
        """Leave the messages for which that does not hold to the wire's decoder."""
        if not holds.all():
            self.odd |= ~holds
            # Nothing is read outside the body, whatever a length says.
            self.at[self.odd] = self._starts[self.odd]

    def read_bytes(
        self, kinds: npt.NDArray[np.int8], *, may_be_nil: bool = False
    ) -> tuple[Places, Places]:
        """Read a string or bytes, and return where its content begins and ends."""
        kind = self._body[self.at]
        sizes = kinds[kind]
        length = (kind & 0x1F).astype(np.int32)
        if may_be_nil:
            is_nil = kind == _NIL
            sizes[is_nil] = 0
            length[is_nil] = 0
        self.require(sizes >= 0)
        for size in (1, 2, 4):
            rows = np.flatnonzero(sizes == size)
            if len(rows):
                found = self._gather(self.at[rows] + 1, f"u{size}")
                length[rows] = np.minimum(found, np.uint32(_FAR))
        begin = self.at + 1 + np.maximum(sizes, 0)
        end = begin + length
        self.at = end.copy()
        # What follows is at least one byte, or the message's end.
        self.require(end <= self._ends)
        begin[self.odd] = end[self.odd] = self._starts[self.odd]
        return begin, end

    def read_map_head(self) -> tuple[Places, Bools]:
        """Read nil or a map's head; returns how many entries follow, and where there is a map."""
        kind = self._body[self.at]
        is_map = kind != _NIL
        is_short = (kind & 0xF0) == 0x80
        is_long = kind == _MAP_16
        self.require(~is_map | is_short | is_long)
        count = np.where(is_short, kind & 0x0F, 0).astype(np.int32)
        self.at += 1
        rows = np.flatnonzero(is_long & ~self.odd)
        if len(rows):
            count[rows] = self._gather(self.at[rows], "u2")
            self.at[rows] += 2
        self.require((self.at <= self._ends) & (count <= MAX_HEADERS))
        count[self.odd] = 0
        return count, is_map

    def skip_strings(self, counts: Places) -> None:
        """Move over so many strings, of which each message has its own count."""
        for number in range(int(counts.max(initial=0))):
            rows = np.flatnonzero((counts > number) & ~self.odd)
            within = _Finder(self._body, self.at[rows], self._ends[rows])
            within.read_bytes(_STRING)
            self.at[rows] = within.at
            holds = np.ones(len(self.odd), np.bool_)
            holds[rows] = ~within.odd
            self.require(holds)

    def read_integers(self) -> Ints:
        """Read an integer of any width; one above the largest of 64 bits with sign is that one."""
        kind = self._body[self.at]
        is_negative = kind >= 0xE0
        value = np.where(is_negative, kind.astype(np.int64) - 256, kind).astype(np.int64)
        is_known = (kind < 0x80) | is_negative
        width = np.ones_like(self.at)
        for byte, as_what in _INTEGERS.items():
            rows = np.flatnonzero(kind == byte)
            if len(rows):
                read = self._gather(self.at[rows] + 1, as_what)
                value[rows] = np.minimum(read, _MOST) if as_what == "u8" else read
                width[rows] = 1 + np.dtype(as_what).itemsize
                is_known[rows] = True
        self.at = self.at + width
        self.require(is_known)
        return value

    def _gather(self, at: Places, as_what: str) -> npt.NDArray[Any]:
        """Return the integers that begin at these places, the highest byte first."""
        kind = np.dtype(as_what)
        # A place that lies behind the body belongs to a message that its end refuses afterwards.
        at = np.minimum(at, len(self._body) - kind.itemsize)
        value = self._body[at].astype(f"u{kind.itemsize}")
        for place in range(1, kind.itemsize):
            value <<= 8
            value |= self._body[at + place]
        return value.view(kind)
