"""HTTP answers: the JSON of a broker, as types that describe and check it."""

from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec import UNSET as UNSET  # brokers and clients look for it in what they answer and read
from msgspec import UnsetType as UnsetType

from partq.wire.layout_record import LineageForm, RangesForm, TimesForm

Struct = msgspec.Struct
"""What every answer in JSON is one of."""


class ErrorDetail(msgspec.Struct):
    """Why a call, or a part of it, was refused."""

    code: str
    message: str
    retry_after_ms: int | UnsetType = UNSET
    due: int | UnsetType = UNSET
    """Of `out_of_sequence` and `resend_from`: the number that comes next."""


class Refusal(msgspec.Struct):
    """The body of every answer that is an error."""

    error: ErrorDetail


class Health(msgspec.Struct):
    """Whether the process can continue by itself."""

    status: str
    """`ok`, or what only a restart helps against."""
    broker: str


class Readiness(msgspec.Struct):
    """Whether the broker serves."""

    status: str
    has_lease: bool
    partitions: int


class LayoutGeneration(msgspec.Struct):
    """One generation of the layout."""

    generation: int
    partitions: int


class BrokerUrl(msgspec.Struct):
    """A living broker."""

    broker: str
    url: str


class Limits(msgspec.Struct):
    """What a client must keep to."""

    max_message_bytes: int
    max_unacked_per_flow: int


class LayoutAnswer(msgspec.Struct):
    """Partitions, brokers and owners."""

    queue: str
    namespace: str
    uid: str
    generations: list[LayoutGeneration]
    brokers: list[BrokerUrl]
    owners: dict[str, str]
    limits: Limits
    keyless_policy: str
    groups: list[str]
    client_assigned: list[str] | UnsetType = UNSET
    """Those of the groups whose members choose their partitions; left out: none does."""
    generation: int | UnsetType = UNSET
    """Of the last change of the partition count; left out, with the fields below: there was none.
    After one `generations` is empty: a client of an earlier version must not go on."""
    table: RangesForm | UnsetType = UNSET
    """The partitions that take messages, each with the slots that it takes."""
    lineage: LineageForm | UnsetType = UNSET
    """Partitions, each with its predecessors, and the slots that came from each: a group gets its
    messages when it has done with those of the predecessors."""
    retired: TimesForm | UnsetType = UNSET
    """Partitions that take no more messages and are still read, each with the time in ms since the
    epoch of the change that has ended them."""
    counts: dict[int, int] | UnsetType = UNSET
    """Generation of each table that was in force → its partition count. It leads to the table: so
    producers with fixed numbers know which slots a partition had when a number was counted."""
    features: list[str] | UnsetType = UNSET
    """What the broker that answers can do and others may not; left out: nothing."""
    knows_ids: bool | UnsetType = UNSET
    """The queue has `duplicateDetection`: a message without a key goes where its id belongs."""


class ProducerOutline(msgspec.Struct):
    """What the last batch of a producer looks like, as far as a broker sees it."""

    first: int
    """The number of its first message."""
    count: int
    crc32c: int
    """Over the slot and the size of each message."""


class ProducerDue(msgspec.Struct, omit_defaults=True):
    """The next number of a producer, by partition."""

    due: dict[str, int]
    unavailable: list[str]
    outlines: dict[str, ProducerOutline] = {}
    """If asked for: by partition, where the last batch is still stored."""
    layouts: dict[str, int] = {}
    """By partition: the last change of the partition count that took slots away from it, or else
    that made it. Left out where that is 1 for all."""
    generation: int = 0
    """If earlier ones are asked for: that of the layout by which they were looked up."""
    earlier: dict[str, dict[int, int]] = {}
    """If asked for, of fixed numbers: by partition and layout, what was due when the partition got
    another layout, or was removed; where nothing was stored, it is left out."""


class Placed(msgspec.Struct, omit_defaults=True):
    """Where a message is stored."""

    partition: str
    offset: int | None
    """None: a repeat of a numbered message, so long ago that its place is forgotten."""
    is_duplicate: bool = False
    """True: it was stored before, under the same number."""
    scheduled: str | UnsetType = UNSET
    """The id under which it waits until it is due, or has waited; left out: it is stored."""
    due_ms: int | UnsetType = UNSET
    """When it is due, by Redis's clock, in ms since 1970; left out of a duplicate."""


class PublishResult(msgspec.Struct):
    """What became of one message of an array: its place, or an error."""

    partition: str | UnsetType = UNSET
    offset: int | UnsetType | None = UNSET
    is_duplicate: bool | UnsetType = UNSET
    scheduled: str | UnsetType = UNSET
    due_ms: int | UnsetType = UNSET
    error: ErrorDetail | UnsetType = UNSET


class PublishResults(msgspec.Struct):
    """One result per message, in the order of the array."""

    results: list[PublishResult]


class MessageContent(msgspec.Struct, kw_only=True):
    """What a message holds; with `error` in the place of all when it is undecodable."""

    key: str | UnsetType | None = UNSET
    value: str | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    event_time_ms: int | UnsetType = UNSET
    error: ErrorDetail | UnsetType = UNSET


