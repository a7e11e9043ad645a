"""Makes Arrow record batches of stored batches, with no Python object for a row."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from partq.arrow.decoding import PADDING, Fields, Ints, find_fields, find_headers
from partq.core.model import PartitionId
from partq.errors import UndecodableError
from partq.wire.batch import Message, decode_message, open_body
from partq.wire.calls.entries import StoredBatch

MAX_ROWS = 32_768
"""How many rows a record batch has at most, but for one stored batch, which is never cut up."""
MAX_COLUMN_BYTES = 8 * 1024 * 1024
"""How much of expanded bodies a record batch is made of, but for one stored batch that is more."""

FROM_BODY = frozenset({"key", "value", "headers", "event_time"})
"""The columns for which a batch has to be opened."""
LAST_EVENT_MS = 253_402_300_799_999
FIRST_EVENT_MS = -62_135_596_800_000
"""What Spark's timestamps hold: the years 1 to 9999."""


@dataclass(slots=True)
class _Piece:
    """The wanted messages of one stored batch."""

    offset: int
    count: int
    at_ms: int
    append_broker_epoch: int
    body: bytes | memoryview
    starts: Ints
    ends: Ints


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
        if pieces and (rows + piece.count > MAX_ROWS or size + len(piece.body) > MAX_COLUMN_BYTES):
            yield table.rows(pieces)
            pieces, rows, size = [], 0, 0
        pieces.append(piece)
        rows += piece.count
        size += len(piece.body)
    if pieces:
        yield table.rows(pieces)


class _Table:
    """The columns that are asked for, of one partition."""

    def __init__(self, schema: pa.Schema, queue: str, partition: PartitionId) -> None:
        self._schema = schema
        self._queue = queue
        self._partition = partition
        self._names = frozenset(schema.names)
        self._opens = bool(self._names & FROM_BODY)

    def open(self, batch: StoredBatch, low: int, high: int) -> _Piece:
        """Expand a batch, where a column needs it."""
        body: bytes | memoryview = b""
        starts = ends = np.empty(0, np.int64)
        if self._opens:
            try:
                places, body = open_body(batch.data)
                if len(places) != batch.count:
                    raise UndecodableError(
                        f"batch has {len(places)} messages; it is stored as {batch.count}"
                    )
            except UndecodableError as error:
                raise self._at(batch.first, error) from error
            all_ends = np.frombuffer(places, np.uint32).astype(np.int64)
            ends = all_ends[low - batch.first : high - batch.first]
            starts = np.concatenate(([0], all_ends[:-1]))[low - batch.first : high - batch.first]
        return _Piece(
            low, high - low, batch.at_ms, batch.append_broker_epoch, body, starts, ends
        )  # fmt: skip

    def rows(self, pieces: Sequence[_Piece]) -> pa.RecordBatch:
        """Return one record batch of all pieces, in their order."""
        counts = np.array([piece.count for piece in pieces])
        total = int(counts.sum())
        columns: dict[str, pa.Array] = {}
        if self._opens:
            columns |= self._opened(pieces, counts)
        if self._names & {"offset", "token"}:
            firsts = np.array([piece.offset for piece in pieces], np.int64)
            within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
            columns["offset"] = pa.array(np.repeat(firsts, counts) + within)
        epochs = np.array([piece.append_broker_epoch for piece in pieces], np.int64)
        columns["append_broker_epoch"] = pa.array(np.repeat(epochs, counts))
        stored = np.array([piece.at_ms for piece in pieces], np.int64) * 1000
        columns["publish_time"] = pa.array(np.repeat(stored, counts)).cast(_TIMESTAMP)
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

    def _opened(self, pieces: Sequence[_Piece], counts: Ints) -> dict[str, pa.Array]:
        """Return the columns that come from the bodies."""
        body = np.frombuffer(
            b"".join([*(piece.body for piece in pieces), bytes(PADDING)]), np.uint8
        )
        sizes = np.array([len(piece.body) for piece in pieces])
        shifts = np.repeat(np.cumsum(sizes) - sizes, counts)
        starts = np.concatenate([piece.starts for piece in pieces]) + shifts
        ends = np.concatenate([piece.ends for piece in pieces]) + shifts
        is_whole = bool(self._names & {"headers", "event_time"})
        fields = find_fields(body, starts, ends, is_whole=is_whole)
        columns = self._found(body, fields, ends)
        if columns is None:  # not UTF-8 somewhere: the wire's decoder says where
            fields.odd[:] = True
            columns = {
                name: pa.nulls(len(starts), _TYPES[name]) for name in self._names & FROM_BODY
            }
        odd = np.flatnonzero(fields.odd)
        if not len(odd):
            return columns
        decoded = [self._decode(pieces, counts, body, starts, ends, row) for row in odd.tolist()]
        places = np.arange(len(starts))
        places[odd] = len(starts) + np.arange(len(odd))
        index = pa.array(places)
        return {
            name: pa.concat_arrays([column, _column(name, decoded)]).take(index)
            for name, column in columns.items()
        }

    def _found(self, body: Any, fields: Fields, ends: Ints) -> dict[str, pa.Array] | None:
        """Return the columns of all messages that are not odd; None: some text is not UTF-8."""
        columns: dict[str, pa.Array] = {}
        texts = []
        names = values = None
        if "headers" in self._names:
            name_at, name_end, text_at, text_end = find_headers(body, fields, ends)
            names, values = _cut(body, name_at, name_end, text_at, text_end, pa.string())
            texts += [names, values]
        if self._names & {"key", "value"}:
            fields.key_end[~fields.has_key] = fields.key_at[~fields.has_key]
            keys, contents = _cut(
                body, fields.key_at, fields.key_end, fields.value_at, fields.value_end, pa.binary()
            )
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
        self, pieces: Sequence[_Piece], counts: Ints, body: Any, starts: Ints, ends: Ints, row: int
    ) -> Message:
        try:
            return decode_message(body[starts[row] : ends[row]].tobytes())
        except UndecodableError as error:
            place = int(np.searchsorted(np.cumsum(counts), row, side="right"))
            offset = pieces[place].offset + row - int(counts[:place].sum())
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
    body: Any, first_at: Ints, first_end: Ints, second_at: Ints, second_end: Ints, kind: pa.DataType
) -> tuple[pa.Array, pa.Array]:
    """Return two columns of which each row's bytes lie in `body`, the first's before the second's.

    What is between them, and between the rows, is an array too: four to a row lie end to end in the
    body, which so is no copy. Arrow then copies the two that are wanted.
    """
    count = len(first_at)
    places = np.empty(4 * count + 1, np.int32)
    places[0:-1:4], places[1:-1:4] = first_at, first_end
    places[2:-1:4], places[3:-1:4] = second_at, second_end
    places[-1] = places[-2] if count else 0
    parts = pa.Array.from_buffers(
        kind, 4 * count, [None, pa.py_buffer(places), pa.py_buffer(body)]
    )  # fmt: skip
    every_fourth = np.arange(0, 4 * count, 4)
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
    return pa.array(micros, mask=is_none).cast(_TIMESTAMP)


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
