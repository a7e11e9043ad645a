"""Interfaces of the coordinator to the store, the brokers and the processes of the members."""
# ruff: noqa: D102 - what a method of the store does stands at the store; here is only its shape

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from partq.coordinator.view import QueueView, SessionTotals
from partq.core.group.handoff import AwaitDrain, Cancel, Commit, Pause
from partq.core.group.observation import MemberFact
from partq.core.group.records import (
    AssignmentEntry,
    HandoffRecord,
    MemberSnapshot,
    PastMove,
    RebalanceRecord,
    RecordedMoves,
    RefusedJoin,
    WaitingMove,
)
from partq.core.layout import Layout, RescaleRecord
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId, PartitionId, Start
from partq.core.records import (
    ConfigRecord,
    EventRecord,
    LayoutRecord,
    LeaseIndex,
    LeaseRecord,
)
from partq.core.rescale.gates import GroupProgress
from partq.core.rescale.layout_steps import RescaleEvent
from partq.core.rescale.restoration import RecordedLayout

# ---- the store ----------------------------------------------------------------------------------
# All of these raise StoreUnavailableError when there is no answer.


class LayoutStore(Protocol):
    """The layout of the queue."""

    async def read(self) -> LayoutRecord: ...
    async def write(self, layout: Layout, *, removed: Collection[PartitionId] = ()) -> None: ...
    async def read_removed(self) -> Collection[PartitionId]: ...
    async def forget_removed(self, partitions: Collection[PartitionId]) -> None: ...
    async def now_ms(self) -> int: ...


class SealStore(Protocol):
    """Partitions that a change of the partition count makes, and those that it removes."""

    async def create_successor(
        self,
        partition: PartitionId,
        predecessors: Mapping[PartitionId, Sequence[range]],
        slots: Sequence[range],
    ) -> bool: ...
    async def erase(self, partition: PartitionId) -> None: ...
    async def read_progress(
        self, wanted: Iterable[tuple[PartitionId, str]]
    ) -> Mapping[tuple[PartitionId, str], GroupProgress]: ...


class ConfigStore(Protocol):
    """The configs of the queue and its groups."""

    async def read_queue(self) -> ConfigRecord | None: ...
    async def read_reachable_groups(
        self, groups: Sequence[str]
    ) -> Mapping[str, ConfigRecord | None]: ...


class PartitionRecord(Protocol):
    """The part of a partition's record that the coordinator reads."""

    @property
    def groups(self) -> Collection[str]: ...
    @property
    def groups_fence(self) -> int: ...
    @property
    def trimmed(self) -> int: ...
    @property
    def layout(self) -> RecordedLayout: ...
    def is_held(self, now_ms: int) -> bool: ...


class PartitionStore(Protocol):
    """The partitions' records; all calls may be repeated."""

    async def create(self, partition: PartitionId) -> None: ...
    async def read_many(
        self, partitions: Sequence[PartitionId]
    ) -> Mapping[PartitionId, PartitionRecord]: ...
    async def fence_groups(self, partition: PartitionId) -> None: ...
    async def add_group(
        self,
        partition: PartitionId,
        group: str,
        *,
        start: Start,
        fence: int | None,
    ) -> None: ...
    async def births(
        self, wanted: Iterable[tuple[PartitionId, str]]
    ) -> Mapping[tuple[PartitionId, str], int]: ...
    async def remove_group(self, partition: PartitionId, group: str, *, born: int) -> None: ...


class LeaseStore(Protocol):
    """The leases of the queue's brokers."""

    async def read(self) -> LeaseIndex: ...
    async def record_owner(self, partition: PartitionId, broker: BrokerId | None) -> None: ...


class MemberStore(Protocol):
    """Members that may bind, since when members are lost, and their replacements."""

    async def list_member(self, group: str, member: MemberId, address: str) -> None: ...
    async def unlist(self, group: str, member: MemberId) -> None: ...
    async def write_refusals(
        self, group: str, refused: Mapping[MemberId, RefusedJoin], over: Collection[MemberId]
    ) -> None: ...
    async def mark_lost(self, group: str, member: MemberId) -> int: ...
    async def clear_lost(self, group: str, member: MemberId) -> None: ...
    async def pair(self, group: str, member: MemberId, replacement: MemberId) -> None: ...
    async def unpair(self, group: str, member: MemberId) -> None: ...
    async def read(self, group: str) -> MemberSnapshot: ...


