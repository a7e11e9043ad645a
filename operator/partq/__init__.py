"""Partitioned queues: every key in order, handed over without a gap. The public names."""

from partq.client.browser import Browsed, Browser
from partq.client.consumer import Consumer
from partq.client.deliveries import Batch, Delivery
from partq.client.fence import SqlFence
from partq.client.log_reader import LogPosition, LogReader
from partq.client.producer import Producer
from partq.client.receipts import Position, Positions
from partq.core.model import Cause, PartitionId, Token
from partq.errors import (
    BadRequestError,
    ConflictError,
    DataLossError,
    FencedError,
    ForbiddenError,
    MessageTooLargeError,
    NotDeliveredError,
    NotFoundError,
    NotStoredError,
    OutcomeUnknownError,
    PartqError,
    QuotaExceededError,
    RewoundError,
    RolledBackError,
    SettingsError,
    UnauthorizedError,
    UnavailableError,
    UndecodableError,
    UnknownGroupError,
    UnknownQueueError,
)
from partq.wire.batch import Message
from partq.wire.entries import StoredBatch

__all__ = [
    "BadRequestError",
    "Batch",
    "Browsed",
    "Browser",
    "Cause",
    "ConflictError",
    "Consumer",
    "DataLossError",
    "Delivery",
    "FencedError",
    "ForbiddenError",
    "LogPosition",
    "LogReader",
    "Message",
    "MessageTooLargeError",
    "NotDeliveredError",
    "NotFoundError",
    "NotStoredError",
    "OutcomeUnknownError",
    "PartitionId",
    "PartqError",
    "Position",
    "Positions",
    "Producer",
    "QuotaExceededError",
    "RewoundError",
    "RolledBackError",
    "SettingsError",
    "SqlFence",
    "StoredBatch",
    "Token",
    "UnauthorizedError",
    "UnavailableError",
    "UndecodableError",
    "UnknownGroupError",
    "UnknownQueueError",
]
