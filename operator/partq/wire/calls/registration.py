"""Partitions that members register themselves, over HTTP: what is asked and answered."""

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from partq.core.slot_table import MAX_PARTITION_COUNT
from partq.wire.calls.bodies import MAX_NATURAL, MemberName, Natural

MAX_UNREGISTER_WAIT_MS = 3_000
"""How long a call that unregisters a partition waits for what is in flight, at most."""
MAX_REASON_CHARS = 200


class RegisterBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a member registers a partition with."""

    incarnation: MemberName
    """Of the member's process, as in its binds."""
    epoch: Natural
    """Of the partition in the group, as `GET .../partitions` showed it."""
    offset: Annotated[int, msgspec.Meta(ge=-1, le=MAX_NATURAL)] = -1
    """Where the group is to begin, in place of its cursor; -1: at its cursor."""


class Registered(msgspec.Struct):
    """A partition is the member's."""

    member: str
    epoch: int
    """Under which it was registered; each bind after that has a higher one."""
    cursor: int
    """Where the group begins."""
    is_clamped: bool
    """The log does not hold the offset that was asked for: the nearest that it holds is taken."""
    is_new: bool
    """False: the member had it before, and this call has changed nothing."""


class UnregisterQuery(msgspec.Struct):
    """How a member unregisters a partition."""

    incarnation: Annotated[str, msgspec.Meta(max_length=253, description="Of its process.")]
    epoch: Annotated[
        Natural,
        msgspec.Meta(
            description="As the registration answered it, or any later one that the member saw."
        ),
    ]
    wait_ms: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            le=MAX_UNREGISTER_WAIT_MS,
            description="How long to wait for what is in flight, in ms.",
        ),
    ] = MAX_UNREGISTER_WAIT_MS
    is_forced: Annotated[
        bool,
        msgspec.Meta(description="Do not wait: what is in flight goes to its next member."),
    ] = False


class Unregistered(msgspec.Struct):
    """What has become of a partition that its member gives back."""

    is_free: bool
    """False: messages are in flight. Nothing more is delivered for 5 s; repeat the call."""
    in_flight: int
    epoch: int
    """Of the partition in the group: what the next member registers it with."""


class NodeBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which node of how many a member is."""

    incarnation: MemberName
    source_count: Annotated[int, msgspec.Meta(ge=-1, le=MAX_PARTITION_COUNT)]
    """How many nodes the group has; -1: nothing is compared."""
    node_id: Annotated[int, msgspec.Meta(ge=-1, le=MAX_PARTITION_COUNT)]
    """The member's number among them, from 0."""


class NodeQuery(msgspec.Struct):
    """Which process of a member is no longer a node."""

    incarnation: Annotated[str, msgspec.Meta(max_length=253, description="Of its process.")]


class Node(msgspec.Struct):
    """Which node of how many a member is."""

    source_count: int
    node_id: int


class NodeCleared(msgspec.Struct):
    """The member is no longer a node."""

    member: str


class ConfiguredPartition(msgspec.Struct, kw_only=True):
    """A partition of the queue for a group, whether or not anybody serves or holds it now."""

    key: str
    """`QUEUE:GENERATION.INDEX`: unique among the queues of a namespace."""
    is_subscribable: bool
    """Whether a member may register it now, if it is free."""
    reason: str
    """Why not; empty: it may."""
    broker: str = ""
    """Its owner, or its last one; empty: it never had one."""
    member: str = ""
    """The member that holds it; empty: nobody, or its record cannot be read."""
    node_id: int | UnsetType = UNSET
    """Of that member; left out: it has said none."""
    epoch: int = 0
    state: str = ""
    """`Unassigned`, `Ready`, `Paused`, `Unbound`; empty: its record cannot be read."""
    cursor: int = 0
    end: int = 0
    lag: int = 0
    """Messages that the group has not acknowledged."""
    lag_ms: int = 0
    """How long the oldest of them has been stored."""


class ConfiguredPartitions(msgspec.Struct):
    """All partitions of the queue for a group, by their names."""

    assignment: str
    """`Client`, or `Server`: then none is subscribable."""
    partitions: dict[str, ConfiguredPartition]
    nodes: dict[str, Node]
    """The listed members that have said which node they are."""
    type: str = ""
    """The type of the group; empty: the broker is of a version that does not tell it. In groups of
    the types Shared and Session no partition has a member."""


class SubscribableBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Whether members may register a partition, or the partitions of a broker."""

    is_subscribable: bool
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)] = ""
    """Told to those that are refused."""


class Subscribable(msgspec.Struct):
    """Whether members may register a partition, or the partitions of a broker."""

    is_subscribable: bool
    reason: str
