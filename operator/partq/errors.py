"""Every error that partq raises on purpose, each with a stable code.

    PartqError
    ├── BadRequestError          bad_request, and its kinds: bad_json, bad_frame, bad_batch, ...
    ├── UnauthorizedError        unauthorized
    ├── ForbiddenError           forbidden
    │   └── NotListedError       not_listed
    │       └── MemberRefusedError  member_refused
    ├── NotFoundError            unknown_queue, unknown_group, unknown_partition
    ├── DataLossError            data_loss
    ├── ConflictError            fenced, not_delivered, rewound, member_in_use, ...
    │   ├── RolledBackError      rolled_back
    │   └── StaleGenerationError  stale_generation
    ├── NotOwnerError            not_owner
    ├── QuotaExceededError       quota_exceeded
    │   └── StoreFullError       store_full
    ├── UnavailableError         not_stored, store_unavailable, broker_closing
    │   └── StoreUnavailableError  superseded
    ├── OutcomeUnknownError      outcome_unknown
    ├── UnsupportedError         unsupported
    └── SettingsError            bad_settings

`code` is what programs compare; it never changes once released. `is_retryable` says whether the
same call can succeed later without a change by the caller. The message is for people: it names the
thing, what was got, what was expected and what to do.
"""

from typing import ClassVar, Self


class PartqError(Exception):
    """Base of all errors of partq."""

    code: ClassVar[str] = "internal"
    is_retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        """When a repeat makes sense, in seconds from now; None: no advice."""


class InternalError(PartqError):
    """The other side failed in a way that it does not know itself."""


class SettingsError(PartqError):
    """A setting or a resource is unusable; the process does not start with it."""

    code = "bad_settings"


class BadRequestError(PartqError):
    """The request can never succeed as it is."""

    code = "bad_request"


class UpgradeRequiredError(BadRequestError):
    """The group's order needs what the client, as it is, does not know: update it."""

    code = "upgrade_required"


class MethodNotAllowedError(BadRequestError):
    """The path is served, and not with this method; the header `Allow` has those that are."""

    code = "method_not_allowed"


class BadJsonError(BadRequestError):
    """The body is not the JSON that the call takes."""

    code = "bad_json"


class BadFrameError(BadRequestError):
    """A WebSocket frame is not one of the protocol; the connection is closed."""

    code = "bad_frame"


class BadBatchError(BadRequestError):
    """A batch's header is broken, or does not fit its body."""

    code = "bad_batch"


class WrongPartitionError(BadRequestError):
    """A message's slot does not lie in the partition that it was sent to."""

    code = "wrong_partition"


class KeyConflictError(BadRequestError):
    """Two different partition keys were given for one message."""

    code = "key_conflict"


class TransactionWithoutKeyError(BadRequestError):
    """A message of a transaction has no partition key; nothing of the transaction is stored."""

    code = "transaction_without_key"


class TransactionOverKeysError(BadRequestError):
    """Messages of a transaction have different keys; nothing of the transaction is stored."""

    code = "transaction_over_keys"


class MessageTooLargeError(BadRequestError):
    """A message is above the queue's `maxMessageBytes`; nothing of its batch is stored."""

    code = "message_too_large"

    @classmethod
    def of(
        cls, size_bytes: int, max_bytes: int, *, what: str = "a message", queue: str = "the queue"
    ) -> Self:
        """Return the error of a message of that size, encoded with its key and headers."""
        return cls(
            f"{what} of {size_bytes} bytes with key and headers; {queue} takes at most "
            f"{max_bytes}: split it, or raise limits.maxMessageBytes"
        )


class BatchTooLargeError(BadRequestError):
    """A batch or a request body is above what the broker takes at once."""

    code = "batch_too_large"


class UnsupportedEncodingError(BadRequestError):
    """The body is compressed, or has another encoding that is not taken."""

    code = "unsupported_encoding"


class RequestTimeoutError(BadRequestError):
    """The body of a request did not come in time."""

    code = "request_timeout"


class UndecodableError(BadRequestError):
    """A stored batch is undecodable: its consumer cannot decode it."""

    code = "undecodable"


class UnauthorizedError(PartqError):
    """The token is missing or unknown."""

    code = "unauthorized"


class ForbiddenError(PartqError):
    """The token is good, but not for this call."""

    code = "forbidden"


class NotListedError(ForbiddenError):
    """The member is not among those that may bind (yet)."""

    code = "not_listed"
    is_retryable = True


class MemberRefusedError(NotListedError):
    """The coordinator will not list the member: somebody has to change something first."""

    code = "member_refused"


class NotFoundError(PartqError):
    """Something that the request names does not exist."""

    code = "not_found"


class UnknownQueueError(NotFoundError):
    """The broker does not serve a queue of this name."""

    code = "unknown_queue"


class UnknownGroupError(NotFoundError):
    """The queue has no consumer group of this name."""

    code = "unknown_group"


class UnknownPartitionError(NotFoundError):
    """The queue's layout has no such partition."""

    code = "unknown_partition"


class NoSessionError(NotFoundError):
    """No session has open messages and no lock: the time to wait for one is over."""

    code = "no_session"
    is_retryable = True


class DataLossError(PartqError):
    """What is asked for is no longer stored: every group had done with it, or it has expired."""

    code = "data_loss"


class ConflictError(PartqError):
    """The request contradicts what is stored."""

    code = "conflict"


class FencedError(ConflictError):
    """The caller's epoch has ended: stop working on the partition."""

    code = "fenced"


class NotDeliveredError(ConflictError):
    """An ack or a release names offsets that were not delivered under its token."""

    code = "not_delivered"


class RewoundError(ConflictError):
    """A cumulative ack is of an older delivery number than the flow's current one."""

    code = "rewound"


