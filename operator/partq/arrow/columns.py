"""Makes Arrow record batches of stored batches, with no Python object for a row."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from partq.arrow.decoding import PADDING, Bytes, Fields, Ints, Places, find_fields, find_headers
from partq.arrow.encoding import ROW_COLUMNS, other_encodings
from partq.core.model import PartitionId
from partq.errors import UndecodableError
from partq.wire.batch import (
    BatchHeader,
    Message,
    decode_message,
    expand_into,
    open_body,
    open_header,
)
from partq.wire.calls.entries import StoredBatch

MAX_ROWS = 32_768
"""How many rows a record batch has at most, but for one stored batch, which is never cut up."""
MAX_COLUMN_BYTES = 8 * 1024 * 1024
"""How much of expanded bodies a record batch is made of, but for one stored batch that is more."""

FROM_BODY = frozenset(ROW_COLUMNS)
"""The columns for which a batch has to be opened."""
ENCODED = "encoded"
"""A message's bytes where they are not the canonical ones of its row; else null. Other clients may
encode a number or a length in more bytes than it needs, or give elements that are ignored."""
LAST_EVENT_MS = 253_402_300_799_999
FIRST_EVENT_MS = -62_135_596_800_000
"""What Spark's timestamps hold: the years 1 to 9999."""


@dataclass(slots=True)
class _Piece:
    """The wanted messages of one stored batch."""

    offset: int
    count: int
    batch: StoredBatch
    header: BatchHeader | None
    """None: no column needs the body."""

    @property
    def size(self) -> int:
        """How many bytes the body has, expanded."""
        return 0 if self.header is None else self.header.raw_bytes


