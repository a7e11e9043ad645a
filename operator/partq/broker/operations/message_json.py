"""Messages as JSON shows them: the roads on which a broker opens a batch."""

import base64
from typing import Any

from partq.errors import UndecodableError
from partq.store.records.log import Entry
from partq.wire import batch
from partq.wire.calls.replies import error_detail


def contents(entry: Entry, start: int, stop: int) -> list[dict[str, Any]]:
    """Return the messages of the offsets `start` to `stop` (exclusive) of a stored batch.

    Each with key, value, headers and event time; with an error if it is undecodable.
    """
    try:
        decoded = batch.decode(entry.data, start - entry.first, stop - entry.first)
        return [_content(message) for message in decoded]
    except UndecodableError as error:
        return [{"error": error_detail(error)}] * (stop - start)


def _content(message: batch.Message) -> dict[str, Any]:
    return {
        "key": message.key,
        **_value(message.value),
        "headers": message.headers or {},
        "event_time_ms": message.event_time_ms,
    }


def _value(value: bytes) -> dict[str, str]:
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        return {"value_base64": base64.b64encode(value).decode()}
