"""The bytes in which a broker shows what a log holds: stored batches as they are, none opened.

Little-endian. A head of 24 bytes (magic u16, version u8, flags u8, count u32, first u64, end u64:
the first offset that the log holds and its end), then for each batch an index of 40 bytes (first
offset u64, messages u32, bytes u32, append broker_epoch u64, at_ms u64, ttl_ms u64), then the
batches, one after another.
"""

import struct
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec

from partq.errors import InternalError
from partq.wire.batch import HEADER_SIZE, MAX_BATCH_COUNT
from partq.wire.calls.bodies import MAX_NATURAL, Natural

MAGIC = 0x6C71  # b"ql" on the wire
VERSION = 1
DEFAULT_BYTES = 8 * 1024 * 1024
MAX_BYTES = 16 * 1024 * 1024
"""The most bytes of batches that can be asked for at once; one batch always comes as a whole."""

MAX_ENTRIES_WAIT_MS = 4_000
"""The longest that a call may wait for a message: clients give up after 5 s without a byte."""

_HEAD = struct.Struct("<HBBIQQ")
_INDEX = struct.Struct("<QIIQQQ")


class EntriesQuery(msgspec.Struct):
    """Which stored batches are asked for."""

    from_: Annotated[Natural, msgspec.Meta(description="An offset in the first batch.")] = (
        msgspec.field(name="from")
    )
    to: Annotated[
        Natural | None,
        msgspec.Meta(description="Batches that begin there or later are left out; null: none is."),
    ] = None
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_BYTES)] = DEFAULT_BYTES
    append_broker_epoch: Annotated[
        Natural,
        msgspec.Meta(
            description="The broker epoch under which the message below `from` was appended, as "
            "the caller knows it; 0: the caller does not know."
        ),
    ] = 0
    wait_ms: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            le=MAX_ENTRIES_WAIT_MS,
            description="How long to wait for a message if `from` is the end of the log, in ms.",
        ),
    ] = 0


class StoredBatch(NamedTuple):
    """A batch as the log holds it."""

    first: int
    """Offset of its first message."""
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    """How many messages it has."""
    append_broker_epoch: int
    """The broker epoch under which it was stored."""
    at_ms: int
    """When it was stored, in unix milliseconds of Redis's clock."""
    ttl_ms: int
    """How long its messages may wait from `at_ms` on, in milliseconds; 0: the queue's limit."""
    data: bytes
    """The bytes of `partq.wire.batch`; their checksum was checked when they were stored."""


class Entries(NamedTuple):
    """Some of what a log holds."""

    first: int
    """The first offset that the log holds."""
    end: int
    """The offset of the next message."""
    batches: list[StoredBatch]
    """Without a gap between them."""


def encode(first: int, end: int, batches: Sequence[StoredBatch]) -> bytes:
    """Return an answer's bytes."""
    pieces = [_HEAD.pack(MAGIC, VERSION, 0, len(batches), first, end)]
    pieces += [
        _INDEX.pack(
            batch.first,
            batch.count,
            len(batch.data),
            batch.append_broker_epoch,
            batch.at_ms,
            batch.ttl_ms,
        )
        for batch in batches
    ]
    pieces += [batch.data for batch in batches]
    return b"".join(pieces)


def decode(answer: bytes) -> Entries:
    """Read an answer.

    Raises:
        InternalError: it is of another version, or contradicts itself: cut off, batches that do
            not follow each other or lie outside the log.
    """
    if len(answer) < _HEAD.size:
        raise InternalError(f"entries: got {len(answer)} bytes; expected at least {_HEAD.size}")
    magic, version, flags, count, log_first, end = _HEAD.unpack_from(answer)
    if magic != MAGIC or version != VERSION or flags:
        raise InternalError(
            f"entries: magic {magic:#06x}, version {version}, flags {flags}; expected "
            f"{MAGIC:#06x}, {VERSION}, 0; use a client of the broker's version"
        )
    if not log_first <= end <= MAX_NATURAL:
        raise InternalError(f"entries: the log is said to hold {log_first} to {end}")
    at = _HEAD.size + count * _INDEX.size
    if len(answer) < at:
        raise InternalError(f"entries: {count} batches do not fit into {len(answer)} bytes")
    batches = []
    due = None
    for first, messages, size, epoch, at_ms, ttl_ms in _INDEX.iter_unpack(answer[_HEAD.size : at]):
        if not 1 <= messages <= MAX_BATCH_COUNT or size < HEADER_SIZE:
            raise InternalError(
                f"entries: a batch of {messages} messages in {size} bytes; expected 1 to "
                f"{MAX_BATCH_COUNT} in at least {HEADER_SIZE}"
            )
        if first + messages > end or (due is not None and first != due):
            raise InternalError(
                f"entries: a batch from {first} to {first + messages}; expected one from "
                f"{first if due is None else due} on, up to {end} at most"
            )
        if max(epoch, at_ms, ttl_ms) > MAX_NATURAL:
            raise InternalError(
                f"entries: append broker epoch {epoch}, at_ms {at_ms}, ttl_ms {ttl_ms}; expected "
                f"at most {MAX_NATURAL}"
            )
        due = first + messages
        batches.append(StoredBatch(first, messages, epoch, at_ms, ttl_ms, answer[at : at + size]))
        at += size
    if at != len(answer):
        raise InternalError(f"entries: got {len(answer)} bytes; the index says {at}")
    return Entries(log_first, end, batches)
