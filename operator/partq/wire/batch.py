"""The bytes of a batch: the same from producer to Redis to consumer.

Little-endian. A header of 22 bytes (magic u16, version u8, codec u8, flags u16, n u32, raw_len
u32, body_len u32, crc32c u32), then n slots u16, then n ends u32, then the body. The CRC-32C is
over everything but itself. The body is n MessagePack arrays [key, value, headers, event_time_ms]
one after another, compressed as a whole; an end is where a message stops in the uncompressed
body. A broker checks the header and never opens the body.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import accumulate, chain
from operator import ge, sub

import cramjam
import msgspec
from crc32c import crc32c

from partq.errors import (
    BadBatchError,
    MessageTooLargeError,
    UndecodableError,
    WrongPartitionError,
)

MAGIC = 0x7170  # b"pq" on the wire
VERSION = 1
MAX_BATCH_COUNT = 65_536
"""The most messages in a batch."""
MAX_EVENT_TIME_MS = 2**53
"""The latest time that a producer may give: far beyond any, and every language's JSON holds it."""
MAX_BATCH_BYTES = 16 * 1024 * 1024
"""The most bytes of a batch's body, expanded."""

MIN_CHOICE_BYTES = 512
"""Smaller batches are not compressed, unless a codec is named: a header of 22 bytes is added."""
SAMPLE_BYTES = 4096
"""Of the messages at the start of a batch, and of those in its middle, as a sample of all."""
MAX_LZ4_SHARE = 0.85
"""Of a sample's bytes that LZ4 may leave: what it saves must be worth expanding the batch."""

_HEADER = struct.Struct("<HBBHIIII")
_CRC = struct.Struct("<I")
_CRC_AT = _HEADER.size - _CRC.size
HEADER_SIZE = _HEADER.size
MESSAGE_SIZE = 6
"""Bytes of a batch per message, beside the message."""
MAX_STORED_BYTES = MAX_BATCH_BYTES + HEADER_SIZE + MESSAGE_SIZE * MAX_BATCH_COUNT
"""The most bytes of a batch as it is stored: header, slots, ends and body."""
_MUST_SWAP = sys.byteorder == "big"


class Codec(IntEnum):
    """How a body is compressed."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3
    SNAPPY = 4
    """Snappy's block format, without its framing: the header has length and checksum already."""


class Message(msgspec.Struct, array_like=True, gc=False):
    """A message as an application publishes it. Elements that a later version adds are ignored."""

    key: str | None
    """Partition key, at most 1,024 bytes of UTF-8; None: any partition will do, without order."""
    value: bytes
    """The content; with key and headers at most the queue's `limits.maxMessageBytes`."""
    headers: dict[str, str] | None = None
    """Texts by name; None: no headers."""
    event_time_ms: int = 0
    """When it happened, in unix milliseconds of the producer, 0 to 2**53; 0: not given."""


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """What a batch says of itself outside its body."""

    codec: Codec
    count: int
    raw_bytes: int
    body_bytes: int

    @property
    def ends_at(self) -> int:
        """Where the ends of the messages start in the batch."""
        return HEADER_SIZE + 2 * self.count

    @property
    def body_at(self) -> int:
        """Where the body starts in the batch."""
        return HEADER_SIZE + 6 * self.count


_encode = msgspec.msgpack.Encoder().encode
_decode_message = msgspec.msgpack.Decoder(Message).decode
_decode_messages = msgspec.msgpack.Decoder(list[Message]).decode
_UNDECODABLE = (
    BadBatchError,
    cramjam.DecompressionError,
    msgspec.MsgspecError,
    RecursionError,  # elements to be ignored, nested too deep
    UnicodeDecodeError,
)


def encode_message(message: Message) -> bytes:
    """Return the MessagePack array of one message."""
    return _encode(message)


def encode_messages(messages: Iterable[Message]) -> list[bytes]:
    """Return the MessagePack array of each message, without Python code per message."""
    return list(map(_encode, messages))


def encode_headers(headers: Iterable[dict[str, str] | None]) -> list[bytes]:
    """Return the headers of each message as they stand in its array."""
    return list(map(_encode, headers))


def encode(
    encoded: Sequence[bytes], slots: Iterable[int], codec: Codec | None = Codec.NONE
) -> bytes:
    """Join messages from `encode_message`, each with its slot, to a batch; as `assemble`."""
    return assemble(
        b"".join(encoded),
        _little_endian(array("H", slots)),
        _little_endian(array("I", accumulate(map(len, encoded)))),
        codec,
    )


