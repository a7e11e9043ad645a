"""The two resources as pydantic models: fields, defaults, bounds, descriptions.

What is not served yet is not in the schema. A rule that the schema language of old servers cannot
say stands twice: as `x-kubernetes-validations` for those that know them, and as a validator here,
for the embedded runtime and for the operator, which checks every resource again.
"""

import math
from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from partq.core.clocks.time_to_live import MAX_TTL_S
from partq.core.slot_table import MAX_PARTITIONS
from partq.resources.base import (
    Labels,
    Model,
    Name,
    ObjectName,
    QueueName,
    rule,
    rules,
)
from partq.resources.broker_limits import BrokerLimits
from partq.resources.dead_letters import DeadLetterPolicy
from partq.resources.key_shared import ORDER_RULE, PARTS_RULE, TYPE_RULE, USE_RULE, KeySharedPolicy
from partq.resources.rebalance import BALANCE_FIELDS, RebalanceOverrides, RebalanceSpec
from partq.resources.redelivery import (
    HELD_KEYS_RULE,
    KEY_BOUNDS_RULE,
    AckPolicy,
    NackPolicy,
    check_key_order,
)
from partq.resources.redis_place import Redis
from partq.resources.selector import Selector, Toleration
from partq.resources.sessions import SESSION_RULES, SessionPolicy, check_session
from partq.resources.shared import SHARED_RULES, check_shared

API_GROUP = "partq.dev"
API_VERSION = f"{API_GROUP}/v1alpha1"
_KIB, _MIB, _TIB = 2**10, 2**20, 2**40
MAX_MESSAGE_BYTES = 15 * _MIB
"""The most that `limits.maxMessageBytes` may be."""
INSTANT = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(\.[0-9]{1,6})?(Z|[-+][0-9]{2}:[0-9]{2})$"
)
INSTANT_RULE = "a time from 1970 on with a time zone, such as 2026-01-31T12:00:00Z"
_QUANTITY = r"^[0-9]+(\.[0-9]+)?([EPTGMk]i?|Ki|[mun]|[eE][0-9]+)?$"

_Quantity = Annotated[
    Annotated[int, Field(ge=0)] | Annotated[str, Field(max_length=32, pattern=_QUANTITY)],
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": _QUANTITY,
        }
    ),
]

Strategy = Literal["sticky", "range", "modulo", "failover"]
DeletionPolicy = Literal["Delete", "Retain"]


class Metadata(Model):
    """The part of a Kubernetes object's metadata that a person writes."""

    name: Name
    """Name, unique per kind and namespace."""
    namespace: Name = "default"
    """Namespace; without one: `default`."""
    labels: dict[str, str] = Field(default={})
    """Labels; partq does not read them."""
    annotations: dict[str, str] = Field(default={})
    """Annotations; on Kubernetes the operator reads those that begin with `partq.dev/`."""


class QueueMetadata(Metadata):
    """Metadata of a queue, whose name is a part of its brokers' names."""

    name: QueueName
    """Name, unique per namespace; at most 45 characters."""


class ComputeResources(Model):
    """Processor and memory of a container."""

    requests: Annotated[dict[str, _Quantity], Field(max_length=10)] = Field(default={})
    """What is set aside for each broker, such as `cpu` and `memory`."""
    limits: Annotated[dict[str, _Quantity], Field(max_length=10)] = Field(default={})
    """The most that a broker may use."""


