"""What brokers say of themselves and of groups, to a coordinator and to each other.

The fields may change with the version, so that the description of the calls has the outer ones
only. Where a field has a default, brokers of an earlier version do not send it.
"""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from partq.core.group.records import (
    AssignmentEntry,
    HandoffRecord,
    PastMove,
    RebalanceRecord,
    WaitingMove,
)
from partq.wire.calls.group.parts import PartsDetail
from partq.wire.calls.schemas import SENT, UNDESCRIBED
from partq.wire.layout_record import RangesForm

MAX_REDIS_INTEGER = 2**63 - 1
"""The largest epoch, attempt or count that is taken: more is nothing that Redis holds."""
Number = Annotated[int, msgspec.Meta(ge=-MAX_REDIS_INTEGER, le=MAX_REDIS_INTEGER)]


class SessionCounts(msgspec.Struct, omit_defaults=True):
    """Sessions of a group at one partition."""

    with_messages: Number = 0
    """That have open messages, as far as those were read."""
    locked: Number = 0
    waiting: Number = 0
    """Accepts that wait at the broker for a session of the group."""


class GroupDetail(msgspec.Struct, kw_only=True):
    """One group on one partition, as its broker sees it."""

    member: str
    """Empty: none has it."""
    incarnation: str = ""
    epoch: Number
    attempt: Number
    """The last attempt that is over."""
    cursor: int = 0
    position: int = 0
    in_flight: int = 0
    lag: int = 0
    state: str = ""
    is_bound: bool
    pause_attempt: Number = 0
    """Of the pause that is in force; 0: none is."""
    dead_letters: Number = 0
    """How many wait to be stored."""
    blocked: str = ""
    """Why deliveries wait for dead letters to be stored; empty: they do not."""
    missing: str = ""
    """Which message the log should hold and does not, so that nothing is delivered."""
    parked: str = ""
    """Why dead letters wait for their queue while deliveries continue."""
    is_withheld: bool = False
    """Its member's application has paused the partition: nothing is delivered to it."""
    gated_by: str | UnsetType = UNSET
    """Which older messages the group has to do with in other partitions before it gets messages
    of this one; left out: none."""
    delayed: Number = 0
    """How many messages wait until they are redelivered."""
    next_redelivery_ms: Number = 0
    """How long the first of them still waits."""
    parked_keys: Number | UnsetType = UNSET
    """How many keys wait, as a message of theirs was given back; left out: the group's order is not
    Key."""
    blocked_keys: Number | UnsetType = UNSET
    """How many of them wait until they are released (`partq keys release`), as a message failed too
    often; left out: none is known to."""
    quarantined_keys: Number | UnsetType = UNSET
    """How many of them make dead letters of all their messages, until they are released; left out:
    none is known to."""
    lowest_parked: Number | UnsetType = UNSET
    """The lowest offset of these keys that waits; left out: none is known."""
    stands_still: str | UnsetType = UNSET
    """In a group of order Key: why nothing new is sent; left out: it is."""
    order_waits: str | UnsetType = UNSET
    """Why the group's order is not in effect here yet; left out: it is."""
    mended: str = ""
    """What the broker put right in the group's record when it claimed the partition."""
    parts: PartsDetail | UnsetType = UNSET
    """Which members have its parts; left out: the group's type is not KeyShared."""
    sessions: SessionCounts | UnsetType = UNSET
    """Left out: the group's type is not Session, or nobody has asked for a session yet."""
    registered_s: float | UnsetType = UNSET
    """How long ago its member registered it, or the broker claimed it after that; else not sent."""


class PartitionDetail(msgspec.Struct, kw_only=True):
    """A partition that a broker owns."""

    broker_epoch: Number
    held_s: float
    """For how long it has owned it."""
    end: int = 0
    opened_after_s: float | UnsetType = UNSET
    """For how long publishes have waited until the broker opened it, after a change of the
    partition count; not sent by one that did not open it."""
    groups: dict[str, GroupDetail]


