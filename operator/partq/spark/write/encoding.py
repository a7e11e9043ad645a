"""Rows as Arrow holds them → messages as the wire has them, sorted by partition.

No Python code per row but for headers: Arrow's C++ joins the pieces of a message, NumPy computes
what stands between them, and each distinct key is hashed once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from partq.client.produce.partitioner import SlotCache
from partq.core.clocks.time_to_live import MAX_TTL_MS
from partq.core.clocks.units import MIN_AT_MS, check_at_ms
from partq.core.layout import Layout
from partq.core.model import SLOT_COUNT, PartitionId
from partq.core.numbering.scheduled_ids import MAX_AHEAD_DAYS, MAX_DUE_MS
from partq.errors import BadRequestError, MessageTooLargeError
from partq.spark.write.earlier_rows import EarlierRows
from partq.spark.write.keyless import KeylessSlots
from partq.spark.write.sink_columns import WriteColumns
from partq.wire.batch import encode_headers
from partq.wire.partition_key import check_key_headers

MAX_SLICE_BYTES = 64 * 1024 * 1024
"""Of rows that are encoded at once: what is in memory several times."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EncodedRun:
    """Messages of one partition, time to live and due time, in the order of their rows."""

    partition: PartitionId
    raw: memoryview
    """One message behind the other."""
    sizes: Ints
    slots: npt.NDArray[np.uint16]
    ttl_ms: int
    due_ms: int = 0
    """When they are to be delivered, in ms since 1970; 0: at once."""

    def __len__(self) -> int:
        return len(self.sizes)

    def part(self, start: int, stop: int) -> "EncodedRun":
        """Return the messages `start` to `stop` (exclusive)."""
        if start == 0 and stop == len(self):
            return self
        ends = np.concatenate(([0], np.cumsum(self.sizes[:stop])))
        raw = self.raw[int(ends[start]) : int(ends[stop])]
        sizes, slots = self.sizes[start:stop], self.slots[start:stop]
        return EncodedRun(self.partition, raw, sizes, slots, self.ttl_ms, self.due_ms)


