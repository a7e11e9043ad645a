"""What callers of several rooms send: the fields of bodies, headers and queries, with bounds."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from partq.core.clocks.time_to_live import MAX_TTL_MS
from partq.core.cursor.redelivery_rules import MAX_NACK_DELAY_MS
from partq.core.model import MAX_PRIORITY, SLOT_COUNT
from partq.core.numbering.message_ids import MAX_ID_CHARS
from partq.core.numbering.scheduled_ids import MAX_AHEAD_MS
from partq.core.parts.declared_ranges import MAX_RANGES
from partq.core.producer_series import MAX_EXACT_INTEGER
from partq.core.rescale.resets import RESET_ID
from partq.core.slot_table import MAX_PARTITIONS
from partq.wire.batch import MAX_EVENT_TIME_MS
from partq.wire.partition_key import KEY_NAMES

MAX_PULL_MESSAGES = 10_000
MAX_PULL_WAIT_MS = 20_000
MAX_BROKERS = 1000
"""The most brokers that a pull may name."""
MAX_RECEIPTS = 10_000
"""The most receipts of a call."""
MAX_DRAIN_WAIT_MS = 10_000
MAX_PLANNED_MEMBERS = 1000


def _described_range(low: int, high: int) -> msgspec.Meta:
    """Describe bounds in `/openapi.json`; decoding does not check them."""
    # The call checks them, as its error can say more: `publish_http.py`, `request_partitioner.py`,
    # `operations/pull/pulls.py`, and `drain` in `operations/coordinator_calls.py`.
    return msgspec.Meta(extra_json_schema={"minimum": low, "maximum": high})


PartitionText = Annotated[
    str,
    msgspec.Meta(
        description="`GENERATION.INDEX`",
        extra_json_schema={"pattern": r"^[0-9]{1,9}\.[0-9]{1,9}$", "examples": ["1.0"]},
    ),
]
MAX_NATURAL = 2**53
"""Above every offset and time, and within what every language's JSON can hold."""
Natural = Annotated[int, msgspec.Meta(ge=0, le=MAX_NATURAL)]
Sequence = Annotated[
    int,
    msgspec.Meta(
        ge=0,
        le=MAX_EXACT_INTEGER,
        description="The number of a message among those of its key, from 0.",
    ),
]

DELIVER_AT = "Partq-Deliver-At-Ms"
DELIVER_AFTER = "Partq-Deliver-After-Ms"
ENQUEUE_TIME = "ScheduledEnqueueTimeUtc"
ID_NAME = "MessageId"
"""The header of a request that has the id of its message."""
MessageId = Annotated[
    str,
    msgspec.Meta(
        description="The id of a message, 1 to 128 characters.",
        extra_json_schema={"minLength": 1, "maxLength": MAX_ID_CHARS},
    ),
]
Receipts = Annotated[
    list[str],
    msgspec.Meta(
        description="The `receipt` of each message, as it was pulled.",
        extra_json_schema={"maxItems": MAX_RECEIPTS},  # the call checks it: that is a 413
    ),
]
MemberName = Annotated[str, msgspec.Meta(max_length=253)]
PauseTime = Annotated[int, msgspec.Meta(ge=-MAX_NATURAL, le=MAX_NATURAL)]
"""Its real bounds are those of each pause, which are told for its partition."""


class PublishBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One message."""

    key: str | None = None
    value: str | None = None
    value_base64: str | None = None
    headers: dict[str, str] | None = None
    event_time_ms: Annotated[int, _described_range(0, MAX_EVENT_TIME_MS)] = 0
    slot: Annotated[int, _described_range(0, SLOT_COUNT - 1)] | None = None
    """Set by a broker that forwards a keyless message, whose slot it has drawn."""
    sequence: Sequence | None = None
    """The message's number among those of its key, with the header Partq-Producer."""
    message_id: MessageId | None = None
    """By which a queue with `duplicateDetection` knows a repeat; consumers read it as a header."""