def assemble(raw: bytes, slots: bytes, ends: bytes, codec: Codec | None = Codec.NONE) -> bytes:
    """Make a batch of messages that lie one behind the other in `raw`.

    `slots` (u16) and `ends` (u32, in `raw`), one of each per message, are little-endian, as they
    stand in the batch. Nothing is checked: a broker does that. `codec` None: the one that
    `choose_codec` returns.
    """
    if codec is None:
        codec = choose_codec(raw)
    body = _compress(raw, codec)
    count = len(ends) // 4
    head = _HEADER.pack(MAGIC, VERSION, codec, 0, count, len(raw), len(body), 0)[:_CRC_AT]
    crc = crc32c(body, crc32c(ends, crc32c(slots, crc32c(head))))
    return b"".join((head, _CRC.pack(crc), slots, ends, body))


def choose_codec(raw: bytes) -> Codec:
    """Return LZ4 if a sample of a batch's messages shows that it pays, else no compression.

    The sample costs some 10 µs, whatever the batch is. LZ4 expands at gigabytes per second: a
    smaller batch is cheaper on its way and in Redis than the CPU that it costs its consumers.
    """
    if len(raw) < MIN_CHOICE_BYTES:
        return Codec.NONE
    middle = max(SAMPLE_BYTES, len(raw) // 2)
    sample = raw[:SAMPLE_BYTES] + raw[middle : middle + SAMPLE_BYTES]
    pays = len(_compress(sample, Codec.LZ4)) <= MAX_LZ4_SHARE * len(sample)
    return Codec.LZ4 if pays else Codec.NONE


def read_header(batch: bytes | memoryview) -> BatchHeader:
    """Read a header, and check that the lengths it names fit the batch.

    Raises:
        BadBatchError: not a batch of this version, or cut off, or longer than it says.
    """
    if len(batch) < HEADER_SIZE:
        raise BadBatchError(f"batch: got {len(batch)} bytes, expected at least {HEADER_SIZE}")
    magic, version, codec, flags, count, raw_bytes, body_bytes, _ = _HEADER.unpack_from(batch)
    if magic != MAGIC or version != VERSION or flags:
        raise BadBatchError(
            f"batch: magic {magic:#06x}, version {version}, flags {flags}; expected "
            f"{MAGIC:#06x}, {VERSION}, 0; use a client of this protocol version"
        )
    if codec not in Codec._value2member_map_:
        known = ", ".join(f"{known.value} ({known.name})" for known in Codec)
        raise BadBatchError(f"batch: unknown codec {codec}; expected one of {known}")
    if not 1 <= count <= MAX_BATCH_COUNT:
        raise BadBatchError(f"batch: {count} messages; expected 1 to {MAX_BATCH_COUNT}")
    if raw_bytes > MAX_BATCH_BYTES:
        raise BadBatchError(f"batch: expands to {raw_bytes} bytes; at most {MAX_BATCH_BYTES}")
    if codec == Codec.NONE and raw_bytes != body_bytes:
        raise BadBatchError(
            f"batch: not compressed, yet body_len is {body_bytes} and raw_len {raw_bytes}"
        )
    header = BatchHeader(Codec(codec), count, raw_bytes, body_bytes)
    if len(batch) != header.body_at + body_bytes:
        raise BadBatchError(
            f"batch: got {len(batch)} bytes; its header says {header.body_at + body_bytes}"
        )
    return header


def check(batch: bytes, *, slots: Sequence[range], max_message_bytes: int) -> BatchHeader:
    """Check everything that can be checked without opening the body.

    `slots` are those that the partition takes, as ranges in order.

    Raises:
        BadBatchError: the header, its checksum or its ends are broken.
        WrongPartitionError: a message belongs to another partition.
        MessageTooLargeError: a message is above `max_message_bytes`.
    """
    header = read_header(batch)
    (crc,) = _CRC.unpack_from(batch, _CRC_AT)
    actual = crc32c(memoryview(batch)[HEADER_SIZE:], crc32c(batch[:_CRC_AT]))
    if crc != actual:
        raise BadBatchError(f"batch: CRC-32C is {actual:#010x}; its header says {crc:#010x}")
    found = read_slots(batch, header).tolist()  # of a list, what follows takes half the time
    if not holds_all(slots, found):
        held = ", ".join(f"{each.start} to {each.stop - 1}" for each in slots[:10]) or "no slot"
        raise WrongPartitionError(
            f"batch: slots {min(found)} to {max(found)}; the partition holds {held}"
        )
    ends = read_ends(batch, header)
    _check_ends(ends, header)
    # A batch below the limit holds no message above it: the usual case costs no pass over sizes.
    if header.raw_bytes > max_message_bytes:
        largest = max(ends[0], max(map(sub, ends[1:], ends), default=0))
        if largest > max_message_bytes:
            raise MessageTooLargeError.of(largest, max_message_bytes, what="batch: a message")
    return header


def holds_all(ranges: Sequence[range], slots: Sequence[int]) -> bool:
    """Whether the ranges have all of these slots, of which there is at least one."""
    if len(ranges) == 1:
        return ranges[0].start <= min(slots) and max(slots) < ranges[0].stop
    return _set_of(tuple(ranges)).issuperset(slots)


@lru_cache(maxsize=64)
def _set_of(ranges: tuple[range, ...]) -> frozenset[int]:
    """Return the slots as a set: half as slow as two comparisons for each range."""
    return frozenset(chain.from_iterable(ranges))


def digest(batch: bytes, header: BatchHeader) -> str:
    """Return what tells a repeat of a batch that a broker has checked from other messages.

    `<CRC-32C of all> <CRC-32C of slots and ends> <1: compressed>`, with dots between: the same
    messages may be compressed again, to other bytes.
    """
    (crc,) = _CRC.unpack_from(batch, _CRC_AT)
    outlines = crc32c(memoryview(batch)[HEADER_SIZE : header.body_at])
    return f"{crc:08x}.{outlines:08x}.{int(header.codec is not Codec.NONE)}"


def content_crc(batch: bytes, header: BatchHeader) -> int:
    """Return the CRC-32C of a batch's body as it was before it was compressed; -1: none.

    A body that does not expand to what its header promises has none. Nothing is decoded.
    """
    try:
        return int(crc32c(_expand(memoryview(batch)[header.body_at :], header)))
    except _UNDECODABLE:
        return -1


def extend_content_crc(crc: int, messages: memoryview) -> int:
    """Return the `content_crc` of a body's first messages and these, from that of the first ones.

    0 is that of no message.
    """
    return int(crc32c(messages, crc))


def read_slots(batch: bytes, header: BatchHeader) -> "array[int]":
    """Return the slot of each message."""
    return _array("H", batch, HEADER_SIZE, header.count)


def read_ends(batch: bytes, header: BatchHeader) -> "array[int]":
    """Return where each message ends in the uncompressed body."""
    return _array("I", batch, HEADER_SIZE + 2 * header.count, header.count)


def outline(slots: bytes, sizes: bytes, crc: int = 0) -> int:
    """Return the CRC-32C of the slots (u16) and sizes (u32) of messages, both little-endian.

    Message by message, the slot first: so it does not depend on how messages are cut into batches,
    and continues from the `crc` of those before.
    """
    pairs = bytearray(3 * len(slots))
    for place in range(2):
        pairs[place::6] = slots[place::2]
    for place in range(4):
        pairs[2 + place :: 6] = sizes[place::4]
    return crc32c(bytes(pairs), crc)


def read_outline(batch: bytes) -> int:
    """Return the outline of all messages of a batch that a broker has checked.

    Raises:
        BadBatchError: it is no batch of this version.
    """
    header = read_header(batch)
    ends = read_ends(batch, header)
    sizes = array("I", map(sub, ends, chain((0,), ends)))
    return outline(
        bytes(batch[HEADER_SIZE : HEADER_SIZE + 2 * header.count]), _little_endian(sizes)
    )


def decode(batch: bytes | memoryview, start: int = 0, stop: int | None = None) -> list[Message]:
    """Return the messages `start` to `stop` (exclusive) of a batch that a broker has checked.

    Raises:
        UndecodableError: the body is not what the header promises, or has no such messages;
            nothing was expanded beyond `raw_len`.
    """
    try:
        header = read_header(batch)
        stop = header.count if stop is None else stop
        if not 0 <= start <= stop <= header.count:
            raise BadBatchError(f"messages {start} to {stop} asked for; it holds {header.count}")
        raw = _expand(memoryview(batch)[header.body_at :], header)
        if start or stop != header.count:
            ends = read_ends(bytes(batch), header)
            raw = raw[ends[start - 1] if start else 0 : ends[stop - 1] if stop else 0]
        # One array head makes a single C call out of a loop over messages.
        messages = _decode_messages(b"\xdd" + (stop - start).to_bytes(4, "big") + raw)
    except _UNDECODABLE as error:
        raise UndecodableError(f"batch does not decode: {error}") from error
    return messages


def open_body(batch: bytes | memoryview) -> tuple["array[int]", bytes | memoryview]:
    """Return where each message ends, and the body that these places are in, expanded.

    No message is decoded: for readers that know the layout of the body themselves.

    Raises:
        UndecodableError: the body is not what the header promises, or the ends do not cut it up.
    """
    try:
        header = read_header(batch)
        ends = read_ends(bytes(batch), header)
        _check_ends(ends, header)
        return ends, _expand(memoryview(batch)[header.body_at :], header)
    except _UNDECODABLE as error:
        raise UndecodableError(f"batch does not decode: {error}") from error


def decode_some(batch: bytes, places: Sequence[tuple[int, int]]) -> list[Message]:
    """Return the messages in some half-open ranges of places, which do not overlap.

    Raises:
        UndecodableError: as `decode`; the others are not decoded.
    """
    ends, raw = open_body(batch)
    try:
        some = (raw[ends[start - 1] if start else 0 : ends[stop - 1]] for start, stop in places)
        count = sum(stop - start for start, stop in places)
        return _decode_messages(b"\xdd" + count.to_bytes(4, "big") + b"".join(some))
    except (*_UNDECODABLE, IndexError) as error:
        raise UndecodableError(f"batch does not decode: {error}") from error


def open_header(batch: bytes | memoryview) -> BatchHeader:
    """Read the header of a batch whose body is opened next.

    Raises:
        UndecodableError: not a batch of this version, or cut off, or longer than it says.
    """
    try:
        return read_header(batch)
    except BadBatchError as error:
        raise UndecodableError(f"batch does not decode: {error}") from error


def expand_into(batch: bytes | memoryview, header: BatchHeader, target: memoryview) -> None:
    """Expand the body of a batch into a buffer that is as large as it says.

    The places in it are those of `read_ends`, which are not checked.

    Raises:
        UndecodableError: the body is not what the header promises.
    """
    try:
        _expand_into(memoryview(batch)[header.body_at :], header, target)
    except _UNDECODABLE as error:
        raise UndecodableError(f"batch does not decode: {error}") from error


def undecodable(batch: bytes | memoryview) -> list[tuple[int, int]]:
    """Return which messages of a batch are undecodable, as half-open ranges of their places in it.

    All of them when the body does not open. Expands the body once, and decodes it at most twice.
    """
    count = read_header(batch).count
    try:
        ends, body = open_body(batch)
    except UndecodableError:
        return [(0, count)]
    found: list[tuple[int, int]] = []
    start = 0
    for at, end in enumerate(ends):
        try:
            _decode_message(body[start:end])
        except _UNDECODABLE:
            if found and found[-1][1] == at:
                found[-1] = (found[-1][0], at + 1)
            else:
                found.append((at, at + 1))
        start = end
    return found


def decode_message(encoded: bytes) -> Message:
    """Return the message that is encoded by these bytes, all of them.

    Raises:
        UndecodableError: the bytes are no message, or more than one.
    """
    try:
        return _decode_message(encoded)
    except _UNDECODABLE as error:
        raise UndecodableError(f"message does not decode: {error}") from error


def _check_ends(ends: "array[int]", header: BatchHeader) -> None:
    if ends[-1] != header.raw_bytes:
        raise BadBatchError(
            f"batch: the last message ends at {ends[-1]}; raw_len says {header.raw_bytes}"
        )
    places = ends.tolist()
    if not places[0] or any(map(ge, places, places[1:])):
        raise BadBatchError("batch: the ends of its messages do not grow")


def _compress(raw: bytes, codec: Codec) -> bytes:
    match codec:
        case Codec.NONE:
            return raw
        case Codec.LZ4:
            return bytes(cramjam.lz4.compress_block(raw, store_size=False))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(raw))
        case Codec.ZLIB:
            return bytes(cramjam.zlib.compress(raw))
        case Codec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(raw))