class RowEncoder:
    """Encodes the rows of one task.

    Args:
        columns: where the columns of a message stand.
        layout: of the queue.
        keyless: chooses the slots of rows without a key.
        earlier: finds rows to be left out: they are stored; None: nothing was stored before.
        max_message_bytes: the most that the queue takes.
        ttl_ms: time to live of the rows without one; 0: the queue's.
        keeps_key_headers: take headers that name another key than the row has, as of messages that
            were stored before these were refused.
    """

    def __init__(
        self,
        columns: WriteColumns,
        layout: Layout,
        keyless: KeylessSlots,
        earlier: EarlierRows | None = None,
        *,
        max_message_bytes: int,
        ttl_ms: int = 0,
        keeps_key_headers: bool = False,
    ) -> None:
        self._columns = columns
        self._partitions = layout.current_partitions
        self._index_of = np.empty(SLOT_COUNT, np.uint16)
        """Slot → index of its partition."""
        for index, partition in enumerate(self._partitions):
            for each in layout.slots(partition):
                self._index_of[each.start : each.stop] = index
        self._keyless = keyless
        self._earlier = earlier
        self._max_message_bytes = max_message_bytes
        self._ttl_ms = ttl_ms
        self._keeps_key_headers = keeps_key_headers
        self._slot_of_key = SlotCache()

    def encode(self, rows: pa.RecordBatch) -> Iterator[EncodedRun]:
        """Yield the messages of the rows; those of one partition in the rows' order.

        Raises:
            BadRequestError: a value is null, a key or a header is not a text, a header
                names another key, and the like.
            MessageTooLargeError: a message is above what the queue takes.
        """
        if not rows.num_rows:
            return
        if rows.nbytes > MAX_SLICE_BYTES and rows.num_rows > 1:
            half = rows.num_rows // 2
            yield from self.encode(rows.slice(0, half))
            yield from self.encode(rows.slice(half))
            return
        keys = self._column(rows, self._columns.key)
        slots = self._slots(keys, rows.num_rows)
        ttls = self._ttls(rows)
        dues = self._dues(rows)
        messages = self._messages(rows, keys)
        partitions = self._index_of[slots]
        # Stable: the rows of a partition, so those of a key, stay in their order.
        order = np.argsort(partitions, kind="stable")
        if self._earlier is not None and (found := self._earlier.find(slots)) is not None:
            order = order[~found[order]]
            if not len(order):
                return
        messages = messages.take(pa.array(order))
        slots, partitions = slots[order], partitions[order]
        ends = np.frombuffer(messages.buffers()[1], np.int32, len(order) + 1).astype(np.int64)
        raw = memoryview(messages.buffers()[2])
        sizes = np.diff(ends)
        if int(sizes.max()) > self._max_message_bytes:
            raise MessageTooLargeError.of(int(sizes.max()), self._max_message_bytes)
        differ = partitions[1:] != partitions[:-1]
        if ttls is not None:
            ttls = ttls[order]
            differ |= ttls[1:] != ttls[:-1]
        if dues is not None:
            dues = dues[order]
            differ |= dues[1:] != dues[:-1]
        cuts = [0, *(np.flatnonzero(differ) + 1).tolist(), len(order)]
        for start, stop in pairwise(cuts):
            yield EncodedRun(
                self._partitions[int(partitions[start])],
                raw[int(ends[start]) : int(ends[stop])],
                sizes[start:stop],
                slots[start:stop],
                self._ttl_ms if ttls is None else int(ttls[start]),
                0 if dues is None else int(dues[start]),
            )

    def _column(self, rows: pa.RecordBatch, place: int | None) -> pa.Array | None:
        """Return a column; None: the column is missing or empty."""
        if place is None:
            return None
        column = rows.column(place)
        return None if column.null_count == len(column) else column

    def _slots(self, keys: pa.Array | None, count: int) -> npt.NDArray[np.uint16]:
        if keys is None:
            return self._keyless.take(count)
        coded = keys.dictionary_encode()
        try:
            distinct = coded.dictionary.to_pylist()
        except UnicodeDecodeError as error:
            raise BadRequestError(f"column 'key': no UTF-8: {error}") from error
        slot_of = self._slot_of_key.__getitem__
        by_key = np.fromiter(map(slot_of, distinct), np.uint16, len(distinct))
        if not keys.null_count:
            slots: npt.NDArray[np.uint16] = by_key[coded.indices.to_numpy()]
            return slots
        slots = by_key[pc.fill_null(coded.indices, 0).to_numpy()]
        slots[keys.is_null().to_numpy(zero_copy_only=False)] = self._keyless.take(keys.null_count)
        return slots

    def _messages(self, rows: pa.RecordBatch, keys: pa.Array | None) -> pa.Array:
        """Return the MessagePack array of each row, as `wire.batch.encode_message` makes it."""
        values = rows.column(self._columns.value)
        if values.null_count:
            raise BadRequestError(
                f"column 'value': {values.null_count} of {len(values)} rows have none; filter "
                "them, or write an empty value"
            )
        pieces: list[pa.Array | pa.Scalar] = [_NO_KEY]
        if keys is not None:
            lengths = _lengths(keys)
            pieces = [_ARRAY_OF_FOUR, _key_heads(lengths, keys), _texts(keys)]
        pieces += (
            _value_heads(_lengths(values)),
            values.cast(pa.binary()),
            self._headers(rows, keys),
        )
        pieces.append(self._event_times(rows))
        return pc.binary_join_element_wise(*pieces, b"")

    def _headers(self, rows: pa.RecordBatch, keys: pa.Array | None) -> pa.Array | pa.Scalar:
        headers = self._column(rows, self._columns.headers)
        if headers is None:
            return _NIL
        try:
            maps = [None if items is None else dict(items) for items in headers.to_pylist()]
        except UnicodeDecodeError as error:
            raise BadRequestError(f"column 'headers': no UTF-8: {error}") from error
        if headers.items.null_count and any(each and None in each.values() for each in maps):
            raise BadRequestError("column 'headers': a header is null; leave it out instead")
        if not self._keeps_key_headers:
            of_rows = [None] * len(maps) if keys is None else keys.to_pylist()
            for key, each in zip(of_rows, maps, strict=True):
                if each:
                    check_key_headers(key, each)
        return pa.array(encode_headers(maps), pa.binary())

    def _event_times(self, rows: pa.RecordBatch) -> pa.Array | pa.Scalar:
        times = self._column(rows, self._columns.event_time)
        return _ZERO if times is None else _integers(_milliseconds(times))

    def _dues(self, rows: pa.RecordBatch) -> Ints | None:
        times = self._column(rows, self._columns.deliver_at)
        if times is None:
            return None
        numbers = _milliseconds(times.fill_null(0))
        if int(numbers.max()) > MAX_DUE_MS:
            raise BadRequestError(
                f"column 'deliver_at': {int(numbers.max())} ms since 1970; expected a time that is "
                f"at most {MAX_AHEAD_DAYS} days ahead, or null for at once"
            )
        if pa.types.is_integer(times.type):
            is_wrong = (numbers > 0) & (numbers < MIN_AT_MS)
            if is_wrong.any():
                check_at_ms("column 'deliver_at'", int(numbers[is_wrong][0]), "at once")
        return np.maximum(numbers, 0)

    def _ttls(self, rows: pa.RecordBatch) -> Ints | None:
        ttls = self._column(rows, self._columns.ttl_ms)
        if ttls is None:
            return None
        numbers = _numbers(ttls.fill_null(self._ttl_ms))
        if int(numbers.min()) < 0 or int(numbers.max()) > MAX_TTL_MS:
            wrong = numbers[(numbers < 0) | (numbers > MAX_TTL_MS)][0]
            raise BadRequestError(
                f"column 'ttl_ms': {int(wrong)}; expected 1 to {MAX_TTL_MS}, or 0 or null for "
                "no limit but the queue's"
            )
        return numbers