class PublishHeaders(msgspec.Struct):
    """Headers of a publish: the key of all its messages by any of its names; its numbers; its life.

    With numbers a publish can be repeated safely; messages are numbered per key, from 0.
    """

    session_id: str | None = msgspec.field(name=KEY_NAMES[0], default=None)
    partition_key: str | None = msgspec.field(name=KEY_NAMES[1], default=None)
    queue_partition_key: str | None = msgspec.field(name=KEY_NAMES[2], default=None)
    group_id: str | None = msgspec.field(name=KEY_NAMES[3], default=None)

    message_id: MessageId | None = msgspec.field(name=ID_NAME, default=None)
    producer: (
        Annotated[
            str,
            msgspec.Meta(
                min_length=1,
                max_length=128,
                description="The numbering producer: 1 to 128 printable characters.",
            ),
        ]
        | None
    ) = msgspec.field(name="Partq-Producer", default=None)
    sequence: Sequence | None = msgspec.field(name="Partq-Sequence", default=None)
    age_ms: (
        Annotated[
            int,
            msgspec.Meta(
                ge=1,
                le=MAX_TTL_MS,
                description="Of a repeat with numbers: how many ms ago it was first sent. Where "
                "its series may have been forgotten since, the answer is unknown_producer; without "
                "it number 0 begins the series again.",
            ),
        ]
        | None
    ) = msgspec.field(name="Partq-Age-Ms", default=None)
    deliver_at_ms: (
        Annotated[
            int,
            msgspec.Meta(
                ge=0,
                le=MAX_NATURAL,
                description="When the messages are to be delivered, in ms since 1970; one that is "
                "over: at once. At most 400 days ahead. One before 1973, but for 0, is refused: it "
                "is usually in seconds.",
            ),
        ]
        | None
    ) = msgspec.field(name=DELIVER_AT, default=None)
    deliver_after_ms: (
        Annotated[
            int,
            msgspec.Meta(
                ge=0,
                le=MAX_AHEAD_MS,
                description="How long the messages wait before they are delivered, in ms from when "
                "the broker has them.",
            ),
        ]
        | None
    ) = msgspec.field(name=DELIVER_AFTER, default=None)
    scheduled_enqueue_time: (
        Annotated[
            str,
            msgspec.Meta(
                max_length=40,
                description=f"As {DELIVER_AT}, as RFC 3339 has it: 2026-12-01T08:00:00Z.",
            ),
        ]
        | None
    ) = msgspec.field(name=ENQUEUE_TIME, default=None)
    ttl_ms: (
        Annotated[
            int,
            msgspec.Meta(
                ge=1,
                le=MAX_TTL_MS,
                description="How long the messages may wait to be delivered, in ms from when they "
                "are stored. Without it, and where it is longer: as long as the queue says.",
            ),
        ]
        | None
    ) = msgspec.field(name="Partq-TTL-Ms", default=None)


class PublishQuery(msgspec.Struct):
    """How the messages of a publish belong together."""

    atomic: Annotated[
        Literal["true", "false"],
        msgspec.Meta(
            description="true: all messages have one key, and one write stores them: all, or none. "
            "Then the answer is one error, or the places of all."
        ),
    ] = "false"


class StatusQuery(msgspec.Struct):
    """How old the status may be."""

    max_age_ms: Annotated[
        int,
        msgspec.Meta(ge=0, le=10_000, description="0: it is read for this call"),
    ] = 0


class RatesQuery(msgspec.Struct):
    """Which groups are asked for."""

    group: str | None = None
    """None: every group."""


class PlanQuery(msgspec.Struct):
    """For how many members to plan."""

    members: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            le=MAX_PLANNED_MEMBERS,
            description="If fewer than now, the members with the fewest partitions leave.",
        ),
    ]


class ProducerQuery(msgspec.Struct):
    """Which numbers of a producer are asked for."""

    key: str | None = None
    """None: those of a producer that numbers by partition."""
    outlines: Literal["true", "false"] = "false"
    """Whether to tell what its last batch of each partition looks like."""
    earlier: Literal["true", "false"] = "false"
    """Whether to tell what it has stored under earlier layouts of the partitions."""


class DeadLetterBody(msgspec.Struct, forbid_unknown_fields=True):
    """A dead letter of another queue."""

    partition: str
    producer: str
    """Names the sender, which numbers its letters."""
    number: int
    batch_base64: str
    """A batch of one message, as the protocol's page has it."""


