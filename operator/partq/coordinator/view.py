"""The coordinator's last observation, for status and display."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from partq.core.group.membership import MemberState
from partq.core.group.observation import GroupObservation, PartitionOwnership
from partq.core.group.records import AssignmentEntry, RebalanceRecord
from partq.core.layout import Layout
from partq.core.model import BrokerId, MemberId, PartitionId
from partq.core.parts.part_id import partition_of

_WORST_FIRST = ("Unassigned", "Unbound", "Paused", "Ready")


class Parked(NamedTuple):
    """Undecodable dead letters of one partition: they wait, and deliveries continue."""

    messages: int
    why: str


class SessionTotals(NamedTuple):
    """The sessions of a group, in a partition or over all of them."""

    with_messages: int
    locked: int
    waiting: int
    """Accepts that wait for one at its broker, whatever the partition; of all partitions: at the
    broker where most do, as clients ask all brokers at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """One group, as the last look found it."""

    partitions: Mapping[PartitionId, AssignmentEntry]
    """Every partition of the queue; of those that no broker reports, what is stored. In a group of
    the type KeyShared: every part of every partition."""
    retired: Collection[PartitionId] = frozenset()
    """Those of them that have no slots any more, and are there until groups have read them."""
    members: Mapping[MemberId, MemberState]
    """Everybody who has a flow, holds a partition or is waited for."""
    unseen_count: int
    """Partitions of which no broker that answers knows the group."""
    moving_count: int
    """How many handoffs are under way."""
    is_waiting: bool
    """A lost member's partitions wait for it."""
    rebalances: Sequence[RebalanceRecord]
    """Those that are over, the newest last."""
    waiting_count: int = 0
    """How many moves for balance wait for the group's budget."""
    blocked: Mapping[PartitionId, str] = field(default_factory=dict)
    """The partitions whose deliveries wait for dead letters to be stored, and why."""
    missing: Mapping[PartitionId, str] = field(default_factory=dict)
    """The partitions whose deliveries stopped at a message that the log does not hold."""
    stalled: Mapping[PartitionId, str] = field(default_factory=dict)
    """The partitions of a group of order Key that are sent nothing new, and why."""
    held_keys: Mapping[PartitionId, tuple[int, int]] = field(default_factory=dict)
    """The partitions with keys that wait until they are released: how many are blocked, and how
    many in quarantine."""
    parked: Mapping[PartitionId, Parked] = field(default_factory=dict)
    """The partitions where dead letters wait for their queue while deliveries continue."""
    is_complete: bool = True
    """Every living broker has answered: a member that is not in `members` has left."""
    refused: Mapping[MemberId, str] = field(default_factory=dict)
    """Refused members, each with the reason; if there are very many, the last."""
    is_client_assigned: bool = False
    """The members choose: a partition that nobody has waits for a member to register it."""
    is_open: bool = False
    """Whether no partition has a member, and any member may have messages of any partition."""
    sessions: SessionTotals | None = None
    """None: the group's type is not Session, or no broker that answers has told."""
    declares_ranges: bool = False
    """The members say which slots they want, and nobody has the others."""

    @property
    def states(self) -> dict[PartitionId, str]:
        """The state of each partition: of one that is cut into parts, that of the worst one."""
        found: dict[PartitionId, str] = {}
        for seat, each in self.partitions.items():
            partition = partition_of(seat)
            found[partition] = min(each.state, found.get(partition, each.state), key=state_rank)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One queue, as the last look found it."""

    partitions: Sequence[PartitionId]
    owners: Mapping[PartitionId, BrokerId]
    """The partitions that a broker which answers owns."""
    brokers: Mapping[BrokerId, bool]
    """The brokers with a lease; whether each answered."""
    groups: Mapping[str, GroupView] = field(default_factory=dict)
    is_quota_used_up: bool = False
    """A broker that answers finds no room in the queue's quota."""
    layout: Layout | None = None
    """As stored; None: the view is no coordinator's."""


def as_assigned(
    observation: GroupObservation,
    assignment: Mapping[PartitionId, AssignmentEntry],
    draining: Collection[PartitionId],
    *,
    is_shared_by_all: bool = False,
) -> dict[PartitionId, AssignmentEntry]:
    """Return what the brokers have recorded; where none answers, what was written last.

    `is_shared_by_all`: members are connected, and each of them has every partition.
    """
    found = {}
    for partition, ownership in observation.partitions.items():
        if ownership.broker is None:
            last = assignment.get(partition)
            found[partition] = last or AssignmentEntry(
                ownership.member, ownership.epoch, "Unassigned"
            )
        else:
            is_paused = ownership.pause_attempt is not None or partition in draining
            state = _state_name(ownership, is_paused=is_paused)
            if is_shared_by_all:
                state = "Ready"
            found[partition] = AssignmentEntry(ownership.member, ownership.epoch, state)
    return found


def state_rank(state: str) -> int:
    """Return 0 for the worst state of a partition, or of a part."""
    return _WORST_FIRST.index(state) if state in _WORST_FIRST else 0


def _state_name(ownership: PartitionOwnership, *, is_paused: bool) -> str:
    if ownership.member is None:
        return "Unassigned"
    if not ownership.is_bound:
        return "Unbound"
    return "Paused" if is_paused else "Ready"
