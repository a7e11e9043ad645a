"""Checks the columns of an archive's file: a forged or foreign one must not reach the judges."""

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from partq.pipeline.archive_columns import COLUMNS
from partq.pipeline.manifest import Stream

_LATER: Final = frozenset({"encoded", "content_crc"})
"""Columns that files of earlier versions lack."""
LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


def wrong_columns(stream: Stream, schema: pa.Schema) -> str:
    """Return which column of a file is missing, or of another type; empty: none is."""
    for name, kind in COLUMNS[stream].items():
        found = schema.get_all_field_indices(name)
        if not found and name in _LATER:
            continue
        if len(found) != 1:
            return f"it has {len(found) or 'no'} columns {name}; expected one"
        given = schema.field(found[0]).type
        if not _FITS[kind](given):
            return f"its column {name} is {given}; expected {kind}"
    return ""


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_text_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type)


_FITS: Final[dict[str, Callable[[pa.DataType], bool]]] = {
    "string": _is_text,
    "binary": _is_bytes,
    "int": pa.types.is_signed_integer,
    "bigint": pa.types.is_signed_integer,
    "timestamp": lambda kind: pa.types.is_timestamp(kind) and kind.unit in ("us", "ns"),
    "map<string,string>": _is_text_map,
}
