"""Makes Arrow record batches of the audit record, with no Python object for a field."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from partq.core.model import PartitionId
from partq.wire.audit import (
    LINE_FIELDS,
    TEXT_FIELDS,
    AuditGroup,
    SplitRecords,
    decode_columns,
    name_of,
    split_records,
)

_TYPES = {name: pa.string() if name in TEXT_FIELDS else pa.int64() for name in LINE_FIELDS}
# Names have no control characters: a line ends where a record ends, whatever is in it.
_PARSE = csv.ParseOptions(
    delimiter="\t", quote_char=False, double_quote=False, ignore_empty_lines=False
)
_CONVERT = csv.ConvertOptions(column_types=_TYPES, null_values=[""], strings_can_be_null=False)


def audit_batch(
    partition: PartitionId, groups: Sequence[AuditGroup], schema: pa.Schema
) -> pa.RecordBatch:
    """Return the records of groups: what `partq.wire.audit.decode_columns` returns, as columns.

    Raises:
        UndecodableError: the bytes are no groups.
    """
    found = split_records(partition, groups)
    columns = _columns(partition, groups, found)
    if columns is None:
        # The slow way knows what is wrong; or it was a number that only Python takes for one.
        return pa.RecordBatch.from_pydict(decode_columns(partition, groups), schema=schema)
    arrays = [columns[field.name].cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _columns(
    partition: PartitionId, groups: Sequence[AuditGroup], found: SplitRecords
) -> dict[str, pa.Array] | None:
    """Return all columns; None: a line cannot be read."""
    lines = _lines(found.lines)
    if lines is None:
        return None
    heads = [head for head, _ in found.groups]
    counts = np.array([count for _, count in found.groups], np.int64)
    total = len(found.lines)
    of_group = pa.array(np.repeat(np.arange(len(counts)), counts))
    shared = {
        "sequence": pa.array([head.sequence for head in heads], pa.int64()),
        "previous": pa.array([group.previous for group in groups], pa.string()),
        "chain": pa.array([group.chain for group in groups], pa.string()),
        "at_ms": pa.array([head.at_ms for head in heads], pa.int64()),
        "broker_epoch": pa.array([head.broker_epoch for head in heads], pa.int64()),
        "broker": pa.array([head.broker for head in heads], pa.string()),
    }
    return {
        **lines,
        **{name: column.take(of_group) for name, column in shared.items()},
        "partition": pa.repeat(pa.scalar(str(partition)), total),
        "place": pa.array(np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)),
        "slots": pa.array(found.slots, pa.binary()),
    }


def _lines(lines: Sequence[bytes]) -> dict[str, pa.Array] | None:
    if not lines:
        return {name: pa.array([], kind) for name, kind in _TYPES.items()}
    text = b"\n".join([*lines, b""])
    reading = csv.ReadOptions(
        column_names=LINE_FIELDS, use_threads=False, block_size=max(len(text), 1)
    )
    try:
        table = csv.read_csv(pa.BufferReader(text), reading, _PARSE, _CONVERT)
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(lines):
        return None
    columns = {}
    for name in LINE_FIELDS:
        column = table[name].combine_chunks()
        if name not in TEXT_FIELDS:
            column = pc.fill_null(column, -1)
        elif pc.any(pc.match_substring(column, "%")).as_py():
            column = pa.array(map(name_of, column.to_pylist()), pa.string())
        columns[name] = column
    return columns
