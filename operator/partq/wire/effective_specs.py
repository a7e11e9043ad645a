"""The specs of a queue and its groups as Redis has them: the operator writes, brokers read them.

Every default is filled in and what a queue says for its groups stands in theirs. Fields with a
default here are those that earlier versions did not write.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from partq.errors import InternalError
from partq.wire.calls.replies import convert

T = TypeVar("T")

EffectiveSpec = Mapping[str, object]
"""As JSON has it; which fields it has is up to its reader."""


class BackoffSpec(msgspec.Struct, rename="camel"):
    """Waits that grow with each redelivery."""

    min_seconds: float
    max_seconds: float
    multiplier: float


class AckSpec(msgspec.Struct, rename="camel"):
    """How long a consumer may have a message, and how often it is delivered again."""

    timeout_seconds: float
    tick_seconds: float
    backoff: BackoffSpec | None
    max_redeliveries: int | None = None
    on_exhausted: str = "Skip"
    max_span: int = 20_000
    max_states: int = 10_000


class NackSpec(msgspec.Struct, rename="camel"):
    """What becomes of messages that a consumer gives back."""

    order: str
    delay_seconds: float
    backoff: BackoffSpec | None
    max_parked_keys: int = 1024


class DeadLetterSpec(msgspec.Struct):
    """Where messages go that a group cannot process."""

    queue: str
    expired: bool


class KeySharedSpec(msgspec.Struct, rename="camel"):
    """How a group of type KeyShared shares partitions out."""

    parts: int
    hash_range: str = ""


class SessionSpec(msgspec.Struct, rename="camel"):
    """How members of a group lock sessions."""

    lock_seconds: float
    max_state_bytes: int


class RebalanceTimes(msgspec.Struct, rename="camel"):
    """How long partitions wait for a lost member."""

    delay_seconds: float


class GroupSpec(msgspec.Struct, rename="camel"):
    """What brokers read of a group's spec."""

    type: str = ""
    ack: AckSpec | None = None
    nack: NackSpec | None = None
    dead_letter: DeadLetterSpec | None = None
    assignment: str = "Server"
    rebalance: RebalanceTimes | None = None
    key_shared: KeySharedSpec | None = None
    session: SessionSpec | None = None


class LimitsSpec(msgspec.Struct, rename="camel"):
    """What clients and logs must keep to."""

    max_message_bytes: int
    max_unacked_per_flow: int
    max_spool_bytes: int | None = None
    max_retained_bytes: int | None = None


class DuplicateDetectionSpec(msgspec.Struct, rename="camel"):
    """For how long ids of messages are known, and how many."""

    window_seconds: int
    max_ids_per_partition: int


class QueueSpec(msgspec.Struct, rename="camel"):
    """What brokers read of a queue's spec."""

    keyless_policy: str
    limits: LimitsSpec
    message_ttl_seconds: float | None = msgspec.field(name="messageTTLSeconds", default=None)
    retention_seconds: float = 0.0
    duplicate_detection: DuplicateDetectionSpec | None = None
    audit: bool = False
    partitions: int | None = None
    """How many partitions the queue is to have; None: an earlier version wrote it."""


def read_spec(what: str, spec: EffectiveSpec, kind: type[T]) -> T:
    """Return a spec as the type that describes it; `what` names it in the error.

    Raises:
        InternalError: it is something else, such as that of another version.
    """
    try:
        return convert(spec, kind)
    except ValueError as error:
        raise InternalError(
            f"{what}: the stored spec is unusable: {error}; use brokers of the operator's version"
        ) from error
