"""The lines of the record as the judge reads them."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from partq.core.lanes.codec import BITS, decode_bits
from partq.wire.audit import FIELDS, LATER_FIELDS, encode_fields

PLACE_BITS = 20


class RecordLine(NamedTuple):
    """One record of a partition: the columns of the archive, less its partition."""

    sequence: int
    place: int
    previous: str
    chain: str
    at_ms: int
    kind: str
    broker: str
    broker_epoch: int
    group: str
    member: str
    incarnation: str
    flow: int
    epoch: int
    attempt: int
    first: int
    stop: int
    delivery: int
    cause: str
    append_broker_epoch: int
    producer: str
    number: int
    target: str
    flags: str
    slots: bytes
    content_crc: int

    @property
    def at(self) -> int:
        """Its place in the record of its partition, as one number that grows."""
        return (self.sequence << PLACE_BITS) + self.place

    def encoded(self) -> bytes:
        """Return the bytes that its broker wrote, by its columns."""
        fields: Sequence[Any] = self
        return encode_fields([fields[at] for at in _FIELDS_AT], self.slots)


def parts_of(line: RecordLine) -> list[RecordLine]:
    """Return a line for each range of what a delivery with a mask has; other lines as they are."""
    if line.kind != "deliver" or not line.target:
        return [line]
    try:
        ranges = decode_bits(BITS + bytes.fromhex(line.target), line.first)
    except ValueError:
        return [line]  # no broker writes that: the hash of the group tells it
    return [
        line._replace(first=first, stop=min(stop, line.stop))
        for first, stop in ranges
        if first < line.stop
    ]


_FIELDS_AT = [RecordLine._fields.index(name) for name, _ in FIELDS + LATER_FIELDS]


def lines_of(batch: pa.RecordBatch) -> Iterator[RecordLine]:
    """Return the rows of a batch of the archived record; a null is what is written as nothing."""
    columns = []
    for name in RecordLine._fields:
        column = batch.column(name)
        if column.null_count:
            nothing = -1 if pa.types.is_integer(column.type) else ""
            column = column.fill_null(pa.scalar(nothing).cast(column.type))
        columns.append(column.to_pylist())
    return map(RecordLine._make, zip(*columns, strict=True))