class Brokers(Model):
    """The broker processes of a queue."""

    replicas: Annotated[int, Field(ge=1, le=64)] = 2
    """How many brokers share the partitions; any number of them but the last may be away."""
    resources: ComputeResources = Field(
        default=ComputeResources(
            requests={"cpu": "100m", "memory": "128Mi"}, limits={"memory": "1Gi"}
        ),
        json_schema_extra={"x-partq-whole-default": True},
    )
    """Processor and memory of each broker. If it is set, what it leaves out has no bound. The
    default limit is three times what a broker's buffers and calls may hold. A process in the
    embedded runtime has no bounds."""
    limits: BrokerLimits = BrokerLimits()
    """How much memory each broker gives to messages and calls, how many connections it has, and how
    long callers may take. On Kubernetes a change restarts the brokers, one after the other. Memory
    in `resources.limits` has to be about three times the bytes here. The embedded runtime passes
    it to its brokers when they start."""
    node_selector: Labels = Field(default={})
    """Labels that a node must have to run a broker."""
    tolerations: Annotated[list[Toleration], Field(max_length=20)] = Field(
        default=[], json_schema_extra={"x-kubernetes-list-type": "atomic"}
    )
    """Taints of nodes that brokers accept."""
    priority_class_name: ObjectName | None = None
    """The brokers' PriorityClass; left out: the cluster's default."""
    image_pull_secrets: Annotated[list[ObjectName], Field(max_length=10)] = Field(
        default=[], json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """Names of Secrets that open the registry of the brokers' image."""

    @model_validator(mode="after")
    def _limits_fit_memory(self) -> "Brokers":
        memory = self.resources.limits.get("memory")
        if memory is not None:
            self.limits.check_memory(memory)
        return self


class QueueLimits(Model):
    """What the brokers refuse or hold back."""

    max_message_bytes: Annotated[int, Field(ge=_KIB, le=MAX_MESSAGE_BYTES)] = 5 * _MIB
    """The largest message, encoded, with its key and headers; larger: `message_too_large`."""
    max_spool_bytes: Annotated[int, Field(ge=_MIB, le=1024 * _TIB)] | None = None
    """The most bytes that the queue stores, all partitions together; left out: no limit."""
    max_retained_bytes: Annotated[int, Field(ge=_MIB, le=1024 * _TIB)] | None = None
    """The most bytes that `retentionSeconds` keeps, all partitions together; left out: no limit."""
    max_unacked_per_flow: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """How many messages one connection of a consumer may hold that are not acknowledged."""


class DuplicateDetection(Model):
    """Ids of messages that are known for a time, so that a repeat is not stored."""

    window_seconds: Annotated[int, Field(ge=20, le=604_800)] = 600
    """For how long an id is known, from when a message with it was stored."""
    max_ids_per_partition: Annotated[int, Field(ge=1_000, le=10_000_000)] = 100_000
    """How many ids a partition knows; then messages with new ones are refused."""


class Auth(Model):
    """Which callers the brokers admit."""

    secret_name: ObjectName | None = None
    """A Secret whose entry `tokens.json` lists tokens, one with the role `admin` among them; left
    out: the operator makes `NAME-tokens` with one token per role and one per consumer group."""


class Tls(Model):
    """HTTPS at the brokers."""

    secret_name: ObjectName
    """A Secret of the queue's namespace with the entries `tls.crt`, `tls.key` and, unless public
    CAs signed it, `ca.crt`, as cert-manager writes it. The certificate is for the names of the
    client Service and of each broker."""


class PartitionsPolicy(Model):
    """How the number of partitions is changed, and within which bounds."""

    mode: Literal["Advise"] = "Advise"
    """Advise: people change it; `status.advice` suggests a number, and from an archive `partq
    pipeline advise`."""
    least: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] = Field(default=1, alias="min")
    """The lowest number that is taken."""
    most: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] = Field(
        default=MAX_PARTITIONS, alias="max"
    )
    """The highest number that is taken."""
    cooldown_seconds: Annotated[int, Field(ge=0, le=604_800)] = 3600
    """How long `status.advice` keeps a number before it suggests another one."""


