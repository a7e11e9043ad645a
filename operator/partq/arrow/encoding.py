"""Encodes many rows as the messages of a stored batch, in NumPy and Arrow, not row by row.

Each message has one canonical encoding: that of `partq.wire.batch.encode_message`, which our
clients store. A row whose message was stored in other bytes has these beside it (`encoded`). So the
bytes of a stored batch follow from its archived rows.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partq.arrow.decoding import Bools, Bytes, Ints, Places

ROW_COLUMNS = ("key", "value", "headers", "event_time")
"""The columns that a message's bytes follow from."""

_NIL = 0xC0
_ARRAY_OF_4 = 0x94
_EMPTY = pa.scalar(b"", pa.binary())
# How a length is written: by how many bytes, the byte in front of it.
_STRING = ((1, 0xD9), (2, 0xDA), (4, 0xDB))
_BINARY = ((1, 0xC4), (2, 0xC5), (4, 0xC6))
_POSITIVE = ((1, 0xCC), (2, 0xCD), (4, 0xCE), (8, 0xCF))
_NEGATIVE = ((1, 0xD0), (2, 0xD1), (4, 0xD2), (8, 0xD3))


def stored_bytes(rows: pa.RecordBatch) -> pa.BinaryArray:
    """Return the bytes that the message of each row was stored in, one after another in one buffer.

    Args:
        rows: with `ROW_COLUMNS`; with `encoded`, where it is not null it is the answer.
    """
    canonical = canonical_bytes(*(rows.column(name) for name in ROW_COLUMNS))
    at = rows.schema.get_field_index("encoded")
    if at < 0 or rows.column(at).null_count == len(rows):
        return canonical
    return pc.coalesce(rows.column(at), canonical)


def canonical_bytes(
    keys: pa.Array, values: pa.Array, headers: pa.Array, event_times: pa.Array
) -> pa.BinaryArray:
    """Return the canonical encoding of messages, one after another in one buffer.

    What no message can be (a null value, a time between two milliseconds, a time of 0 that is
    given) is encoded as what no message has.

    Args:
        keys: strings; null: no key.
        values: bytes.
        headers: maps of strings; null: none.
        event_times: timestamps in microseconds; null: none.
    """
    parts = [
        _heads(_lengths(keys), _valid(keys), _STRING, 0xA0, 32, before=_ARRAY_OF_4),
        _bytes_of(keys),
        _heads(_lengths(values), _valid(values), _BINARY),
        _bytes_of(values),
    ]
    if headers.null_count < len(headers):
        parts.append(_maps(headers))
        parts.append(_times(event_times, None))
    else:
        parts.append(_times(event_times, _NIL))
    return pc.binary_join_element_wise(*parts, _EMPTY)


def places_of(encoded: pa.BinaryArray) -> tuple[Bytes, Places]:
    """Return the buffer of an array's bytes, where each begins in it, and where the last ends."""
    _, places, data = encoded.buffers()
    offsets = np.frombuffer(places, np.int32)[encoded.offset : encoded.offset + len(encoded) + 1]
    body = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return body, offsets


def other_encodings(
    columns: Mapping[str, pa.Array], body: Bytes, starts: Places, ends: Places
) -> pa.BinaryArray:
    """Return the bytes of each message that is not encoded as its row would be; else null."""
    canonical = canonical_bytes(*(columns[name] for name in ROW_COLUMNS))
    data, places = places_of(canonical)
    others: list[bytes | None] = [None] * len(starts)
    # The messages of a stored batch lie end to end, so that most are compared in one go.
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    for first, stop in zip([0, *breaks.tolist()], [*breaks.tolist(), len(starts)], strict=True):
        stored = body[starts[first] : ends[stop - 1]]
        if np.array_equal(data[places[first] : places[stop]], stored):
            continue
        for row in range(first, stop):
            message = body[starts[row] : ends[row]].tobytes()
            if message != data[places[row] : places[row + 1]].tobytes():
                others[row] = message
    return pa.array(others, pa.binary())


def _maps(headers: pa.Array) -> pa.Array:
    """Return each row's headers as they are encoded."""
    offsets = headers.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    names, values = headers.keys, headers.items
    # `keys` and `items` are whole, whatever slice of the rows this is.
    entries = pc.binary_join_element_wise(
        _heads(_lengths(names), _valid(names), _STRING, 0xA0, 32),
        _bytes_of(names),
        _heads(_lengths(values), _valid(values), _STRING, 0xA0, 32),
        _bytes_of(values),
        _EMPTY,
    )
    counts = np.diff(offsets)
    is_there = _valid(headers)
    heads = _heads(counts, is_there, ((2, 0xDE), (4, 0xDF)), 0x80, 16)
    lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), entries)
    joined = pc.binary_join(lists, _EMPTY)
    if not is_there.all():
        joined = pc.if_else(pa.array(is_there), joined, _EMPTY)
    return pc.binary_join_element_wise(heads, joined, _EMPTY)


