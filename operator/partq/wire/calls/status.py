"""A queue as it is, its last ten minutes, and what other members of a group would have."""

import msgspec
from msgspec import UNSET, UnsetType

from partq.core.views.rescale_status import RescaleStatus
from partq.wire.calls.answers import ErrorDetail
from partq.wire.calls.state import SessionCounts


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
    is_retired: bool | UnsetType = UNSET
    """True: it takes no messages any more, and is there until groups have read it; left out: it
    does."""
    scheduled: int | UnsetType = UNSET
    """How many batches wait beside its log until they are due; left out: none."""
    scheduled_bytes: int | UnsetType = UNSET
    next_due_ms: int | UnsetType = UNSET
    """When the first of them is due, by Redis's clock, in ms since 1970."""


class MemberStatus(msgspec.Struct):
    """A member of a group."""

    member: str
    partitions: int
    """How many of those that take messages it has; in a group of the type KeyShared: how many of
    their parts."""
    state: str
    retired: int | UnsetType = UNSET
    """How many it has besides that have no slots any more; left out: none."""
    node_id: int | UnsetType = UNSET
    """Which node it is, in a group with `assignment: Client`; left out: it has not said so."""
    unacked: int | UnsetType = UNSET
    """In a group of the type Shared or Session: messages that were sent to it and are not
    acknowledged, as far as brokers have told. Left out, as what follows: no broker that was
    asked knows the member, or the group has another type."""
    priority: int | UnsetType = UNSET
    """In a group of the type Shared: its priority, 0 is the highest."""
    credit: int | UnsetType = UNSET
    """In a group of the type Shared: how many more messages brokers may send to it now."""
    turns: int | UnsetType = UNSET
    """In a group of the type Shared: in how many partitions it has room and waits for its turn."""
    sessions: int | UnsetType = UNSET
    """In a group of the type Session: how many it has locked."""


class ProblemStatus(msgspec.Struct):
    """What keeps messages of a partition from a group."""

    code: str
    """`blocked`, `unserved`, `unassigned`, `unbound`, `paused`, `withheld`, `held`,
    `stalled` or `parked`; others may follow."""
    text: str
    """The same with what is known of it, for people."""


class PartHolder(msgspec.Struct):
    """Some parts of a partition that one member has, in a group of the type KeyShared."""

    member: str
    """Empty: none has them."""
    state: str
    parts: list[int]
    """Their numbers, rising."""


class GroupPartition(msgspec.Struct):
    """A partition of a group."""

    member: str
    """Empty: none has it, or it is cut into parts, or the group has the type Shared or Session:
    there every connected member may have messages of it, if its state is `Ready`."""
    epoch: int
    state: str
    """Of one that is cut into parts: that of the worst part."""
    cursor: int
    lag: int
    lag_ms: int
    dead_letters: int = 0
    """Dead letters that wait to be stored in the dead-letter queue; none of them is in the lag."""
    blocked: str = ""
    """Why nothing is delivered to the group here, as the owner says: dead letters are not
    stored, or the log does not hold the message that comes next. Empty: nothing stops it."""
    parked: str = ""
    """Why dead letters wait here while deliveries continue; empty: none do."""
    redeliveries: int = 0
    """How often messages that are not acknowledged yet were delivered again, in all."""
    is_withheld: bool = False
    """The member's application has paused the partition (`consumer.pause`): nothing is delivered to
    it here until it resumes."""
    gated_by: str | UnsetType = UNSET
    """Which older messages the group has to do with in other partitions before anything is
    delivered here, after a change of the partition count; left out: none."""
    delayed: int = 0
    """How many messages wait for the end of their nack delay, until they are redelivered."""
    next_redelivery_ms: int = 0
    """How long the first of them still waits; 0: none waits, or it is due."""
    parked_keys: int | UnsetType = UNSET
    """How many keys wait, as a message of theirs was given back; left out: none is known to."""
    blocked_keys: int | UnsetType = UNSET
    """How many of them wait until they are released (`partq keys release`), as a message failed too
    often; left out: none is known to."""
    quarantined_keys: int | UnsetType = UNSET
    """How many of them make dead letters of all their messages, until they are released; left out:
    none is known to."""
    lowest_parked: int | UnsetType = UNSET
    """The lowest offset of these keys that waits; left out: none is known."""
    stands_still: str | UnsetType = UNSET
    """In a group of order Key: why nothing new is sent; left out: it is."""
    parts: list[PartHolder] | UnsetType = UNSET
    """Which members have its parts; left out: the group's type is not KeyShared."""
    order_waits: str | UnsetType = UNSET
    """Why the group's order is not in effect here yet; left out: it is."""
    sessions: SessionCounts | UnsetType = UNSET
    """How many sessions there are, and how many accepts wait for one at its broker, whatever the
    partition; left out: the group's type is not Session, or nobody has told."""
    problems: list[ProblemStatus] = []
    """The worst first; a paused or parked partition may have others, too. Empty: none is known."""


def counts_of(row: GroupPartition) -> list[tuple[str, int]]:
    """Return the members that have a partition, each with how many of its parts, or 1."""
    if row.parts is UNSET:
        return [(row.member, 1)] if row.member else []
    return [(each.member, len(each.parts)) for each in row.parts if each.member]


def holders_of(row: GroupPartition) -> str:
    """Return the members of a partition in words; empty: some part of it has none."""
    if row.parts is UNSET:
        return row.member
    names = [each.member for each in row.parts]
    return ", ".join(sorted(set(names))) if all(names) else ""


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
    assignment: str = ""
    """`Server` or `Client`: which side decides which member has which partition."""
    order_waits_for: list[str] | UnsetType = UNSET
    """Brokers that do not know the group's `nack.order`, which takes effect when they are gone;
    until then it is Ordered. Left out: it is in effect."""


