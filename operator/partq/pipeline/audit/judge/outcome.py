"""What the judgement of one partition comes to, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from partq.pipeline.audit.judge.pace import PaceCounts
from partq.pipeline.audit.judge.recorded_changes import RecordedChanges

MAX_OFFSET = 2**63 - 1


class Redelivered(NamedTuple):
    """Messages that a group got again: the columns of `schema.DUPLICATES`."""

    partition: str
    group: str
    cause: str
    messages: int
    event: str | None = None
    event_sequence: int | None = None
    event_ms: int | None = None
    attempt: int | None = None
    broker: str | None = None
    member: str | None = None
    target: str | None = None


@dataclass(slots=True)
class Handoff:
    """An attempt to hand a partition over: the columns of `schema.HANDOFFS`."""

    partition: str
    group: str
    attempt: int
    source: str | None = None
    target: str | None = None
    epoch: int | None = None
    paused_ms: int | None = None
    drained_ms: int | None = None
    ended_ms: int | None = None
    outcome: str = ""
    cause: str | None = None
    drain_cause: str | None = None
    sequence: int = 0
    messages_cut: int = 0
    keys_continued: int | None = None
    paused_at: int | None = None
    """Line of the pause; not a column."""
    ended_at: int | None = None
    """Line of its end; not a column."""

    @property
    def kind(self) -> str:
        """`outcome`, but `assignment` of what nobody held, and `release` to nobody."""
        if self.outcome != "commit":
            return self.outcome
        if not self.source:
            return "assignment"
        return "commit" if self.target else "release"

    @property
    def is_forced(self) -> bool:
        """Whether it was taken from a member, for a cause."""
        return bool(self.cause and self.source)

    @property
    def pause_ms(self) -> int | None:
        """How long the partition was paused; None: it was not, or is still."""
        if self.ended_ms is None or self.paused_ms is None:
            return None
        return self.ended_ms - self.paused_ms


class OwnedRange(NamedTuple):
    """Offsets that were acknowledged by one owner of a group."""

    first: int
    stop: int
    segment: int
    group: str
    commit_at: int
    """Line of the commit that made it the owner; -1: none is recorded."""


class PublishedRange(NamedTuple):
    """Offsets that were published under one broker epoch."""

    first: int
    stop: int
    broker_epoch: int


class RecordHead(NamedTuple):
    """The last group of a partition's record."""

    sequence: int
    chain: str
    """The hash over this group and all before it."""


class RecordedBatch(NamedTuple):
    """A batch that was stored, by its `publish`."""

    first: int
    stop: int
    append_broker_epoch: int
    sequence: int
    at_ms: int
    """When it was stored, by Redis's time."""
    content_crc: int
    """-1: not recorded."""
    slots: bytes
    """u16, little-endian, of each message."""


class UnrecordedRange(NamedTuple):
    """Offsets that were stored while the record was off."""

    first: int
    stop: int
    sequence: int
    """The group of the record behind it, or the last one."""
    at_ms: int


@dataclass(slots=True)
class RecordedLog:
    """What the record says of the log: the messages are compared with it."""

    partition: str
    published: Sequence[PublishedRange] = ()
    """Ranges of one broker epoch each; they overlap where offsets were published twice."""
    areas: Sequence[tuple[int, int]] = ()
    """Between these offsets, the record has each publishing."""
    unrecorded: Sequence[UnrecordedRange] = ()
    """What was stored while the record was off."""
    stop: int | None = None
    """The end of the log, as far as the record tells; None: nothing tells it."""
    batches: Sequence[RecordedBatch] = ()
    """All that was stored, for the comparison with what is archived of it."""
    owned: Sequence[OwnedRange] = ()
    """What each owner acknowledged, of groups that had several."""
    dropped: frozenset[tuple[int, str]] = frozenset()
    """Sequence and chain of groups that do not count."""


@dataclass(slots=True)
class Totals:
    """How much there was."""

    records: int = 0
    published: int = 0
    delivered: int = 0
    acknowledged: int = 0
    dead_lettered: int = 0
    expired: int = 0
    from_ms: int | None = None
    until_ms: int | None = None


@dataclass(slots=True)
class GroupTotals:
    """What a group has done with the messages that were published in its time.

    Each message counts once, as it stands at the end of the record: `published` is the sum of the
    other numbers.
    """

    published: int = 0
    acknowledged: int = 0
    otherwise_done: int = 0
    """Dead-lettered, expired, or passed over by a reset."""
    done_before: int = 0
    """Published before the group began."""
    not_known: int = 0
    """Not done with where the record has a gap."""
    lag: int = 0
    """Not done with at the end of the record."""

    def add(self, other: "GroupTotals") -> None:
        """Add the numbers of another partition, or of another part of a record."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(slots=True)
class HolderSpell:
    """A member held the partition, or nobody ("") did."""

    member: str
    from_ms: int
    """Its first sign of life; until there is one: when it was given the partition."""
    seen_ms: int | None = None
    """Its last sign of life: a bind, an ack, messages given back, or a drain; None: none."""


class DeliveryStall(NamedTuple):
    """For so long nothing of a partition was delivered to a group, while the group had lag."""

    partition: str
    group: str
    from_ms: int
    until_ms: int
    member: str
    """The holder of the partition when it began; "": nobody."""
    successor: str
    """The member whose delivery ended it; "": it ended as the lag did, or the record."""
    acknowledged: int
    """Messages that were acknowledged meanwhile."""
    is_open: bool
    """It lasted until the end of the record, or to a gap in it."""

    @property
    def length_ms(self) -> int:
        """How long it was."""
        return self.until_ms - self.from_ms


@dataclass(slots=True)
class PartitionOutcome:
    """All that the record of a partition comes to, beside findings and duplicates."""

    partition: str
    totals: Totals = field(default_factory=Totals)
    pace: PaceCounts = field(default_factory=PaceCounts)
    holders: Mapping[str, Sequence[HolderSpell]] = field(default_factory=dict)
    """Group → the first holders of the partition."""
    stalls: Sequence[DeliveryStall] = ()
    """The longest one of each group."""
    groups: Mapping[str, GroupTotals] = field(default_factory=dict)
    """Groups that were not removed → what they have done."""
    claims: Sequence[tuple[int, str]] = ()
    """When the first brokers claimed it, and which."""
    handoffs: Sequence[Handoff] = ()
    head: RecordHead | None = None
    """The end of its chain; None: there is no record."""
    log: RecordedLog | None = None
    changes: RecordedChanges | None = None
    """What it says of changes of the partition count."""
