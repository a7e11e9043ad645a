"""The columns that can be written, and which of them a DataFrame has."""

from dataclasses import dataclass

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from partq.errors import BadRequestError

_INTEGERS = (IntegerType, LongType)
_TAKEN: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "value": ((BinaryType, StringType), "binary or string"),
    "key": ((StringType,), "string"),
    "headers": ((MapType,), "map<string,string>"),
    "event_time": ((TimestampType, *_INTEGERS), "timestamp, or bigint in milliseconds"),
    "ttl_ms": (_INTEGERS, "int or bigint"),
    "deliver_at": ((TimestampType, *_INTEGERS), "timestamp, or bigint in milliseconds"),
}


@dataclass(frozen=True, slots=True)
class WriteColumns:
    """Where each column stands in a row; None: the DataFrame does not have it."""

    value: int
    key: int | None
    headers: int | None
    event_time: int | None
    ttl_ms: int | None
    deliver_at: int | None = None


def write_columns(schema: StructType) -> WriteColumns:
    """Find the columns that make a message.

    Raises:
        BadRequestError: `value` is missing; a column is unknown, there twice, or of a type that it
            cannot be made of.
    """
    places: dict[str, int] = {}
    for place, field in enumerate(schema.fields):
        if field.name not in _TAKEN:
            raise BadRequestError(
                f"column {field.name!r} cannot be written; a message is made of "
                f"{', '.join(_TAKEN)}: select those, renamed where needed"
            )
        if field.name in places:
            raise BadRequestError(f"column {field.name!r} is there twice")
        kinds, expected = _TAKEN[field.name]
        if not isinstance(field.dataType, kinds) or not _has_texts(field.dataType):
            raise BadRequestError(
                f"column {field.name!r} is {field.dataType.simpleString()}; expected {expected}"
            )
        places[field.name] = place
    if "value" not in places:
        raise BadRequestError(
            f"there is no column 'value'; a message is made of {', '.join(_TAKEN)}, and value is "
            "the one that must be there"
        )
    return WriteColumns(
        value=places["value"],
        key=places.get("key"),
        headers=places.get("headers"),
        event_time=places.get("event_time"),
        ttl_ms=places.get("ttl_ms"),
        deliver_at=places.get("deliver_at"),
    )


def _has_texts(kind: DataType) -> bool:
    return not isinstance(kind, MapType) or (
        isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    )
