"""The columns that a queue is read as."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from partq.errors import BadRequestError

TOKEN = StructType(
    [
        StructField("generation", IntegerType(), nullable=False),
        StructField("broker_epoch", LongType(), nullable=False),
        StructField("epoch", LongType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
    ]
)
"""As `partq.Token`. Spark is no member of a group: `broker_epoch` is that of the append and `epoch`
is 0, so that a sink that is fenced takes any member's token for a newer one."""

COLUMNS: dict[str, DataType] = {
    "queue": StringType(),
    "partition": StringType(),
    "generation": IntegerType(),
    "partition_index": IntegerType(),
    "offset": LongType(),
    "key": StringType(),
    "value": BinaryType(),
    "headers": MapType(StringType(), StringType(), valueContainsNull=False),
    "publish_time": TimestampType(),
    "event_time": TimestampType(),
    "redeliveries": IntegerType(),
    "append_broker_epoch": LongType(),
    "token": TOKEN,
    "encoded": BinaryType(),
}
_NULLABLE = frozenset({"key", "headers", "event_time", "redeliveries", "encoded"})
"""Columns that some messages do not have; sinks with strict columns take the others as they are."""
_ON_DEMAND = frozenset({"encoded"})
"""Columns that are there only for those that name them."""
_ARROW: dict[type[DataType], pa.DataType] = {
    BinaryType: pa.binary(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    StringType: pa.string(),
    TimestampType: pa.timestamp("us", tz="UTC"),
}


def source_schema(*, with_headers: bool, names: Sequence[str] = ()) -> StructType:
    """Return the columns of these names, in their order; none: all, headers only if asked for.

    Raises:
        BadRequestError: there is no column of a name, or it is given twice.
    """
    for name in names:
        if name not in COLUMNS:
            raise BadRequestError(f"columns: there is no {name!r}; there are {', '.join(COLUMNS)}")
        if names.count(name) > 1:
            raise BadRequestError(f"columns: {name!r} is named twice")
    chosen = names or [
        name for name in COLUMNS if (with_headers or name != "headers") and name not in _ON_DEMAND
    ]
    return StructType(
        [StructField(name, COLUMNS[name], nullable=name in _NULLABLE) for name in chosen]
    )


def check_schema(schema: StructType) -> None:
    """Check a schema that the reader of a table has given: it may leave columns out.

    Raises:
        BadRequestError: a column that there is not, or one of another type.
    """
    if not schema.fields:
        raise BadRequestError("schema: no column; name at least one")
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            raise BadRequestError(
                f"schema: there is no column {field.name!r}; there are {', '.join(COLUMNS)}"
            )
        if _plain(kind) != _plain(field.dataType):
            raise BadRequestError(
                f"schema: column {field.name!r} as {field.dataType.simpleString()}; it is "
                f"{kind.simpleString()}: read it so, and cast it afterwards"
            )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema that Spark expects of record batches."""
    return pa.schema([_arrow_field(field) for field in schema.fields])


def _arrow_field(field: StructField) -> pa.Field:
    return pa.field(field.name, _arrow(field.dataType), nullable=field.nullable)


def _arrow(kind: DataType) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([_arrow_field(field) for field in kind.fields])
    if isinstance(kind, MapType):
        return pa.map_(
            pa.field("key", _arrow(kind.keyType), nullable=False),
            pa.field("value", _arrow(kind.valueType), nullable=kind.valueContainsNull),
        )
    return _ARROW[type(kind)]


def _plain(kind: DataType) -> str:
    """Return a type as text; whether null is allowed makes no difference."""
    return kind.simpleString()
