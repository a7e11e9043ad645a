"""Checks the stored bytes that an archive has beside a row: they have to decode to it."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from partq.arrow.columns import FIRST_EVENT_MS, LAST_EVENT_MS
from partq.arrow.encoding import ROW_COLUMNS
from partq.errors import UndecodableError
from partq.wire.batch import Message, decode_message


def differing_encodings(rows: pa.RecordBatch) -> Iterator[int]:
    """Yield the rows whose `encoded` does not decode to their other columns; times are in us."""
    at = rows.schema.get_field_index("encoded")
    if at < 0 or rows.column(at).null_count == rows.num_rows:
        return
    kept = pc.indices_nonzero(pc.is_valid(rows.column(at)))
    found = rows.select([*ROW_COLUMNS, "encoded"]).take(kept)
    # Times as numbers: an altered one may lie outside of what Python has.
    columns = (
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in found.columns
    )
    for row, (key, value, headers, event_time, encoded) in zip(
        kept.to_pylist(), zip(*columns, strict=True), strict=True
    ):
        try:
            message = decode_message(encoded)
        except UndecodableError:
            yield row
            continue
        if (key, value, headers, event_time) != _row_of(message):
            yield row


def _row_of(message: Message) -> tuple[object, ...]:
    """Return the columns that a message is archived as."""
    headers = None if message.headers is None else list(message.headers.items())
    at = message.event_time_ms
    is_given = at != 0 and FIRST_EVENT_MS <= at <= LAST_EVENT_MS
    event_time = at * 1000 if is_given else None
    return message.key, message.value, headers, event_time
