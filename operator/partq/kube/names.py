"""Every name that the operator uses in Kubernetes: kinds, labels, annotations, objects, reasons."""

from enum import StrEnum
from typing import Final, NamedTuple

from partq.resources import API_GROUP

VERSION: Final = "v1alpha1"
QUEUES: Final = "partitionedqueues"
GROUPS: Final = "consumergroups"
FINALIZER: Final = f"{API_GROUP}/queue"
MANAGER: Final = "partq-operator"
"""Name of the operator at the API server: owner of fields, source of events."""

BROKER_PORT: Final = 7411
TOKENS_ENTRY: Final = "tokens.json"
REDIS_ENTRY: Final = "redis-url"
BROKER_CONTAINER: Final = "broker"

# What a person may say beside the spec.
PAUSE: Final = f"{API_GROUP}/pause"
"""Any value but `false`: the operator leaves the queue alone; brokers and consumers continue."""
PAUSE_REBALANCE: Final = f"{API_GROUP}/pause-rebalance"
"""Any value but `false`, at a queue or a group: nothing moves for balance alone."""
REBALANCE_NOW: Final = f"{API_GROUP}/rebalance-now"
"""At a group, with a value that it did not have before: move what can move, once, at once."""
REDIS: Final = f"{API_GROUP}/redis"
"""At a queue, with host and port of a Redis: it may begin empty there, once."""
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""At pods: those with the lowest number go first when a ReplicaSet is scaled down."""
OUR_DELETION_COST: Final = f"{API_GROUP}/pod-deletion-cost"
"""At pods: the same number, as the operator wrote it; if they differ, another client wrote one."""
PRIORITY: Final = f"{API_GROUP}/priority"
"""At pods of consumers: 0 to 9, in the place of the priority that their members say."""
CONFIG_HASH: Final = f"{API_GROUP}/config-hash"
"""At broker pods: what of their Secrets they read only at their start."""

QUEUE_LABEL: Final = f"{API_GROUP}/queue"
"""At everything that the operator makes for a queue."""


OPERATOR_LABEL: Final = f"{API_GROUP}/operator"
"""At broker pods: which installation made them; the policy of its Redis admits no others."""


def operator_label(namespace: str, lease_name: str) -> str:
    """Return the value of that label, as the chart writes it into the policy."""
    return f"{namespace}.{lease_name}"[:63].strip("-.")


class QueueKey(NamedTuple):
    """Namespace and name of a queue."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def labels(queue: str) -> dict[str, str]:
    """Return the labels of everything that a queue owns."""
    return {
        "app.kubernetes.io/name": "partq",
        "app.kubernetes.io/component": "broker",
        "app.kubernetes.io/instance": queue,
        "app.kubernetes.io/managed-by": MANAGER,
        QUEUE_LABEL: queue,
    }


ANY_BROKER = {"app.kubernetes.io/name": "partq", "app.kubernetes.io/component": "broker"}
"""Labels of the broker pods of every queue."""


def selector(queue: str) -> dict[str, str]:
    """Return the labels that select a queue's broker pods; they never change."""
    return {"app.kubernetes.io/name": "partq", QUEUE_LABEL: queue}


def stateful_set(queue: str) -> str:
    """Name the brokers: pods are `NAME-broker-0` and so on."""
    return f"{queue}-broker"


def headless_service(queue: str) -> str:
    """Name the Service that gives each broker pod a separate name."""
    return f"{queue}-brokers"


def client_service(queue: str) -> str:
    """Name the Service that clients begin with."""
    return f"{queue}-partq"


def tokens_secret(queue: str) -> str:
    """Name the Secret of the tokens that the operator makes."""
    return f"{queue}-tokens"


def config_secret(queue: str) -> str:
    """Name the Secret with what brokers read at their start."""
    return f"{queue}-broker-config"


def client_url(key: QueueKey, scheme: str) -> str:
    """Return where clients in the cluster reach a queue; `scheme`: `http` or `https`."""
    return f"{scheme}://{client_service(key.name)}.{key.namespace}.svc:{BROKER_PORT}"


class ConditionType(StrEnum):
    """What conditions are about; the first three are what tools such as kstatus read."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    SPEC_VALID = "SpecValid"
    OBJECTS_APPLIED = "ObjectsApplied"
    STORE_REACHABLE = "StoreReachable"
    STORE_DURABLE = "StoreDurable"
    BROKERS_READY = "BrokersReady"
    PARTITIONS_SERVED = "PartitionsServed"
    """Of a queue: every partition has a broker."""
    WITHIN_QUOTA = "WithinQuota"
    """Of a queue: its quota has room for what is published."""
    QUEUE_READY = "QueueReady"
    PARTITIONS_ASSIGNED = "PartitionsAssigned"
    """Of a group: every partition has a member that is connected."""
    DEAD_LETTERS_STORED = "DeadLettersStored"
    """Of a group: no partition waits for its dead-letter queue to take what it gets."""
    MESSAGES_PRESENT = "MessagesPresent"
    DELIVERIES_FLOWING = "DeliveriesFlowing"
    """Of a group: no partition has stopped at a message that the log does not hold."""
    MEMBERS_ADMITTED = "MembersAdmitted"
    """Of a group: no pod asks to be a member and may not, and its members' pods are selected."""
    PAUSED = "Paused"
    REBALANCE_PAUSED = "RebalancePaused"