def _expand(body: memoryview, header: BatchHeader) -> bytes | memoryview:
    if header.codec is Codec.NONE:
        return body  # of `raw_len` bytes, says the header's check
    raw = bytearray(header.raw_bytes)
    _expand_into(body, header, raw)
    return bytes(raw)


def _expand_into(body: memoryview, header: BatchHeader, raw: bytearray | memoryview) -> None:
    """Expand into a buffer of `raw_len` bytes: a body that holds more is an error there."""
    match header.codec:
        case Codec.NONE:
            raw[:] = body
            return
        case Codec.LZ4:
            size = cramjam.lz4.decompress_block_into(body, raw, output_len=header.raw_bytes)
        case Codec.ZSTD:
            size = cramjam.zstd.decompress_into(body, raw)
        case Codec.ZLIB:
            size = cramjam.zlib.decompress_into(body, raw)
        case _:
            size = cramjam.snappy.decompress_raw_into(body, raw)
    if size != header.raw_bytes:
        raise BadBatchError(f"body expands to {size} bytes; raw_len says {header.raw_bytes}")


def _array(kind: str, batch: bytes, at: int, count: int) -> "array[int]":
    values = array(kind)
    values.frombytes(batch[at : at + count * values.itemsize])
    if _MUST_SWAP:
        values.byteswap()
    return values


def _little_endian(values: "array[int]") -> bytes:
    if _MUST_SWAP:
        values.byteswap()
    return values.tobytes()
