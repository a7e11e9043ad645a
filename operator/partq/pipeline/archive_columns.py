"""The columns of an archive's Parquet files, and what orders their rows."""

from typing import Final

import pyarrow as pa

from partq.pipeline.manifest import Stream

MESSAGE_COLUMNS: Final = {
    "queue": "string",
    "partition": "string",
    "generation": "int",
    "partition_index": "int",
    "offset": "bigint",
    "key": "string",
    "value": "binary",
    "headers": "map<string,string>",
    "publish_time": "timestamp",
    "event_time": "timestamp",
    "append_broker_epoch": "bigint",
    "encoded": "binary",
}
AUDIT_COLUMNS: Final = {
    "partition": "string",
    "sequence": "bigint",
    "place": "int",
    "previous": "string",
    "chain": "string",
    "at_ms": "bigint",
    "kind": "string",
    "broker": "string",
    "broker_epoch": "bigint",
    "group": "string",
    "member": "string",
    "incarnation": "string",
    "flow": "bigint",
    "epoch": "bigint",
    "attempt": "bigint",
    "first": "bigint",
    "stop": "bigint",
    "delivery": "int",
    "cause": "string",
    "append_broker_epoch": "bigint",
    "producer": "string",
    "number": "bigint",
    "target": "string",
    "slots": "binary",
    "flags": "string",
    "content_crc": "bigint",
}
COLUMNS: Final[dict[Stream, dict[str, str]]] = {
    "messages": MESSAGE_COLUMNS,
    "audit": AUDIT_COLUMNS,
}
PLACE: Final[dict[Stream, tuple[str, ...]]] = {
    "messages": ("offset",),
    "audit": ("sequence", "place"),
}
"""What orders the rows of a partition; the first one is what positions count."""

_ARROW: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}

TIME: Final[dict[Stream, str]] = {"messages": "publish_time", "audit": "at_ms"}
"""When a row was stored."""


def arrow_schema(stream: Stream) -> pa.Schema:
    """Return the columns of a stream as Arrow has them."""
    return pa.schema([(name, _ARROW[kind]) for name, kind in COLUMNS[stream].items()])