class ConditionReason(StrEnum):
    """Why a condition is as it is; there are no others."""

    AS_SPECIFIED = "AsSpecified"
    NOT_PAUSED = "NotPaused"
    ANNOTATION = "Annotation"
    PENDING = "Pending"

    INVALID_SPEC = "InvalidSpec"
    REDIS_IMMUTABLE = "RedisImmutable"
    QUEUE_IMMUTABLE = "QueueImmutable"
    START_IMMUTABLE = "StartImmutable"
    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_NOT_READY = "QueueNotReady"
    DELETING = "Deleting"

    SECRET_MISSING = "SecretMissing"  # noqa: S105 - a reason, no secret
    NAME_TAKEN = "NameTaken"
    FORBIDDEN = "Forbidden"
    REFUSED = "Refused"
    API_UNAVAILABLE = "ApiUnavailable"

    STORE_UNREACHABLE = "StoreUnreachable"
    STORE_UNUSABLE = "StoreUnusable"
    STORE_EMPTY = "StoreEmpty"
    ADDRESS_REFUSED = "AddressRefused"
    STORE_OWNED_BY_ANOTHER = "StoreOwnedByAnother"
    STORE_NEARLY_FULL = "StoreNearlyFull"
    SYNCED_ALWAYS = "SyncedAlways"
    SYNCED_EVERY_SECOND = "SyncedEverySecond"
    NOT_SYNCED = "NotSynced"
    NOT_PERSISTENT = "NotPersistent"

    BROKERS_STARTING = "BrokersStarting"
    BROKERS_MISSING = "BrokersMissing"
    BROKER_UNREACHABLE = "BrokerUnreachable"
    PARTITIONS_UNSERVED = "PartitionsUnserved"
    QUOTA_USED_UP = "QuotaUsedUp"
    RESCALE_PREPARING = "RescalePreparing"
    RESCALE_OPENING = "RescaleOpening"
    RESCALE_DRAINING = "RescaleDraining"
    RESCALE_WAITS_FOR_BROKERS = "RescaleWaitsForBrokers"
    TOO_MANY_GENERATIONS = "TooManyGenerations"
    TOO_MANY_RETIRED = "TooManyRetired"

    NO_MEMBER = "NoMember"
    WAITING_FOR_MEMBER = "WaitingForMember"
    WAITING_FOR_BUDGET = "WaitingForBudget"
    REBALANCING = "Rebalancing"
    STABLE = "Stable"
    PARTITIONS_UNASSIGNED = "PartitionsUnassigned"
    PARTITIONS_UNREGISTERED = "PartitionsUnregistered"
    DEAD_LETTERS_BLOCKED = "DeadLettersBlocked"
    DEAD_LETTERS_PARKED = "DeadLettersParked"
    DEAD_LETTERS_RETURN = "DeadLettersReturn"
    MESSAGES_MISSING = "MessagesMissing"
    KEYS_PARKED = "KeysParked"
    SPAN_FULL = "SpanFull"
    KEYS_BLOCKED = "KeysBlocked"
    KEYS_QUARANTINED = "KeysQuarantined"
    MEMBER_REFUSED = "MemberRefused"
    MEMBER_NOT_SELECTED = "MemberNotSelected"
    INTERNAL_ERROR = "InternalError"


class EventReason(StrEnum):
    """What the operator tells in Events; conditions that turn bad use their own reason."""

    UPDATED = "Updated"
    REBALANCE_SCHEDULED = "RebalanceScheduled"
    REBALANCE_CANCELLED = "RebalanceCancelled"
    REBALANCE_STARTED = "RebalanceStarted"
    REBALANCE_COMPLETED = "RebalanceCompleted"
    PARTITION_HANDOFF_TIMED_OUT = "PartitionHandoffTimedOut"
    MEMBER_JOINED = "MemberJoined"
    MEMBER_LEFT = "MemberLeft"
    RECOVERED = "Recovered"
    RESCALE_STARTED = "RescaleStarted"
    RESCALE_COMMITTED = "RescaleCommitted"
    RESCALE_OPENED = "RescaleOpened"
    RESCALE_SETTLED = "RescaleSettled"
    RESCALE_ABORTED = "RescaleAborted"
    OLD_PARTITIONS_HELD = "OldPartitionsHeld"
    DEAD_LETTER_QUEUE_CREATED = "DeadLetterQueueCreated"
    DATA_REMOVED = "DataRemoved"
    DATA_RETAINED = "DataRetained"
    FINALIZER_RELEASED = "FinalizerReleased"
