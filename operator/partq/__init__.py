"""Partitioned queues: every key in order, handed over without a gap. The public names.

Each is imported when it is first asked for: the commands start quickly, and take signals at once.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partq.client.audit_reader import AuditReader
    from partq.client.browser import Browsed, Browser
    from partq.client.client_assigned_consumer import ClientAssignedConsumer
    from partq.client.consume.deliveries import Batch, Delivery
    from partq.client.consumer import Consumer
    from partq.client.consumer_stats import ConsumerStats
    from partq.client.fence.sql_fence import AsyncSqlFence, SqlFence
    from partq.client.handout.interceptors import ConsumerInterceptor
    from partq.client.handout.reader_interceptor import ReaderInterceptor
    from partq.client.hooks.cloud_event import CloudEvent
    from partq.client.hooks.serializers import DeserializationError
    from partq.client.log_reader import LogPosition, LogReader
    from partq.client.partition_key import PartitionKey
    from partq.client.produce.interceptors import ProducerInterceptor
    from partq.client.produce.results import Position, Positions
    from partq.client.producer import Producer
    from partq.client.producer_state import producer_due
    from partq.client.producer_stats import ProducerStats
    from partq.client.queues.queue_directory import queues_in_directory
    from partq.client.queues_consumer import QueuesConsumer
    from partq.client.reader import Reader
    from partq.client.registration.registration_calls import ConfiguredPartitionInfo, Registration
    from partq.client.sessions.locked_session import LockedSession
    from partq.client.sessions.session_consumer import SessionConsumer
    from partq.client.transactions.transaction import Transaction
    from partq.client.transport.options import ConnectionOptions
    from partq.client.transport.session import UnreachedError, UntrustedError
    from partq.core.model import Cause, PartitionId, Token
    from partq.errors import (
        AttemptRefusedError,
        BadBatchError,
        BadFrameError,
        BadJsonError,
        BadRequestError,
        BatchTooLargeError,
        BrokerClosingError,
        ConflictError,
        DataLossError,
        FencedError,
        ForbiddenError,
        InternalError,
        KeptStatesError,
        KeyConflictError,
        MemberInUseError,
        MemberRefusedError,
        MessageTooLargeError,
        MethodNotAllowedError,
        NodeInUseError,
        NoSessionError,
        NotDeliveredError,
        NotFoundError,
        NotListedError,
        NotOwnerError,
        NotStoredError,
        NotSubscribableError,
        NumberReusedError,
        OutcomeUnknownError,
        OutOfSequenceError,
        OverloadedError,
        PartitionInUseError,
        PartqError,
        QuotaExceededError,
        RequestTimeoutError,
        ResendFromError,
        RewoundError,
        RolledBackError,
        ServerAssignedError,
        SessionLockedError,
        SessionLostError,
        SettingsError,
        SourceCountError,
        StaleGenerationError,
        StatesFullError,
        StoreFullError,
        StoreUnavailableError,
        TooManyConnectionsError,
        TransactionOverKeysError,
        TransactionWithoutKeyError,
        UnauthorizedError,
        UnavailableError,
        UndecodableError,
        UnknownGroupError,
        UnknownPartitionError,
        UnknownProducerError,
        UnknownQueueError,
        UnsupportedEncodingError,
        UnsupportedError,
        UpgradeRequiredError,
        WrongPartitionError,
    )
    from partq.wire.batch import Message
    from partq.wire.calls.entries import StoredBatch
    from partq.wire.json_values import JsonDeserializer, JsonSerializer

__all__ = [
    "AsyncSqlFence",
    "AttemptRefusedError",
    "AuditReader",
    "BadBatchError",
    "BadFrameError",
    "BadJsonError",
    "BadRequestError",
    "Batch",
    "BatchTooLargeError",
    "BrokerClosingError",
    "Browsed",
    "Browser",
    "Cause",
    "ClientAssignedConsumer",
    "CloudEvent",
    "ConfiguredPartitionInfo",
    "ConflictError",
    "ConnectionOptions",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerStats",
    "DataLossError",
    "Delivery",
    "DeserializationError",
    "FencedError",
    "ForbiddenError",
    "InternalError",
    "JsonDeserializer",
    "JsonSerializer",
    "KeptStatesError",
    "KeyConflictError",
    "LockedSession",
    "LogPosition",
    "LogReader",
    "MemberInUseError",
    "MemberRefusedError",
    "Message",
    "MessageTooLargeError",
    "MethodNotAllowedError",
    "NoSessionError",
    "NodeInUseError",
    "NotDeliveredError",
    "NotFoundError",
    "NotListedError",
    "NotOwnerError",
    "NotStoredError",
    "NotSubscribableError",
    "NumberReusedError",
    "OutOfSequenceError",
    "OutcomeUnknownError",
    "OverloadedError",
    "PartitionId",
    "PartitionInUseError",
    "PartitionKey",
    "PartqError",
    "Position",
    "Positions",
    "Producer",
    "ProducerInterceptor",
    "ProducerStats",
    "QueuesConsumer",
    "QuotaExceededError",
    "Reader",
    "ReaderInterceptor",
    "Registration",
    "RequestTimeoutError",
    "ResendFromError",
    "RewoundError",
    "RolledBackError",
    "ServerAssignedError",
    "SessionConsumer",
    "SessionLockedError",
    "SessionLostError",
    "SettingsError",
    "SourceCountError",
    "SqlFence",
    "StaleGenerationError",
    "StatesFullError",
    "StoreFullError",
    "StoreUnavailableError",
    "StoredBatch",
    "Token",
    "TooManyConnectionsError",
    "Transaction",
    "TransactionOverKeysError",
    "TransactionWithoutKeyError",
    "UnauthorizedError",
    "UnavailableError",
    "UndecodableError",
    "UnknownGroupError",
    "UnknownPartitionError",
    "UnknownProducerError",
    "UnknownQueueError",
    "UnreachedError",
    "UnsupportedEncodingError",
    "UnsupportedError",
    "UntrustedError",
    "UpgradeRequiredError",
    "WrongPartitionError",
    "producer_due",
    "queues_in_directory",
]

_HOMES = {
    "partq.client.audit_reader": ("AuditReader",),
    "partq.client.browser": ("Browsed", "Browser"),
    "partq.client.client_assigned_consumer": ("ClientAssignedConsumer",),
    "partq.client.consume.deliveries": ("Batch", "Delivery"),
    "partq.client.consumer": ("Consumer",),
    "partq.client.consumer_stats": ("ConsumerStats",),
    "partq.client.fence.sql_fence": ("AsyncSqlFence", "SqlFence"),
    "partq.client.handout.interceptors": ("ConsumerInterceptor",),
    "partq.client.handout.reader_interceptor": ("ReaderInterceptor",),
    "partq.client.hooks.cloud_event": ("CloudEvent",),
    "partq.client.hooks.serializers": ("DeserializationError",),
    "partq.client.log_reader": ("LogPosition", "LogReader"),
    "partq.client.partition_key": ("PartitionKey",),
    "partq.client.produce.interceptors": ("ProducerInterceptor",),
    "partq.client.produce.results": ("Position", "Positions"),
    "partq.client.producer": ("Producer",),
    "partq.client.producer_state": ("producer_due",),
    "partq.client.producer_stats": ("ProducerStats",),
    "partq.client.queues.queue_directory": ("queues_in_directory",),
    "partq.client.queues_consumer": ("QueuesConsumer",),
    "partq.client.reader": ("Reader",),
    "partq.client.registration.registration_calls": ("ConfiguredPartitionInfo", "Registration"),
    "partq.client.sessions.session_consumer": ("SessionConsumer",),
    "partq.client.sessions.locked_session": ("LockedSession",),
    "partq.client.transactions.transaction": ("Transaction",),
    "partq.client.transport.options": ("ConnectionOptions",),
    "partq.client.transport.session": ("UnreachedError", "UntrustedError"),
    "partq.core.model": ("Cause", "PartitionId", "Token"),
    "partq.wire.batch": ("Message",),
    "partq.wire.calls.entries": ("StoredBatch",),
    "partq.wire.json_values": ("JsonDeserializer", "JsonSerializer"),
}
"""Where the public names are that are not in `partq.errors`."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_PACKAGES = ("client", "core", "errors", "sync", "wire")
"""What `import partq` makes readable as attributes, each imported when it is asked for."""


def __getattr__(name: str) -> Any:
    """Import a public name; called once for each."""
    if name in _PACKAGES:
        return importlib.import_module(f"partq.{name}")
    if name in __all__:
        module = importlib.import_module(_HOME_OF.get(name, "partq.errors"))
        value = globals()[name] = getattr(module, name)
        return value
    raise AttributeError(f"module 'partq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