class PullBody(msgspec.Struct, forbid_unknown_fields=True):
    """A pull."""

    member: str
    incarnation: str
    max_messages: Annotated[int, _described_range(1, MAX_PULL_MESSAGES)] = 100
    wait_ms: Annotated[int, _described_range(0, MAX_PULL_WAIT_MS)] = 1000
    last_answer: int | None = None
    priority: Annotated[int, _described_range(0, MAX_PRIORITY)] = 0
    """As of the call that binds the member."""
    ranges: Annotated[list[tuple[int, int]], msgspec.Meta(max_length=MAX_RANGES)] = []
    """The slots that the member wants where `hashRange` is `Sticky`, each pair from the first to
    the second, that one excluded; as of the call that binds it."""
    all_brokers: bool = False
    """Whether messages of the partitions of other brokers are wanted, too."""
    last_answers: Annotated[dict[str, int], msgspec.Meta(max_length=MAX_BROKERS)] = {}
    """With `all_brokers`: `answers` of the last answer, in the place of `last_answer`."""


class AckItem(msgspec.Struct, forbid_unknown_fields=True):
    """Acks of one partition, under one token: `upto`, `offsets`, or both."""

    partition: PartitionText
    broker_epoch: int
    epoch: int
    delivery: int = 0
    upto: Natural | None = None
    """Everything below it."""
    offsets: list[Natural] = []
    key: str | UnsetType = UNSET
    """Of the message, whose state changes with the ack: of one message alone."""
    state: str | UnsetType | None = UNSET
    """The new state of the key, in base64; null: it has none any more."""

    def __post_init__(self) -> None:
        """Refuse an ack that acknowledges nothing: its sender believes that it does."""
        if self.upto is None and not self.offsets:
            raise ValueError("got neither upto nor offsets, expected one of them, or both")
        _check_state(self.key, self.state)


class AckBody(msgspec.Struct, forbid_unknown_fields=True):
    """Acks of pulled messages: by `receipts` alone; or by `member`, `flow` and `acks`."""

    receipts: Receipts = []
    """Of any partitions and members of the group."""
    member: str | UnsetType = UNSET
    flow: int | UnsetType = UNSET
    acks: list[AckItem] | UnsetType = UNSET
    key: str | UnsetType = UNSET
    """Of the message of one receipt, whose state changes with the ack."""
    state: str | UnsetType | None = UNSET
    """The new state of the key, in base64; null: it has none any more."""

    def __post_init__(self) -> None:
        """Refuse what is neither the one nor the other."""
        _check_state(self.key, self.state)
        if self.key is not UNSET and len(self.receipts) != 1:
            raise ValueError(
                f"got a state and {len(self.receipts)} receipts, expected one: the message's own"
            )
        _check_shape(self.receipts, member=self.member, flow=self.flow, acks=self.acks)

    @property
    def of_flow(self) -> tuple[str, int, list[AckItem]] | None:
        """Its member, flow and acks; None: it has receipts."""
        if self.member is UNSET or self.flow is UNSET or self.acks is UNSET:
            return None
        return self.member, self.flow, self.acks


NackDelay = Annotated[int, msgspec.Meta(ge=0, le=MAX_NACK_DELAY_MS)] | None


class NackItem(msgspec.Struct, forbid_unknown_fields=True):
    """Messages of one partition that could not be processed, under one token."""

    partition: str
    broker_epoch: int
    epoch: int
    offsets: Annotated[list[Natural], msgspec.Meta(min_length=1)]
    delivery: int = 0
    delay_ms: NackDelay = None
    """How long they wait; null: as the group's rules say."""
    reason: str = ""
    """`undecodable`, or a code of the application, of at most 64 printable characters."""
    makes_dead_letters: bool = False
    """They become dead letters at once, and nothing is redelivered."""
    description: str = ""
    """A text of the application for the dead letters, of at most 1,024 characters."""