def _heads(
    lengths: Ints,
    is_there: Bools,
    widths: tuple[tuple[int, int], ...],
    short: int | None = None,
    short_below: int = 0,
    *,
    before: int | None = None,
) -> pa.Array:
    """Return what stands before contents of these lengths: type and length, or nil.

    Args:
        lengths: of the contents.
        is_there: False: nil stands there.
        widths: in how many bytes a length is written, and the type then, the narrowest first.
        short: the type that has a length below `short_below` in itself; None: no such type.
        short_below: see there.
        before: a byte in front of each.
    """
    at = 0 if before is None else 1
    matrix = np.zeros((len(lengths), at + 5), np.uint8)
    sizes = np.full(len(lengths), at + 1, np.int64)
    if before is not None:
        matrix[:, 0] = before
    matrix[:, at] = _NIL if short is None else np.where(is_there, short | lengths, _NIL)
    least = short_below
    for width, kind in widths:
        rows = np.flatnonzero((lengths >= least) & is_there)
        if not len(rows) and least:
            break
        matrix[rows, at] = kind
        _write(matrix, rows, at + 1, lengths[rows], width)
        matrix[rows, at + 1 + width :] = 0
        sizes[rows] = at + 1 + width
        least = 1 << (8 * width)
    return _ragged(matrix, sizes)


def _times(event_times: pa.Array, before: int | None) -> pa.Array:
    """Return times as they are encoded; a null as 0."""
    is_there = _valid(event_times)
    micros = np.asarray(
        pc.fill_null(event_times.cast(pa.int64()), 0).to_numpy(zero_copy_only=False), np.int64
    )
    millis = micros // 1000
    at = 0 if before is None else 1
    matrix = np.zeros((len(millis), at + 9), np.uint8)
    if before is not None:
        matrix[:, 0] = before
    sizes = np.full(len(millis), at + 1, np.int64)
    matrix[:, at] = millis.astype(np.uint8)  # also of -32 to 127, which are one byte
    for (width, kind), (_, negative) in zip(_POSITIVE, _NEGATIVE, strict=True):
        least = 0x80 if width == 1 else 1 << (4 * width)
        rows = np.flatnonzero(millis >= least)
        lowest = -0x20 if width == 1 else -(1 << (4 * width - 1))
        below = np.flatnonzero(millis < lowest)
        for chosen, type_byte in ((rows, kind), (below, negative)):
            if len(chosen):
                matrix[chosen, at] = type_byte
                _write(matrix, chosen, at + 1, millis[chosen], width)
                sizes[chosen] = at + 1 + width
    impossible = np.flatnonzero((millis * 1000 != micros) | (is_there & (micros == 0)))
    matrix[impossible, at] = _NIL
    sizes[impossible] = at + 1
    return _ragged(matrix, sizes)


def _write(matrix: Bytes, rows: Ints, at: int, numbers: Ints, width: int) -> None:
    """Write integers of a width, the highest byte first."""
    wide = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
    matrix[rows, at : at + width] = wide[:, 8 - width :]


def _ragged(matrix: Bytes, sizes: Ints) -> pa.Array:
    """Return the first bytes of each row of a matrix, as many as its size says."""
    count, width = matrix.shape
    if count and (sizes == sizes[0]).all():
        size = int(sizes[0])
        data = np.ascontiguousarray(matrix[:, :size])
        places = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    else:
        data = matrix[np.arange(width) < sizes[:, np.newaxis]]
        places = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(places), pa.py_buffer(data)]
    )


def _lengths(column: pa.Array) -> Ints:
    """Return how many bytes each has; 0 of a null."""
    sizes = pc.fill_null(pc.binary_length(column), 0)
    return np.asarray(sizes.to_numpy(zero_copy_only=False), np.int64)


def _valid(column: pa.Array) -> Bools:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), np.bool_)


def _bytes_of(column: pa.Array) -> pa.Array:
    found = column if pa.types.is_binary(column.type) else column.cast(pa.binary())
    return found if not found.null_count else pc.fill_null(found, _EMPTY)
