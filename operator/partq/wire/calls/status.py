"""The answer to `GET .../status`: every partition and group of a queue."""

import msgspec


class PartitionStatus(msgspec.Struct):
    """A partition's record."""

    broker: str
    broker_epoch: int
    first: int
    end: int
    bytes: int
    clock_ahead_ms: int = 0
    """By how much its last message is from the future of Redis's clock; 0: not. Until that time
    nothing of it ages."""


class MemberStatus(msgspec.Struct):
    """A member of a group."""

    member: str
    partitions: int
    state: str


class GroupPartition(msgspec.Struct):
    """A partition of a group."""

    member: str
    epoch: int
    state: str
    cursor: int
    lag: int
    lag_ms: int
    dead_letters: int = 0
    """Dead letters that wait to be stored in the dead-letter queue; none of them is in the lag."""
    blocked: str = ""
    """Why nothing is delivered to the group here, as the owner says: dead letters are not
    stored, or the log does not hold the message that comes next. Empty: nothing stops it."""
    parked: str = ""
    """Why undecodable messages wait here while deliveries continue; empty: none do."""


class HandoffStatus(msgspec.Struct):
    """A handoff that is under way."""

    partition: str
    source: str
    target: str
    attempt: int
    phase: str


class WaitingMoveStatus(msgspec.Struct):
    """A move that a limit holds back."""

    partition: str
    target: str
    limit: str


class GroupStatus(msgspec.Struct):
    """A consumer group."""

    type: str
    lag: int
    lag_ms: int
    members: list[MemberStatus]
    partitions: dict[str, GroupPartition]
    handoffs: list[HandoffStatus]
    waiting_moves: list[WaitingMoveStatus]


class QueueTotals(msgspec.Struct):
    """The sums over all partitions."""

    partitions: int
    messages: int
    bytes: int
    audit_bytes: int = 0
    """Of the audit record, which waits for its archive."""


class StatusAnswer(msgspec.Struct):
    """Every partition and group, read from the records."""

    queue: str
    namespace: str
    store: dict[str, str | bool]
    availability: str
    unavailable: list[str]
    totals: QueueTotals
    partitions: dict[str, PartitionStatus]
    groups: dict[str, GroupStatus]