class PartitionedQueueSpec(Model):
    """The desired state of a queue."""

    model_config = ConfigDict(
        json_schema_extra=rule(
            "!has(self.partitions) || !has(self.partitionsPolicy) || "
            "((!has(self.partitionsPolicy.min) || self.partitions >= self.partitionsPolicy.min) && "
            "(!has(self.partitionsPolicy.max) || self.partitions <= self.partitionsPolicy.max))",
            "partitions: expected a number within partitionsPolicy.min and max",
        )
    )

    partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] = 16
    """How many partitions share the keys; the most members of a group that can work at a time. A
    change moves as few keys as an even spread allows; each key's messages stay in order."""
    partitions_policy: PartitionsPolicy = PartitionsPolicy()
    """How the number of partitions is changed, and within which bounds."""
    keyless_policy: Literal["Random", "RoundRobin"] = "Random"
    """Which partition a message without a key goes to; both skip partitions without a broker."""
    brokers: Brokers = Brokers()
    """The broker processes."""
    rebalance: RebalanceSpec = RebalanceSpec()
    """When and how partitions move between the members of a group."""
    limits: QueueLimits = QueueLimits()
    """What the brokers refuse or hold back."""
    message_ttl_seconds: Annotated[float, Field(ge=1, le=MAX_TTL_S)] | None = Field(
        default=None, alias="messageTTLSeconds"
    )
    """How long a message may wait to be delivered; left out: without limit."""
    retention_seconds: Annotated[float, Field(ge=0, le=MAX_TTL_S)] = 0
    """How long messages stay stored that all groups have acknowledged; 0: not at all."""
    duplicate_detection: DuplicateDetection | None = None
    """Whether a message is dropped whose id is known; left out: an id is a header, nothing else."""
    dead_letter: DeadLetterPolicy = DeadLetterPolicy()
    """Where messages go that a group cannot process; a group may say otherwise."""
    redis: Redis | None = None
    """Where the queue is stored; left out: the operator's Redis. A queue does not move: after a
    change its messages stay where they are. The embedded runtime has its own Redis."""
    auth: Auth = Auth()
    """Which callers the brokers admit."""
    tls: Tls | None = None
    """HTTPS at the brokers, in the place of HTTP; left out: HTTP. The embedded runtime has HTTP."""
    audit: bool = False
    """Keep a record of what happens: every publish, delivery, acknowledgement and handoff, chained
    by hashes. Nothing but its archive frees it: without one it fills Redis."""
    deletion_policy: DeletionPolicy = "Delete"
    """Delete: the messages go with the resource. Retain: they stay in Redis."""

    @model_validator(mode="after")
    def _keeps_to_the_policy(self) -> "PartitionedQueueSpec":
        policy = self.partitions_policy
        if not policy.least <= self.partitions <= policy.most:
            raise ValueError(
                f"partitions: got {self.partitions}, expected {policy.least} to {policy.most}, "
                "which partitionsPolicy has as min and max"
            )
        return self


