"""What the coordinator writes down: values that the store keeps and a next coordinator reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from partq.core.model import Epoch, MemberId, PartitionId


class RefusedJoin(NamedTuple):
    """A member that asked to bind and may not."""

    address: str
    """Where it asked from."""
    reason: str
    """Why, as it is told."""
    is_final: bool = False
    """Time alone does not mend it."""


@dataclass(frozen=True, slots=True)
class AssignmentEntry:
    """One partition's place in the assignment."""

    member: MemberId | None
    epoch: Epoch
    state: str
    """`Unassigned`, `Ready`, `Paused` or `Unbound`."""


@dataclass(frozen=True, slots=True)
class HandoffRecord:
    """One partition's handoff."""

    source: MemberId | None
    target: MemberId | None
    attempt: int
    phase: str
    deadline_ms: int
    """Of the drain, in Redis's time."""
    trigger: str = ""
    """What the move is due to; empty, as the next two: written by an earlier version."""
    evidence: str = ""
    """Why the move was decided, a `MoveReason`; stored under this name."""
    forced: str | None = None
    """Why the commit does without a drain, as far as that was known at the start."""


MAX_REBALANCES = 20
"""How many rebalances of a group are kept."""
MAX_PAST_MOVES = 5
"""How many moves of each partition are kept."""


@dataclass(frozen=True, slots=True)
class RebalanceRecord:
    """What one change of a group's members did; times in milliseconds."""

    trigger: str
    moved: int
    """Partitions that left a member for another, or for none."""
    assigned: int
    """Partitions that nobody had before."""
    started_at_ms: int
    """In Redis's time, as `ended_at_ms`."""
    ended_at_ms: int
    longest_pause_ms: int
    """The longest time that a partition had no consumer: from its pause, or from the loss of its
    member's flow, to the commit."""
    timed_out: int = 0
    """Partitions whose member had not finished when its time was over."""

    @property
    def duration_ms(self) -> int:
        """From the plan to the last commit."""
        return self.ended_at_ms - self.started_at_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMove:
    """One move of a partition that is over; instants in Redis's time."""

    at_ms: int
    """When it was committed; of one that a coordinator did not live to see: when it was found."""
    source: MemberId | None
    target: MemberId | None
    attempt: int
    trigger: str
    evidence: str
    """Why it was decided, a `MoveReason`; stored under this name."""
    forced: str | None
    """Why the source was not drained, or not to its end; None: it was."""
    pause_ms: int | None
    """How long nobody consumed the partition; None: nobody measured it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingMove:
    """A move for balance that waits for the budget; instants in Redis's time."""

    target: MemberId
    limit: str
    """The field of `spec.rebalance` that holds it up."""
    since_ms: int
    until_ms: int | None
    """When it can go at the earliest, if nothing else moves; None: when another one is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMoves:
    """A group's moves, one by one."""

    past: Mapping[PartitionId, Sequence[PastMove]] = field(default_factory=dict)
    """The last ones of each partition, the newest last."""
    waiting: Mapping[PartitionId, WaitingMove] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member that may bind."""

    address: str
    """Where it may bind from."""
    lost_at_ms: int | None
    """Since when it is lost, in Redis's time; None: it is not."""


class NodeRecord(NamedTuple):
    """Which node a member of a client-assigned group is."""

    source_count: int
    """How many nodes the member says there are; below 0: it is not compared with others."""
    node_id: int
    """Its number among them, from 0."""


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """The members of a group, and Redis's time of the reading."""

    members: dict[MemberId, MemberRecord]
    replacements: dict[MemberId, MemberId]
    """The replacement for the whole set of a leaving member."""
    refused: dict[MemberId, RefusedJoin]
    now_ms: int
    nodes: dict[MemberId, NodeRecord] = field(default_factory=dict)
    """Which nodes members have said to be; it counts for those that are listed."""
    lost_unlisted: dict[MemberId, int] = field(default_factory=dict)
    """Since when members are lost that hold something and are not listed, in Redis's time."""
