"""Messages as JSON shows them: the paths on which a broker opens a batch."""

import base64

from partq.errors import UndecodableError
from partq.store.records.log import Entry
from partq.wire import batch
from partq.wire.calls.answers import UNSET, MessageContent, UnsetType
from partq.wire.calls.replies import error_detail


def numbering(entry: Entry, offset: int) -> tuple[str | UnsetType, int | UnsetType]:
    """Return the producer of a message and its number there; unset: unknown."""
    return (entry.producer, entry.sequence(offset)) if entry.producer else (UNSET, UNSET)


def numbering_bytes(entry: Entry) -> int:
    """Return what these two take in the JSON of a message, at most."""
    return 48 + 4 * len(entry.producer) if entry.producer else 0


def contents(entry: Entry, start: int, stop: int) -> list[MessageContent]:
    """Return the messages of the offsets `start` to `stop` (exclusive) of a stored batch.

    Each with key, value, headers and event time; with an error if it is undecodable.
    """
    try:
        decoded = batch.decode(entry.data, start - entry.first, stop - entry.first)
        return [_content(message) for message in decoded]
    except UndecodableError as error:
        return [MessageContent(error=error_detail(error))] * (stop - start)


def _content(message: batch.Message) -> MessageContent:
    content = MessageContent(
        key=message.key, headers=message.headers or {}, event_time_ms=message.event_time_ms
    )
    try:
        content.value = message.value.decode()
    except UnicodeDecodeError:
        content.value_base64 = base64.b64encode(message.value).decode()
    return content