class QueueTotals(msgspec.Struct):
    """The sums over all partitions."""

    partitions: int
    messages: int
    bytes: int
    audit_bytes: int = 0
    """Of the audit record, which waits for its archive."""
    retained_bytes: int = 0
    """Of messages that all groups have acknowledged; they are part of `bytes`."""
    known_ids: int = 0
    """Ids of messages that partitions know, as of the last looks of their owners."""


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
    rescale: RescaleStatus | UnsetType = UNSET
    """The latest change of the number of partitions; left out: there has been none, and none is
    wanted."""


class Waits(msgspec.Struct):
    """How long messages have waited in the last ten minutes."""

    p50_ms: float | None = None
    """Half of them no longer than this; null: none is counted. Up to 9 % too high."""
    p99_ms: float | None = None
    counts: list[int] = []
    """How many are in each range: up to 0.5 ms, then each range to the eighth root of 2 times the
    one before."""
    step_p50_ms: list[float | None] = []
    """The same step by step, the oldest first."""
    step_p99_ms: list[float | None] = []
    step_counts: list[list[int]] | UnsetType = UNSET
    """For a broker that asks, in place of the others: of each step the number of its first range
    that has some, and how many are in each range from there on."""


class GroupRates(msgspec.Struct):
    """A consumer group, step by step, the oldest first; null: no broker has counted."""

    delivered: list[int | None]
    """Messages sent in the step, redeliveries among them."""
    lag: list[int | None]
    lag_ms: list[int | None]
    """How long the oldest message that is not acknowledged was stored."""
    delivery: Waits
    """From the storing of messages until they were sent the first time."""


class RatesAnswer(msgspec.Struct):
    """The last ten minutes of a queue, step by step, the oldest first."""

    queue: str
    namespace: str
    step_ms: int
    """Length of a step."""
    accepted: list[int | None]
    """Messages that passed the checks of a publish in the step; null: no broker has counted."""
    publish: Waits
    """From the arrival of batches until they were stored."""
    groups: dict[str, GroupRates]
    unavailable: dict[str, ErrorDetail] = {}
    """Brokers that have not answered, and so are missing in the sums."""


class PlannedMove(msgspec.Struct):
    """A partition that would move."""

    partition: str
    source: str | None = msgspec.field(name="from")
    """Its member now; null: none."""
    target: str | None = msgspec.field(name="to")
    """Null: no member."""
    may_wait: bool
    """It moves for balance, and the disruption budget can hold it back."""
    is_retired: bool | UnsetType = UNSET
    """True: it has no slots, and moves with its member alone; left out: it takes messages."""


class MemberCounts(msgspec.Struct):
    """How many of the partitions that take messages a member has."""

    before: int
    after: int


class PlanForecast(msgspec.Struct):
    """What would move in a group if its members changed; nothing has been changed."""

    group: str
    moved: int
    """Partitions that would leave a member."""
    assigned: int
    """Partitions that would get their first member."""
    paused_at_once: int
    """At most so many are handed over at the same time."""
    moves: list[PlannedMove]
    members: dict[str, MemberCounts]
    is_paused: bool
    """Rebalancing is paused: nothing moves for balance."""
    is_settled: bool
    """False: members join, or a lost one is waited for: until then nothing moves for balance."""
    estimate_ms: int | None
    """Time for all moves, by the pauses of earlier ones; null: none is recorded."""
    estimated_from: int
    """How many earlier moves that are."""
    parts: int | UnsetType = UNSET
    """How many parts each partition has: numbers and moves are those of parts. Left out: the
    group's type is not KeyShared."""


class RescaledGroup(msgspec.Struct):
    """What a change would do to a consumer group."""

    in_flight: int
    """Messages that are delivered and not acknowledged, in partitions that lose slots."""
    lag: int
    """Messages that it has not acknowledged there: these it gets before those of new partitions."""
    hold_ms: int | None
    """How long that takes, as fast as it was in the last ten minutes; null: not known, as also
    where keys are `blocked`."""
    moved: int
    """Partitions that would go to another member."""
    assigned: int
    """New partitions that would get a member."""
    members: dict[str, MemberCounts]
    blocked: dict[str, list[int]] | UnsetType = UNSET
    """Partition that loses slots → slots that are blocked there, 100 at most: new partitions wait
    until they are released. Left out: none is."""


class RescalePlan(msgspec.Struct):
    """What a change of the number of partitions does, or would do."""

    queue: str
    namespace: str
    from_count: int
    to_count: int
    generation: int
    """The number of the change, and the generation of its new partitions."""
    moved_percent: float
    """How much of the slots, and so about how much of the keys, gets another index."""
    created: list[str]
    """The new partitions."""
    retired: list[str]
    """Partitions that take no messages any more."""
    most_predecessors: int
    """From how many partitions one of the new ones has its slots: it waits for the slowest."""
    groups: dict[str, RescaledGroup]
    store_bytes: int
    """About how much memory of Redis the empty new partitions need."""
    waits_for: list[str]
    """What has to happen before it begins, or goes on; empty: nothing is known."""
    remarks: list[str]
    """What an administrator should know of it."""
    is_wanted: bool
    """The queue is to have this number: nothing more has to be done for that."""
    command: str | UnsetType = UNSET
    """On Kubernetes: the command that changes it. Left out: this call does."""
    rescale: RescaleStatus | UnsetType = UNSET
    """The latest change; left out: there has been none, and none is wanted."""