class PulledMessage(MessageContent):
    """A message with its token; with `error` in the place of its content when it is undecodable."""

    partition: str
    broker_epoch: int
    epoch: int
    delivery: int
    offset: int
    publish_time_ms: int
    append_broker_epoch: int
    cause: str
    redeliveries: int
    receipt: str
    """All that an ack or a nack of the message needs; opaque."""
    producer: str | UnsetType = UNSET
    """Left out with `sequence`: published without numbers, or stored by an earlier version."""
    sequence: int | UnsetType = UNSET


class PullAnswer(msgspec.Struct):
    """Messages for a member, and what it holds."""

    answer: int
    flow: int
    lease_ms: int
    messages: list[PulledMessage]
    held: list[str]
    paused: list[str]
    others: list[str]
    answers: dict[str, int] | UnsetType = UNSET
    """The answer of each broker whose messages are here; left out without `all_brokers`."""
    failed: dict[str, ErrorDetail] | UnsetType = UNSET
    """Why brokers gave none; left out without `all_brokers`."""


class ItemResult(msgspec.Struct):
    """Empty when the item was done."""

    error: ErrorDetail | UnsetType = UNSET


class ItemResults(msgspec.Struct):
    """One result per item, in their order."""

    results: list[ItemResult]


class NackResult(ItemResult):
    """What a nack came to."""

    rewound_from: int | UnsetType = UNSET
    """Everything of the partition from this offset on is redelivered."""


class NackResults(msgspec.Struct):
    """One result per nack, in their order."""

    results: list[NackResult]


class Left(msgspec.Struct):
    """What a member that leaves still holds."""

    held: list[str]
    failed: dict[str, ErrorDetail] | UnsetType = UNSET
    """Why brokers do not know of it; left out where one flow leaves."""


class Alive(msgspec.Struct):
    """For how long a flow is kept without another sign of life."""

    lease_ms: int


class HeldPartition(msgspec.Struct):
    """A partition that a member holds."""

    in_flight: int
    state: str


class MemberAnswer(msgspec.Struct):
    """What a member holds of the partitions of a broker."""

    owned: list[str]
    held: dict[str, HeldPartition]
    is_bound: bool
    is_leaving: bool
    is_known: bool
    """It is bound or holds something here, or the group lists it or has refused it."""


class PartitionResult(msgspec.Struct):
    """What became of one partition of a call."""

    partition: str
    error: ErrorDetail | UnsetType = UNSET


class PartitionResults(msgspec.Struct):
    """One result per partition, in their order."""

    results: list[PartitionResult]


class ClaimResult(PartitionResult):
    """A partition that the broker owns now."""

    broker_epoch: int | UnsetType = UNSET


class ClaimResults(msgspec.Struct):
    """One result per partition, in their order."""

    results: list[ClaimResult]


class DrainResult(PartitionResult):
    """How far a partition is drained."""

    in_flight: int | UnsetType = UNSET
    is_drained: bool | UnsetType = UNSET
    last_delivered: int | UnsetType = UNSET


class DrainResults(msgspec.Struct):
    """One result per partition, in their order."""

    results: list[DrainResult]


class CommitResult(PartitionResult):
    """Whose a partition is now."""

    epoch: int | UnsetType = UNSET
    was_forced: bool | UnsetType = UNSET


class CommitResults(msgspec.Struct):
    """One result per partition, in their order."""

    results: list[CommitResult]


Result = TypeVar("Result")


class PartitionAnswer(Protocol):
    """What is said of one partition, or the error that its call failed with."""

    error: ErrorDetail | UnsetType


class ByItem(msgspec.Struct, Generic[Result]):
    """One result per item, in their order, as one broker reads it of another."""

    results: list[Result]


class ByPartition(msgspec.Struct, Generic[Result]):
    """One result per partition, by its name, as one broker reads it of another."""

    partitions: dict[str, Result]


class ResetResult(msgspec.Struct):
    """Where a group's cursor in a partition was, and is or would be; or why it was not moved."""

    member: str | UnsetType = UNSET
    is_bound: bool | UnsetType = UNSET
    members: list[str] | UnsetType = UNSET
    """Those that are connected and have parts of it, in a group of type KeyShared."""
    cursor: int | UnsetType = UNSET
    to: int | UnsetType = UNSET
    wanted: int | UnsetType = UNSET
    first: int | UnsetType = UNSET
    end: int | UnsetType = UNSET
    epoch: int | UnsetType = UNSET
    """Of the group in the partition; each bind, handoff and reset has a higher one."""
    error: ErrorDetail | UnsetType = UNSET


class ResetResults(msgspec.Struct):
    """One result per partition, by its name."""

    partitions: dict[str, ResetResult]


class DeadLetterAnswer(msgspec.Struct):
    """Where a dead letter is stored."""

    is_stored_before: bool
    """It was stored under this number by an earlier call."""
    offset: int
    """-1: stored before, and its place is forgotten."""


class ExpiryAnswer(msgspec.Struct):
    """Whether messages expire."""

    is_suspended: bool
    """They do not, because Redis's clock has jumped."""
