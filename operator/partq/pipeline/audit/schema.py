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

KINDS: Final = {
    **dict.fromkeys(
        (
            *("missing_range", "missing_record", "recorded_twice"),
            *("changed_group", "broken_link", "forked_chain"),
            *("two_owners", "two_flows", "two_brokers", "epoch_not_raised"),
            *("registered_while_held", "bind_not_held"),
            *("stale_ack", "ack_not_delivered", "ack_before_delivery", "ack_of_other_token"),
            *("out_of_order", "redelivered_out_of_order", "skipped_ahead"),
            *("lost", "delivered_unpublished"),
            *("duplicate_without_cause", "unfounded_cause", "delivered_after_ack"),
            *("published_twice", "no_publish", "not_archived", "archived_not_published"),
            *("archived_twice", "other_archived", "number_stored_twice", "handoff_without_end"),
        ),
        FAULT,
    ),
    "archive_gap": WARNING,
    "archive_behind": WARNING,
    "archive_begins_late": INFORMATION,
    "handoff_under_way": INFORMATION,
}
"""Every kind of finding, and how severe it is; no check can report another."""


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
        "content_crc": LongType(),
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
