"""The columns that the audit reads and writes, and the words of its findings."""

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

FAULT: Final = "fault"
WARNING: Final = "warning"
INFORMATION: Final = "information"


def _struct(columns: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


RECORD: Final = _struct(
    {
        "partition": StringType(),
        "sequence": LongType(),
        "place": IntegerType(),
        "previous": StringType(),
        "chain": StringType(),
        "at_ms": LongType(),
        "kind": StringType(),
        "broker": StringType(),
        "broker_epoch": LongType(),
        "group": StringType(),
        "member": StringType(),
        "incarnation": StringType(),
        "flow": LongType(),
        "epoch": LongType(),
        "attempt": LongType(),
        "first": LongType(),
        "stop": LongType(),
        "delivery": IntegerType(),
        "cause": StringType(),
        "append_broker_epoch": LongType(),
        "producer": StringType(),
        "number": LongType(),
        "target": StringType(),
        "slots": BinaryType(),
        "flags": StringType(),
    }
)
"""The brokers' audit record as it is archived; `partq.wire.audit` says what each means."""

MESSAGES: Final = _struct(
    {
        "partition": StringType(),
        "offset": LongType(),
        "key": StringType(),
        "publish_time": TimestampType(),
        "append_broker_epoch": LongType(),
    }
)
"""What the audit needs of the archived messages."""

FINDINGS: Final = _struct(
    {
        "check": StringType(),
        "what": StringType(),
        "severity": StringType(),
        "partition": StringType(),
        "group": StringType(),
        "sequence": LongType(),
        "at_ms": LongType(),
        "first": LongType(),
        "stop": LongType(),
        "key": StringType(),
        "member": StringType(),
        "broker_epoch": LongType(),
        "epoch": LongType(),
        "attempt": LongType(),
        "detail": StringType(),
    }
)
"""A finding. It concerns the offsets `[first, stop)`. Null where there is no such thing."""