class AssignmentStore(Protocol):
    """The index of assignments."""

    async def read(self, group: str) -> Mapping[PartitionId, AssignmentEntry]: ...
    async def write(self, group: str, mapping: Mapping[PartitionId, AssignmentEntry]) -> None: ...
    async def remove(self, group: str, partitions: Collection[PartitionId]) -> None: ...


class TermStore(Protocol):
    """Which of several coordinators writes a group's records in Redis: the last one that began."""

    async def begin(self, group: str) -> None:
        """End every older term. What is written under one of them raises FencedError."""


class HandoffStore(Protocol):
    """The handoffs under way."""

    async def draw_attempt(self, group: str) -> int: ...
    async def read(self, group: str) -> Mapping[PartitionId, HandoffRecord]: ...
    async def record(self, group: str, partition: PartitionId, record: HandoffRecord) -> None: ...
    async def remove(self, group: str, partition: PartitionId) -> None: ...


class RebalanceStore(Protocol):
    """The last rebalances of a group, the newest last; and its moves, one by one."""

    async def read(self, group: str) -> Sequence[RebalanceRecord]: ...
    async def write(self, group: str, rebalances: Sequence[RebalanceRecord]) -> None: ...
    async def read_moves(self, group: str) -> RecordedMoves: ...
    async def write_moves(
        self,
        group: str,
        past: Mapping[PartitionId, Sequence[PastMove]],
        waiting: Mapping[PartitionId, WaitingMove] | None,
    ) -> None: ...
    async def remove_moves(self, group: str, partitions: Collection[PartitionId]) -> None: ...