class RolledBackError(ConflictError):
    """A position is of messages that the store has lost: it has others there by now, or none."""

    code = "rolled_back"


class MemberInUseError(ConflictError):
    """Another incarnation of the member holds a living flow."""

    code = "member_in_use"
    is_retryable = True


class AttemptRefusedError(ConflictError):
    """A call of a handoff does not fit what is stored; a new attempt is needed."""

    code = "attempt_refused"


class PartitionInUseError(ConflictError):
    """Another member holds the partition in a client-assigned group; nothing was changed."""

    code = "partition_in_use"


class ServerAssignedError(ConflictError):
    """The group's partitions are assigned by the coordinator; its members register none."""

    code = "server_assigned"


class NotSubscribableError(ConflictError):
    """An administrator has marked the partition, or its broker: nobody may register it now."""

    code = "not_subscribable"
    is_retryable = True


class SourceCountError(ConflictError):
    """The other nodes of the group say that there is another number of nodes."""

    code = "source_count_differs"


class NodeInUseError(ConflictError):
    """Another listed member of the group has the number of the node."""

    code = "node_in_use"
    is_retryable = True


class OutOfSequenceError(ConflictError):
    """A producer's message number is above the next one that is due."""

    code = "out_of_sequence"

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, due: int | None = None
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.due = due
        """The number that comes next; None: not told."""


class ResendFromError(OutOfSequenceError):
    """Some of the messages are stored already; send again from the number given."""

    code = "resend_from"


class UnknownProducerError(ConflictError):
    """The producer's record is gone (idle for too long, or never made)."""

    code = "unknown_producer"


class NumberReusedError(ConflictError):
    """The number stands for other messages, which are stored; those that came with it are not."""

    code = "number_reused"


class StaleGenerationError(ConflictError):
    """The partition takes the slots no more: a change of the partition count has moved them.

    What was published is not stored, and will not be.
    """

    code = "stale_generation"

    @classmethod
    def of(cls, partition: object, generation: int) -> Self:
        """Return the error of a partition; a layout of `generation` says where its slots are."""
        return cls(
            f"partition {partition}: slots of the messages have moved to other partitions; nothing "
            f"is stored; read /layout until its generation is {generation} or higher, and publish "
            "to the partitions that it names"
        )


class StatesFullError(ConflictError):
    """A group has as many states of keys in a partition as it may; nothing is acknowledged."""

    code = "states_full"


class KeptStatesError(ConflictError):
    """A reset would separate states of keys from older messages of them; nothing was moved."""

    code = "kept_states"


class SessionLockedError(ConflictError):
    """Another member has the lock of the session; nothing was changed."""

    code = "session_locked"
    is_retryable = True


class SessionLostError(FencedError):
    """The lock of the session has ended: stop working on its messages, they are redelivered."""

    code = "session_lost"


class AppendGapError(ConflictError):
    """The log does not end where the broker thinks; it drops its memory and claims again.

    Between store and broker only: it never leaves a broker.
    """

    code = "append_gap"


class NotOwnerError(PartqError):
    """Another broker, or none, owns the partition."""

    code = "not_owner"
    is_retryable = True


class QuotaExceededError(PartqError):
    """A quota is used up; nothing of the batch is stored."""

    code = "quota_exceeded"
    is_retryable = True


class StoreFullError(QuotaExceededError):
    """Redis has no memory left for messages; nothing of the batch is stored."""

    code = "store_full"


class UnavailableError(PartqError):
    """The call cannot be carried out now, or nothing says whether it was.

    The message says which: some calls may have had their effect although no answer came.
    """

    code = "unavailable"
    is_retryable = True


class NotStoredError(UnavailableError):
    """A publish was certainly not stored."""

    code = "not_stored"


class StoreUnavailableError(UnavailableError):
    """Redis gave no answer. A write that was under way may have happened."""

    code = "store_unavailable"

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float | None = None,
        is_outcome_known: bool = False,
        is_forbidden: bool = False,
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.is_outcome_known = is_outcome_known
        """True: certainly nothing has happened. False: a write may or may not have happened."""
        self.is_forbidden = is_forbidden
        """Whether Redis answers, and refuses the user or the password of this process."""


class SupersededError(StoreUnavailableError):
    """A later write of the same book is stored, so this one was not carried out.

    Between store and broker only: the broker writes the book as it is now, under a new number.
    """

    code = "superseded"


class OverloadedError(UnavailableError):
    """The requests of a broker hold as much memory as they may; nothing was done."""

    code = "overloaded"


class TooManyConnectionsError(UnavailableError):
    """A token has as many open connections as it may; nothing was done."""

    code = "too_many_connections"


class BrokerClosingError(UnavailableError):
    """The broker takes no more: it is shutting down, or has as many flows as it may."""

    code = "broker_closing"


class OutcomeUnknownError(PartqError):
    """A publish may or may not be stored; a numbered repeat finds out."""

    code = "outcome_unknown"
    is_retryable = True


class UnsupportedError(PartqError):
    """A broker is of a version that cannot do what the call asks for; nothing was done."""

    code = "unsupported"


def _tree(root: type[PartqError]) -> list[type[PartqError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _tree(child))]


BY_CODE: dict[str, type[PartqError]] = {error.code: error for error in _tree(PartqError)}
"""Every error class by its code; `internal`, which the base has too, is InternalError."""


def is_retryable(code: str) -> bool:
    """Say whether the same call can succeed later; a code that is not known: not."""
    return BY_CODE.get(code, InternalError).is_retryable


def from_code(code: str, message: str, *, retry_after_s: float | None = None) -> PartqError:
    """Return the error that another process named by `code`; an unknown one: InternalError."""
    kind = BY_CODE.get(code, InternalError)
    return kind(message, retry_after_s=retry_after_s)
