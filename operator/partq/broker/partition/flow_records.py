"""The audit records of what a member had, and has no more."""

from partq.broker.partition.audit_buffer import KEYED
from partq.broker.partition.consumed_partition import ConsumedPartition, FlowPort
from partq.wire.audit import encode_record


def record_of(
    kind: str,
    consumed: ConsumedPartition,
    flow: FlowPort,
    part: tuple[int, int],
    *,
    cause: str = "",
) -> bytes:
    """Return the record of a range that a member had."""
    return encode_record(
        kind,
        group=flow.group,
        member=flow.member,
        incarnation=flow.incarnation,
        flow=flow.number,
        epoch=consumed.epoch,
        first=part[0],
        stop=part[1],
        # It has just gone up, where it does.
        delivery=max(0, consumed.book.number - 1),
        cause=cause,
        flags=KEYED if kind == "release" and consumed.lanes is not None else "",
    )