class ConsumerGroupSpec(Model):
    """The desired state of a consumer group."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.type == 'Partitioned' || !has(self.strategy) || "
                "(self.strategy == 'failover' && self.type in ['Exclusive', 'Failover'])",
                "strategy: expected 'failover' for the types Exclusive and Failover, and none for "
                "KeyShared, which has keyShared.hashRange, and for Session and Shared",
            ),
            (
                "self.assignment == 'Server' || "
                "(self.type == 'Partitioned' && !has(self.strategy))",
                "assignment: expected 'Server' for other types than Partitioned, and with a "
                "strategy: with 'Client' the members choose their partitions",
            ),
            HELD_KEYS_RULE,
            KEY_BOUNDS_RULE,
            (
                "self.assignment == 'Server' || !has(self.rebalance) || "
                + " && ".join(f"!has(self.rebalance.{name})" for name in BALANCE_FIELDS),
                "rebalance: with the assignment 'Client' nothing moves for balance and nobody "
                f"stands by: leave out {', '.join(BALANCE_FIELDS)}",
            ),
            (
                "!has(self.start) || !has(self.startAt)",
                "expected start or startAt, not both: they say where a new group begins",
            ),
            (
                "has(self.startAt) == has(oldSelf.startAt)",
                "startAt counts when the group is made, not later",
            ),
            USE_RULE,
            ORDER_RULE,
            *SHARED_RULES,
            TYPE_RULE,
            PARTS_RULE,
            *SESSION_RULES,
        )
    )

    queue: QueueName = Field(
        json_schema_extra=rule("self == oldSelf", "a group cannot move to another queue")
    )
    """The PartitionedQueue that the group consumes, in the same namespace."""
    selector: Selector | None = Field(default=None, json_schema_extra={"x-partq-required": True})
    """Which pods of the namespace may be members. Needed on Kubernetes; the embedded runtime, which
    has no pods, does not read it."""
    type: Literal["Partitioned", "Exclusive", "Failover", "KeyShared", "Session", "Shared"] = (
        "Partitioned"
    )
    """Partitioned: members share the partitions. Failover: each partition has a master, the other
    members stand by in the order of their names. Exclusive: one member has all partitions.
    KeyShared: members share the keys of each partition. Session: members lock sessions, the keys of
    messages, and nobody else gets messages of them. Shared: any member gets any message, in no
    order. These three cannot be changed later."""
    strategy: Strategy | None = None
    """How partitions are assigned; left out: `sticky`, or `failover` for Exclusive and Failover."""
    key_shared: KeySharedPolicy | None = None
    """In a group of the type KeyShared: how members share the keys of partitions."""
    session: SessionPolicy | None = None
    """In a group of the type Session: for how long members lock sessions, and their states."""
    assignment: Literal["Server", "Client"] = "Server"
    """Server: the operator assigns the partitions to the members. Client: members register the
    partitions that they choose; the operator only takes them from members that are lost."""
    rebalance: RebalanceOverrides = RebalanceOverrides()
    """What the group does otherwise than its queue says."""
    ack: AckPolicy = AckPolicy()
    """How messages are acknowledged, and what happens to those that are not in time."""
    nack: NackPolicy = NackPolicy()
    """What becomes of messages that the application gives back."""
    dead_letter: DeadLetterPolicy | None = None
    """Where messages go that the group cannot process; left out: as the queue says."""
    start: Literal["Earliest", "Latest"] | None = Field(
        default=None,
        json_schema_extra=rule("self == oldSelf", "start counts when the group is made, not later"),
    )
    """Where a new group begins: the oldest message stored, or what is published from then on. Left
    out: `Earliest`, unless there is `startAt`."""
    start_at: Annotated[str, Field(max_length=40, pattern=INSTANT)] | None = Field(
        default=None,
        json_schema_extra=rule(
            "self == oldSelf", "startAt counts when the group is made, not later"
        ),
    )
    """Where a new group begins, in the place of `start`: the first message that was stored at this
    time or later, by Redis's clock; RFC 3339 with a time zone, from 1970 on."""

    @field_validator("start_at", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        """Take a time without quotes, which YAML reads as one."""
        return value.isoformat() if isinstance(value, date) else value

    @model_validator(mode="after")
    def _begins_at_one_place(self) -> "ConsumerGroupSpec":
        if self.start is not None and self.start_at is not None:
            raise ValueError(
                f"start: got {self.start!r} and startAt {self.start_at!r}, expected one of them: "
                "both say where a new group begins; leave one out"
            )
        try:
            is_known = self.start_at_ms is None or self.start_at_ms >= 0
        except ValueError:
            is_known = False
        if not is_known:
            raise ValueError(f"startAt: got {self.start_at!r}, expected {INSTANT_RULE}")
        return self

    @model_validator(mode="after")
    def _strategy_fits_type(self) -> "ConsumerGroupSpec":
        if self.type == "KeyShared" and self.strategy is not None:
            raise ValueError(
                f"strategy: got {self.strategy!r} with the type 'KeyShared', expected it to be "
                "left out: keyShared.hashRange says how keys are shared out"
            )
        if self.type == "Session" and self.strategy is not None:
            raise ValueError(
                f"strategy: got {self.strategy!r} with the type 'Session', expected it to be left "
                "out: each member may take any session"
            )
        check_shared(self.type, self.strategy, self.ack, self.nack, self.rebalance)
        if self.type != "Partitioned" and self.strategy not in (None, "failover"):
            raise ValueError(
                f"strategy: got {self.strategy!r}, expected 'failover' for the type {self.type!r}"
            )
        return self

    @model_validator(mode="after")
    def _shares_keys_by_type(self) -> "ConsumerGroupSpec":
        if self.type != "KeyShared" and self.key_shared is not None:
            raise ValueError(
                f"keyShared: got it with the type {self.type!r}, expected it to be left out: only "
                "in a group of the type KeyShared members share the keys of a partition"
            )
        if self.type == "KeyShared" and self.nack.order == "Free":
            raise ValueError(
                "nack.order: got 'Free' with the type 'KeyShared', expected 'Key', or nothing: in "
                "such a group a message that is given back holds up its key, and no other one"
            )
        return self

    @model_validator(mode="after")
    def _locks_sessions_by_type(self) -> "ConsumerGroupSpec":
        check_session(self.type, self.session, self.ack, self.nack, self.rebalance)
        return self

    @model_validator(mode="after")
    def _keys_wait_in_order_key(self) -> "ConsumerGroupSpec":
        orders = {"KeyShared": "Key", "Session": "Key", "Shared": "Free"}
        order = orders.get(self.type, self.nack.order)
        check_key_order(order, self.ack, self.nack, has_span=self.type == "Shared")
        return self

    @model_validator(mode="after")
    def _assignment_fits_type(self) -> "ConsumerGroupSpec":
        if self.assignment == "Client" and self.type != "Partitioned":
            raise ValueError(
                f"assignment: got 'Client' with the type {self.type!r}, expected 'Server': with "
                "'Client' the members choose their partitions, and none stands by"
            )
        if self.assignment == "Client" and self.strategy is not None:
            raise ValueError(
                f"assignment: got 'Client' with the strategy {self.strategy!r}, expected no "
                "strategy: the members choose their partitions; leave it out"
            )
        if self.assignment == "Client" and (given := self.rebalance.balance_fields):
            raise ValueError(
                f"assignment: got 'Client' with rebalance.{given[0]}, expected it to be left out: "
                "the members choose their partitions, so nothing moves for balance and nobody "
                "stands by"
            )
        return self

    @model_validator(mode="after")
    def _dead_letters_leave_the_queue(self) -> "ConsumerGroupSpec":
        if self.dead_letter is not None and self.dead_letter.queue == self.queue:
            raise ValueError(
                f"deadLetter.queue: got {self.queue!r}, the group's own queue, expected another "
                "one: a message that dies would be delivered to the group again, without end"
            )
        return self

    @property
    def start_at_ms(self) -> int | None:
        """`start_at` in unix milliseconds, rounded down; None: it is left out."""
        if self.start_at is None:
            return None
        return math.floor(datetime.fromisoformat(self.start_at).timestamp() * 1000)

    @property
    def effective_strategy(self) -> Strategy:
        """The strategy in force; of the types KeyShared, Session and Shared it says nothing."""
        is_dealt = self.type in ("Partitioned", "KeyShared", "Session", "Shared")
        return self.strategy or ("sticky" if is_dealt else "failover")


class PartitionedQueue(Model):
    """A log of messages, split into partitions by key."""

    api_version: Literal["partq.dev/v1alpha1"]
    kind: Literal["PartitionedQueue"]
    metadata: QueueMetadata
    spec: PartitionedQueueSpec = PartitionedQueueSpec()
    """The desired state of the queue."""

    @model_validator(mode="after")
    def _dead_letters_leave_the_queue(self) -> "PartitionedQueue":
        if self.spec.dead_letter.queue == self.metadata.name:
            raise ValueError(
                f"spec.deadLetter.queue: got {self.metadata.name!r}, the queue itself, expected "
                "another queue: a message that dies would be delivered again, without end"
            )
        return self

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name


class ConsumerGroup(Model):
    """Members that share the partitions of a queue."""

    api_version: Literal["partq.dev/v1alpha1"]
    kind: Literal["ConsumerGroup"]
    metadata: Metadata
    spec: ConsumerGroupSpec
    """The desired state of the group."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def queue_key(self) -> tuple[str, str]:
        """Namespace and name of the queue."""
        return self.metadata.namespace, self.spec.queue