class NackBody(msgspec.Struct, forbid_unknown_fields=True):
    """Nacks of pulled messages: by `receipts`; or by `member`, `flow` and `nacks`."""

    receipts: Receipts = []
    """Of any partitions and members of the group; the fields below are for all of them."""
    delay_ms: NackDelay = None
    reason: str = ""
    makes_dead_letters: bool = False
    description: str = ""
    member: str | UnsetType = UNSET
    flow: int | UnsetType = UNSET
    nacks: list[NackItem] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Refuse what is neither the one nor the other."""
        _check_shape(self.receipts, member=self.member, flow=self.flow, nacks=self.nacks)
        is_default = (self.delay_ms, self.reason, self.description) == (None, "", "")
        if not self.receipts and not (is_default and not self.makes_dead_letters):
            raise ValueError(
                "got delay_ms, reason, makes_dead_letters or description beside nacks, expected "
                "them in each of the nacks"
            )

    @property
    def of_flow(self) -> tuple[str, int, list[NackItem]] | None:
        """Its member, flow and nacks; None: it has receipts."""
        if self.member is UNSET or self.flow is UNSET or self.nacks is UNSET:
            return None
        return self.member, self.flow, self.nacks


class InProgressBody(msgspec.Struct, forbid_unknown_fields=True):
    """Pulled messages whose application still works on them."""

    receipts: Annotated[Receipts, msgspec.Meta(min_length=1)]


def _check_state(key: str | UnsetType, state: str | UnsetType | None) -> None:
    """See that a state comes with its key."""
    if (key is UNSET) != (state is UNSET):
        got, missing = ("state", "key") if key is UNSET else ("key", "state")
        raise ValueError(f"got {got} without {missing}, expected both, or none of them")


def _check_shape(receipts: list[str], **fields: object) -> None:
    """See that a call has receipts, or all of the other fields."""
    given = [name for name, value in fields.items() if value is not UNSET]
    if len(given) != (0 if receipts else len(fields)):
        got = ", ".join([*(["receipts"] if receipts else []), *given]) or "no receipts"
        raise ValueError(f"got {got}, expected 1 or more receipts alone, or {', '.join(fields)}")


class AliveBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which flow lives, although it does not ping."""

    flow: Annotated[int, msgspec.Meta(ge=0, lt=10**18, description="as `Bound` named it")]
    incarnation: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    """As the flow was bound with: nobody else knows it."""


class LeaveQuery(msgspec.Struct):
    """Which flow of a member leaves; none named: those at all brokers."""

    flow: (
        Annotated[int, msgspec.Meta(ge=0, lt=10**18, description="as the pull answered it")] | None
    ) = None


class PartitionName(msgspec.Struct):
    """One partition, by its name."""

    partition: PartitionText


class DrainItem(PartitionName):
    """One partition of a handoff."""

    broker_epoch: Natural
    epoch: Natural
    attempt: Natural


class PauseItem(DrainItem):
    """A pause to begin or to renew."""

    lease_ms: PauseTime
    drain_ms: PauseTime


class CommitItem(DrainItem):
    """A commit; an empty source or target means none."""

    source: MemberName
    target: MemberName
    forced: str = msgspec.field(name="cause", default="")
    """Why it is forced, a word of `Forced`; empty: it is not."""


class Pauses(msgspec.Struct):
    """Pauses to begin or to renew."""

    pauses: list[PauseItem]


class Drains(msgspec.Struct):
    """Drains to wait for."""

    drains: list[DrainItem]
    wait_ms: Annotated[int, _described_range(0, MAX_DRAIN_WAIT_MS)] = 0


class Commits(msgspec.Struct):
    """Handoffs to commit."""

    commits: list[CommitItem]


class Cancels(msgspec.Struct):
    """Handoffs to cancel."""

    cancels: list[DrainItem]


class PartitionNames(msgspec.Struct):
    """Partitions to claim or to give up."""

    partitions: list[PartitionText]


class ResetBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Where a group is to continue: one of `to`, `at_ms` and `offset`."""

    to: Literal["earliest", "latest"] | None = None
    at_ms: Natural | None = None
    offset: Natural | None = None
    partitions: list[str] = []
    """Empty: all."""
    is_dry_run: bool = False
    is_forced: bool = False
    epochs: dict[str, Natural] | UnsetType = UNSET
    """By partition: the group's epoch there as a dry run reported it; where another one is recorded
    by now, nothing is moved. A partition that is not named is moved whatever its epoch is."""
    reset: Annotated[str, msgspec.Meta(pattern=RESET_ID)] | UnsetType = UNSET
    """Between brokers: of which reset of all partitions the call is a part."""
    births: dict[str, Natural] | UnsetType = UNSET
    """Between brokers: by partition, when the group that is meant began there; where another one of
    its name has begun since, nothing is moved."""
    clears_states: bool = False
    """The states of keys are removed; else the group goes on with them."""


class RescaleBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How many partitions a queue is to have, or what that would do is only shown."""

    partitions: Annotated[int, msgspec.Meta(ge=1, le=MAX_PARTITIONS)]
    is_dry_run: bool = False