_ARRAY_OF_FOUR = pa.scalar(b"\x94", pa.binary())
_NO_KEY = pa.scalar(b"\x94\xc0", pa.binary())
_NIL = pa.scalar(b"\xc0", pa.binary())
_ZERO = pa.scalar(b"\x00", pa.binary())
_WIDTHS = (1, 2, 4, 8)
"""Bytes of a number behind its head, where the head is not all."""


def _milliseconds(times: pa.Array) -> Ints:
    """Return timestamps, or integers in milliseconds, as milliseconds since 1970."""
    if not pa.types.is_timestamp(times.type):
        return _numbers(times)
    return _numbers(times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())) // 1000


def _numbers(column: pa.Array) -> Ints:
    filled = column.fill_null(0) if column.null_count else column
    numbers: Ints = filled.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _lengths(column: pa.Array) -> Ints:
    return _numbers(pc.binary_length(column))


def _texts(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.binary())
    return texts.fill_null(b"") if texts.null_count else texts


def _key_heads(lengths: Ints, keys: pa.Array) -> pa.Array:
    widths = np.select([lengths < 32, lengths < 2**8], [0, 1], 2)
    codes = np.select([lengths < 32, lengths < 2**8], [0xA0 | lengths, 0xD9], 0xDA)
    if keys.null_count:
        nulls = keys.is_null().to_numpy(zero_copy_only=False)
        codes[nulls] = 0xC0
    return _scattered(codes, widths, lengths)


def _value_heads(lengths: Ints) -> pa.Array:
    classes = [lengths < 2**8, lengths < 2**16]
    codes, widths = np.select(classes, [0xC4, 0xC5], 0xC6), np.select(classes, [1, 2], 4)
    return _scattered(codes, widths, lengths)


def _integers(numbers: Ints) -> pa.Array:
    """Return the shortest MessagePack integer of each number."""
    classes = [
        (numbers >= -32) & (numbers < 2**7),
        (numbers >= 0) & (numbers < 2**8),
        (numbers >= 0) & (numbers < 2**16),
        (numbers >= 0) & (numbers < 2**32),
        numbers >= 0,
        numbers >= -(2**7),
        numbers >= -(2**15),
        numbers >= -(2**31),
    ]
    codes = np.select(
        classes, [numbers & 0xFF, 0xCC, 0xCD, 0xCE, 0xCF, 0xD0, 0xD1, 0xD2], default=0xD3
    )
    return _scattered(codes, np.select(classes, [0, 1, 2, 4, 8, 1, 2, 4], default=8), numbers)


def _scattered(codes: npt.NDArray[np.integer], widths: Ints, numbers: Ints) -> pa.Array:
    """Return, per row, a byte and the low `widths` bytes of a number, the highest first."""
    count = len(codes)
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(widths + 1, out=ends[1:])
    flat = np.empty(int(ends[-1]), np.uint8)
    flat[ends[:-1]] = codes
    digits = numbers.astype(">i8").view(np.uint8).reshape(count, 8)
    for width in _WIDTHS:
        rows = np.flatnonzero(widths == width)
        for place in range(width):
            flat[ends[rows] + 1 + place] = digits[rows, 8 - width + place]
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(flat)])