class FlowDetail(msgspec.Struct, kw_only=True):
    """A flow at a broker."""

    group: str
    member: str
    incarnation: str
    address: str = ""
    flow: int = 0
    is_leaving: bool = False
    kind: str = ""
    bound_s: float
    """For how long it has been bound."""
    unacked: Number = 0
    """Messages that were sent to it and are not acknowledged."""
    credit: Number | UnsetType = UNSET
    """In a group of the type Shared: how many more messages may be sent to it; else not sent."""
    turns: Number | UnsetType = UNSET
    """In a group of the type Shared: in how many partitions it has room and waits for its turn;
    else not sent."""
    sessions: Number | UnsetType = UNSET
    """In a group of the type Session: how many it has; else not sent."""
    priority: Number = 0
    ranges: list[tuple[int, int]] | UnsetType = UNSET
    """The slots that the member has declared, in a group with `hashRange: Sticky`."""


class LostFlowDetail(msgspec.Struct, kw_only=True):
    """A flow that a broker has lost."""

    group: str
    member: str
    incarnation: str
    lost_s: float
    """How long ago."""
    is_leaving: bool = False
    priority: Number = 0
    ranges: list[tuple[int, int]] | UnsetType = UNSET
    """The slots that the member has declared, in a group with `hashRange: Sticky`."""


class BrokerState(msgspec.Struct):
    """A broker's partitions and bound members; the fields may change with the version."""

    broker: str
    incarnation: str
    partitions: Annotated[dict[str, PartitionDetail], UNDESCRIBED]
    flows: Annotated[list[FlowDetail], UNDESCRIBED]
    lost_flows: Annotated[list[LostFlowDetail], UNDESCRIBED]
    is_quota_used_up: Annotated[bool, SENT] = False


class BrokerAnswer(msgspec.Struct):
    """The state of a broker, or why it is not known."""

    state: BrokerState | UnsetType = UNSET
    error: str | UnsetType = UNSET


class ListedMember(msgspec.Struct):
    """A member that may bind."""

    address: str
    lost_at_ms: int | None
    """Since when it is lost, in Redis's time; null: it is not."""


class RefusedDetail(msgspec.Struct):
    """A member that asked to bind and may not."""

    address: str
    reason: str
    is_final: bool = False


# The name and the route `.../picture` are in /openapi.json, so they stay. The code, the commands
# and the documents call it the snapshot of a group.
class SuccessionDetail(msgspec.Struct, kw_only=True):
    """Which partitions follow which, by changes of the partition count."""

    outgoing: list[str]
    """Those without slots, or about to be."""
    origins: dict[str, str]
    """New partition → the one that it begins with."""
    heirs: dict[str, str]
    """Outgoing partition → the one that continues it."""
    retired: list[str] = []
    """Those without slots: they are there until groups have read them."""


class Picture(msgspec.Struct, kw_only=True):
    """All that a plan for a group rests on; its fields may change with the version."""

    now_ms: int
    queue_spec: dict[str, Any]
    group_spec: dict[str, Any]
    partitions: list[str]
    members: Annotated[dict[str, ListedMember], UNDESCRIBED]
    heirs: dict[str, str]
    refused: Annotated[dict[str, RefusedDetail], UNDESCRIBED, SENT] = {}
    assignment: Annotated[dict[str, AssignmentEntry], UNDESCRIBED]
    handoffs: Annotated[dict[str, HandoffRecord], UNDESCRIBED]
    past: Annotated[dict[str, list[PastMove]], UNDESCRIBED]
    waiting: Annotated[dict[str, WaitingMove], UNDESCRIBED]
    brokers: Annotated[dict[str, BrokerAnswer], UNDESCRIBED]
    rebalances: Annotated[list[RebalanceRecord], UNDESCRIBED] = []
    """The last ones, the newest last."""
    born: int | UnsetType = UNSET
    """When the group was made, for a call that removes it."""
    succession: SuccessionDetail | UnsetType = UNSET
    """Unset: the partition count has never changed."""
    slots: RangesForm | UnsetType = UNSET
    """The slots that each partition was made with; unset: the group's type is not KeyShared."""