def record_batches(
    batches: Iterable[StoredBatch],
    schema: pa.Schema,
    *,
    queue: str,
    partition: PartitionId,
    start: int,
    stop: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages with offsets `start` to `stop` (exclusive), joined to larger batches.

    Only what the columns of `schema` need is decoded.

    Raises:
        UndecodableError: a message does not decode; says where. Nothing after it is yielded.
    """
    table = _Table(schema, queue, partition)
    pieces: list[_Piece] = []
    rows = size = 0
    for batch in batches:
        low, high = max(start, batch.first), min(stop, batch.first + batch.count)
        if low >= high:
            continue
        piece = table.open(batch, low, high)
        if pieces and (rows + piece.count > MAX_ROWS or size + piece.size > MAX_COLUMN_BYTES):
            yield table.rows(pieces)
            pieces, rows, size = [], 0, 0
        pieces.append(piece)
        rows += piece.count
        size += piece.size
    if pieces:
        yield table.rows(pieces)


class _Table:
    """The columns that are asked for, of one partition."""

    def __init__(self, schema: pa.Schema, queue: str, partition: PartitionId) -> None:
        self._schema = schema
        self._queue = queue
        self._partition = partition
        self._names = frozenset(schema.names)
        if ENCODED in self._names:
            self._names |= FROM_BODY
        self._opens = bool(self._names & FROM_BODY)

    def open(self, batch: StoredBatch, low: int, high: int) -> _Piece:
        """Read the header of a batch, where a column needs its body."""
        header = None
        if self._opens:
            try:
                header = open_header(batch.data)
                if header.count != batch.count:
                    raise UndecodableError(
                        f"batch has {header.count} messages; it is stored as {batch.count}"
                    )
            except UndecodableError as error:
                raise self._at(batch.first, error) from error
        return _Piece(low, high - low, batch, header)

    def rows(self, pieces: Sequence[_Piece]) -> pa.RecordBatch:
        """Return one record batch of all pieces, in their order."""
        counts = np.array([piece.count for piece in pieces])
        total = int(counts.sum())
        columns: dict[str, pa.Array] = {}
        if self._opens:
            columns |= self._opened(pieces)
        if self._names & {"offset", "token"}:
            firsts = np.array([piece.offset for piece in pieces], np.int64)
            within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
            columns["offset"] = pa.array(np.repeat(firsts, counts) + within)
        if self._names & {"append_broker_epoch", "token"}:
            epochs = np.array([piece.batch.append_broker_epoch for piece in pieces], np.int64)
            columns["append_broker_epoch"] = pa.array(np.repeat(epochs, counts))
        if "publish_time" in self._names:
            stored = np.array([piece.batch.at_ms for piece in pieces], np.int64) * 1000
            columns["publish_time"] = pa.array(np.repeat(stored, counts)).view(_TIMESTAMP)
        same: dict[str, object] = {
            "queue": self._queue,
            "partition": str(self._partition),
            "generation": pa.scalar(self._partition.generation, pa.int32()),
            "partition_index": pa.scalar(self._partition.index, pa.int32()),
            "redeliveries": pa.scalar(None, pa.int32()),
        }
        wanted = []
        for field in self._schema:
            if field.name == "token":
                array = self._tokens(field.type, total, columns)
            elif field.name in same:
                array = pa.repeat(same[field.name], total)
            else:
                array = columns[field.name]
            wanted.append(array if array.type == field.type else array.cast(field.type))
        return pa.RecordBatch.from_arrays(wanted, schema=self._schema)

    def _tokens(self, kind: pa.StructType, total: int, columns: dict[str, pa.Array]) -> pa.Array:
        """Return tokens that no member has: older than those of any."""
        parts = [
            pa.repeat(pa.scalar(self._partition.generation, pa.int32()), total),
            columns["append_broker_epoch"],
            pa.repeat(pa.scalar(0, pa.int64()), total),
            columns["offset"],
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind))

    def _expand(self, pieces: Sequence[_Piece]) -> tuple[Bytes, Places, Places]:
        """Return all bodies in one buffer, and where the wanted messages are in it."""
        sizes = np.array([piece.size for piece in pieces])
        counts = np.array([piece.batch.count for piece in pieces])
        body = np.zeros(int(sizes.sum()) + PADDING, np.uint8)
        target = body.data
        # Some 24 MiB at most: 32 bits hold any place, and cost half of what 64 do.
        ends = np.empty(int(counts.sum()), np.int32)
        at = row = 0
        for piece in pieces:
            data, size, count = piece.batch.data, piece.size, piece.batch.count
            assert piece.header is not None  # noqa: S101  for mypy: bodies are opened
            try:
                expand_into(data, piece.header, target[at : at + size])
            except UndecodableError as error:
                raise self._at(piece.batch.first, error) from error
            ends[row : row + count] = np.frombuffer(data, "<u4", count, piece.header.ends_at)
            at += size
            row += count
        behind = np.cumsum(sizes)
        ends += np.repeat((behind - sizes).astype(np.int32), counts)
        starts = np.empty_like(ends)
        starts[:1] = 0
        starts[1:] = ends[:-1]
        lasts = np.cumsum(counts)
        if (ends <= starts).any() or (ends[lasts - 1] != behind).any():
            self._refuse(pieces)
        if len(ends) > sum(piece.count for piece in pieces):  # some of a batch are not wanted
            lows = [piece.offset - piece.batch.first for piece in pieces]
            rows = np.concatenate(
                [
                    np.arange(first + low, first + low + piece.count)
                    for first, low, piece in zip(lasts - counts, lows, pieces, strict=True)
                ]
            )
            starts, ends = starts[rows], ends[rows]
        return body, starts, ends

    def _refuse(self, pieces: Sequence[_Piece]) -> None:
        """Raise which batch is not cut up by its ends, and why."""
        for piece in pieces:
            try:
                open_body(piece.batch.data)
            except UndecodableError as error:
                raise self._at(piece.batch.first, error) from error

    def _opened(self, pieces: Sequence[_Piece]) -> dict[str, pa.Array]:
        """Return the columns that come from the bodies."""
        body, starts, ends = self._expand(pieces)
        is_whole = bool(self._names & {"headers", "event_time"})
        fields = find_fields(body, starts, ends, is_whole=is_whole)
        columns = self._found(body, fields, ends)
        if columns is None:  # not UTF-8 somewhere: the wire's decoder says where
            fields.odd[:] = True
            columns = {
                name: pa.nulls(len(starts), _TYPES[name]) for name in self._names & FROM_BODY
            }
        odd = np.flatnonzero(fields.odd)
        if len(odd):
            decoded = [self._decode(pieces, body, starts, ends, row) for row in odd.tolist()]
            places = np.arange(len(starts))
            places[odd] = len(starts) + np.arange(len(odd))
            index = pa.array(places)
            columns = {
                name: pa.concat_arrays([column, _column(name, decoded)]).take(index)
                for name, column in columns.items()
            }
        if ENCODED in self._names:
            columns[ENCODED] = other_encodings(columns, body, starts, ends)
        return columns

    def _found(self, body: Bytes, fields: Fields, ends: Places) -> dict[str, pa.Array] | None:
        """Return the columns of all messages that are not odd; None: some text is not UTF-8."""
        columns: dict[str, pa.Array] = {}
        texts = []
        names = values = None
        if "headers" in self._names:
            name_at, name_end, text_at, text_end = find_headers(body, fields, ends)
            names, values = _cut(body, (name_at, name_end, text_at, text_end), pa.string())
            texts += [names, values]
        if self._names & {"key", "value"}:
            places = (fields.key_at, fields.key_end, fields.value_at, fields.value_end)
            keys, contents = _cut(body, places, pa.binary())
            columns["value"] = contents
            texts.append(_nulled(keys, fields.has_key).view(pa.string()))
            columns["key"] = texts[-1]
        try:
            for text in texts:
                text.validate(full=True)
        except pa.ArrowInvalid:
            return None
        if "headers" in self._names:
            _find_repeated(fields, names)
            columns["headers"] = _maps(fields, names, values)
        if "event_time" in self._names:
            columns["event_time"] = _instants(fields.event_time_ms)
        return {name: column for name, column in columns.items() if name in self._names}

    def _decode(
        self, pieces: Sequence[_Piece], body: Bytes, starts: Places, ends: Places, row: int
    ) -> Message:
        try:
            return decode_message(body[starts[row] : ends[row]].tobytes())
        except UndecodableError as error:
            behind = np.cumsum([piece.count for piece in pieces])
            piece = int(np.searchsorted(behind, row, side="right"))
            offset = pieces[piece].offset + pieces[piece].count - int(behind[piece]) + row
            raise self._at(offset, error) from error

    def _at(self, offset: int, error: UndecodableError) -> UndecodableError:
        return UndecodableError(
            f"queue {self._queue!r}, partition {self._partition}, offset {offset}: {error.message}"
            "; start behind it, or read no column that needs it (columns)"
        )


_TIMESTAMP = pa.timestamp("us", tz="UTC")
_ENTRY = [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())]
_TYPES = {
    "key": pa.string(),
    "value": pa.binary(),
    "headers": pa.map_(pa.string(), pa.string()),
    "event_time": _TIMESTAMP,
}


def _cut(
    body: Bytes, between: tuple[Places, Places, Places, Places], kind: pa.DataType
) -> tuple[pa.Array, pa.Array]:
    """Return two columns of which each row's bytes lie in `body`, the first's before the second's.

    `between`: where each row's first begins and ends, and its second.

    What is between them, and between the rows, is an array too: four to a row lie end to end in the
    body, which so is no copy. Arrow then copies the two that are wanted.
    """
    count = len(between[0])
    places = np.empty(4 * count + 1, np.int32)
    for number, each in enumerate(between):
        places[number:-1:4] = each
    places[-1] = places[-2] if count else 0
    parts = pa.Array.from_buffers(
        kind, 4 * count, [None, pa.py_buffer(places), pa.py_buffer(body)]
    )  # fmt: skip
    every_fourth = np.arange(0, 4 * count, 4, dtype=np.int32)
    return parts.take(pa.array(every_fourth)), parts.take(pa.array(every_fourth + 2))


def _nulled(column: pa.Array, is_there: Any) -> pa.Array:
    """Return the column with null where there is nothing."""
    if is_there.all():
        return column
    bits = pa.array(is_there).buffers()[1]
    _, places, data = column.buffers()
    return pa.Array.from_buffers(column.type, len(column), [bits, places, data])


def _find_repeated(fields: Fields, names: pa.Array) -> None:
    """Leave messages that repeat a header's name to the wire's decoder: the last one counts."""
    counts = fields.header_count
    if counts.max(initial=0) < 2:
        return
    codes = names.dictionary_encode()
    rows = np.repeat(np.arange(len(counts)), counts)
    pairs = np.sort(rows * len(codes.dictionary) + codes.indices.to_numpy())
    repeated = pairs[1:][pairs[1:] == pairs[:-1]] // max(1, len(codes.dictionary))
    fields.odd[repeated] = True


def _maps(fields: Fields, names: pa.Array, values: pa.Array) -> pa.Array:
    places = np.concatenate(([0], np.cumsum(fields.header_count))).astype(np.int32)
    # By its buffers: a map of an odd message is null here, and yet its headers take up their place.
    return pa.Array.from_buffers(
        _TYPES["headers"],
        len(fields.odd),
        [pa.array(fields.has_headers & ~fields.odd).buffers()[1], pa.py_buffer(places)],
        children=[pa.StructArray.from_arrays([names, values], fields=_ENTRY)],
    )


def _instants(event_time_ms: Ints) -> pa.Array:
    """Return times; null: none was given, or none that Spark could hold."""
    is_none = (
        (event_time_ms == 0) | (event_time_ms < FIRST_EVENT_MS) | (event_time_ms > LAST_EVENT_MS)
    )
    micros = np.where(is_none, 0, event_time_ms) * 1000
    return pa.array(micros, mask=is_none).view(_TIMESTAMP)


def _column(name: str, messages: Sequence[Message]) -> pa.Array:
    """Return the column of a few messages that the wire has decoded."""
    match name:
        case "headers":
            headers = [message.headers for message in messages]
            return pa.array(
                [None if each is None else list(each.items()) for each in headers], _TYPES[name]
            )
        case "event_time":
            times = [min(message.event_time_ms, LAST_EVENT_MS + 1) for message in messages]
            return _instants(np.array(times, np.int64))
        case _:
            return pa.array([getattr(message, name) for message in messages], _TYPES[name])