class EventStore(Protocol):
    """The stream of hints, of all queues."""

    async def wait(self, last_id: str, timeout_s: float) -> tuple[str, Sequence[EventRecord]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePorts:
    """One queue's store."""

    layouts: LayoutStore
    seals: SealStore
    configs: ConfigStore
    partitions: PartitionStore
    leases: LeaseStore
    members: MemberStore
    assignments: AssignmentStore
    handoffs: HandoffStore
    rebalances: RebalanceStore
    terms: TermStore
    events: EventStore


# ---- the brokers --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartReport:
    """One part of a partition, in a group of the type KeyShared."""

    member: MemberId | None
    closed_attempt: int
    is_bound: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """One group on one partition, as its broker sees it."""

    member: MemberId | None
    epoch: Epoch
    closed_attempt: int
    is_bound: bool
    pause_attempt: int | None
    blocked: str = ""
    """Why deliveries wait for dead letters to be stored; empty: they do not."""
    missing: str = ""
    """Which message the log should hold and does not, so that nothing is delivered."""
    stalled: str = ""
    """In a group of order Key, why nothing new is sent; empty: it is."""
    blocked_keys: int = 0
    """In a group of order Key, how many keys wait until somebody releases them."""
    quarantined_keys: int = 0
    """How many make dead letters of all their messages until then."""
    parked: str = ""
    """Why dead letters wait for their queue while deliveries continue."""
    dead_letters: int = 0
    """How many dead letters wait to be stored."""
    registered_ms: int | None = None
    """How long ago the member registered it; None: it got it otherwise."""
    sessions: SessionTotals | None = None
    """Of a group of the type Session; None: of another one, or nobody has asked for one yet."""
    parts: Sequence[PartReport] = ()
    """Its parts by their numbers; empty: the broker does not have the group as a KeyShared one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """A partition that the broker owns."""

    broker_epoch: BrokerEpoch
    held_ms: int
    groups: Mapping[str, GroupReport]
    opened_after_ms: int | None = None
    """For how long publishes have waited for its opening; None: this broker has not opened it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowReport:
    """A flow at a broker, or one that it has lost (then `age_ms` counts from the loss)."""

    group: str
    member: MemberId
    incarnation: str
    address: str
    age_ms: int
    is_leaving: bool
    priority: int = 0
    """As the member says; 0 is the highest."""
    ranges: tuple[tuple[int, int], ...] = ()
    """The slots that it has declared; empty: its group does not ask for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReport:
    """All that a broker says of itself at one time."""

    broker: BrokerId
    incarnation: str
    partitions: Mapping[PartitionId, PartitionReport]
    flows: Sequence[FlowReport]
    lost_flows: Sequence[FlowReport]
    is_quota_used_up: bool = False
    """Publishes find no room in the queue's quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A broker's answer for one partition of a call, or for one part."""

    partition: PartitionId
    code: str = ""
    """The code of the error; empty: it was done."""
    message: str = ""
    is_drained: bool = False
    """Nothing is in flight at the source, and its acks are stored."""
    epoch: Epoch | None = None
    """Of the target, after a commit."""


class BrokerAdmin(Protocol):
    """The brokers' admin API.

    Every call may be repeated, has a time-out, answers for each partition on its own, and raises
    UnavailableError when there is no answer: it may or may not have been carried out.
    """

    async def state(self, url: str) -> BrokerReport:
        """Return the partitions of a broker and its bound members."""

    async def pause(
        self, url: str, group: str, pauses: Mapping[PartitionId, Pause], *, lease_ms: int
    ) -> Sequence[Answer]:
        """Stop delivering for `lease_ms` from now."""

    async def drain(
        self, url: str, group: str, drains: Mapping[PartitionId, AwaitDrain], *, wait_ms: int
    ) -> Sequence[Answer]:
        """Wait up to `wait_ms` until one of the drains is over."""

    async def commit(
        self, url: str, group: str, commits: Mapping[PartitionId, Commit]
    ) -> Sequence[Answer]:
        """Record the targets."""

    async def commit_parts(
        self, url: str, group: str, commits: Mapping[PartitionId, Commit]
    ) -> Sequence[Answer]:
        """Record the targets of parts; the brokers let the sources finish key by key."""

    async def cancel(
        self, url: str, group: str, cancels: Mapping[PartitionId, Cancel]
    ) -> Sequence[Answer]:
        """Let the sources continue."""

    async def claim(self, url: str, partitions: Sequence[PartitionId]) -> Sequence[Answer]:
        """Make the broker the owner of partitions that no living broker owns."""

    async def yield_(self, url: str, partitions: Sequence[PartitionId]) -> Sequence[Answer]:
        """Make the broker give partitions up."""

    async def refresh(self, url: str) -> None:
        """Let the broker read the layout now."""


# ---- processes of the members, and listeners -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class BindRefusal:
    """Why a member may not be listed."""

    text: str
    """For people: which pod, what was found, what is expected."""
    told_after_s: float = 0.0
    """How long it lasts before people are told: a pod that has just started is no trouble."""
    is_final: bool = False
    """Time alone does not mend it: the member gives up in the end."""


class MemberProcesses(Protocol):
    """Knows of the members' processes what flows do not show; on Kubernetes, from their pods."""

    def facts(
        self, group: str, members: Collection[MemberId], leaving: Collection[MemberId]
    ) -> Mapping[MemberId, MemberFact]:
        """Return what is known of these members of a group; a missing member is unknown.

        `leaving`: those that have said so themselves.
        """

    def priorities(self, group: str, members: Collection[MemberId]) -> Mapping[str, int]:
        """Return the priorities that are set for members from outside; they come before theirs."""

    def time_left_ms(self, group: str, member: MemberId) -> int | None:
        """Return how long a member that ends may still hand over; None: nothing ends it."""

    def refusal(self, group: str, member: MemberId, address: str) -> BindRefusal | None:
        """Return why a member that asks from `address` may not be listed; None: it may."""


class RebalanceListener(Protocol):
    """Hears of rebalances that are over."""

    async def __call__(self, group: str, rebalance: RebalanceRecord) -> None: ...


class RescaleListener(Protocol):
    """Hears of each step of a change of the partition count.

    `pause_ms`: with the opening, for how long publishes have waited for a new partition, at most;
    None: with other steps, and where no broker knows.
    """

    async def __call__(
        self, event: RescaleEvent, change: RescaleRecord, *, pause_ms: int | None
    ) -> None: ...


class AddressBook(Protocol):
    """Knows where brokers are called, whatever the store says of it."""

    def __call__(self, broker: BrokerId, lease: LeaseRecord) -> str:
        """Return the URL of a broker; of one that is not known, a URL where nobody answers."""


class ViewListener(Protocol):
    """Hears of every look at the queue."""

    def __call__(self, view: QueueView) -> None: ...
