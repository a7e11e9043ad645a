"""Frames between producers and brokers."""

import msgspec

from partq.wire.frame import PROTOCOL_VERSION, Frame


class ProducerHello(Frame, tag=10):
    """First frame of a producer: its name. Its messages are numbered per partition."""

    producer: str
    version: int = PROTOCOL_VERSION
    layout: int = 0
    """Of numbers that stand for the same messages at each attempt: the layout of the partitions
    that its batches are for, as `ProducerDue.layouts` has it; 0: its numbers are its own."""


class ProducerWelcome(Frame, tag=11):
    """The broker takes batches from this producer."""

    broker: str
    lease_ms: int
    max_message_bytes: int
    max_in_flight: int
    """Batches that may be without an answer, per partition."""
    features: list[str] = msgspec.field(default_factory=list)
    """What the broker can do that others may not (`wire/frame.py`)."""


class Publish(Frame, tag=12):
    """Store a batch (the payload); `first` is the number of its first message."""

    request: int
    generation: int
    partition: int
    first: int
    ttl_ms: int = 0
    """How long its messages may wait to be delivered, from when they are stored; 0: no limit."""
    age_ms: int = 0
    """How long ago the batch was first sent under this number; 0: never before."""
    message_id: str = ""
    """Of a batch of one message: the digest of its id, 32 hex digits; empty: it has none."""
    due_ms: int = 0
    """When the batch is to be stored in the log, by Redis's clock; 0: `after_ms` says it."""
    after_ms: int = 0
    """How many ms it waits beside the log, from when it is accepted; 0, as `due_ms`: not at all."""


class Published(Frame, tag=13):
    """The batch is stored; its messages have the offsets from `offset` on.

    `offset` is -1 for a duplicate that is too old for its place to be remembered.
    """

    request: int
    offset: int
    is_duplicate: bool = False
    is_known: bool = False
    """The batch is not stored: the id of its message is known, and `offset` is -1."""
    entry: int = 0
    """The number under which the batch waits until it is due, or has waited; 0: it does not."""


class PublishRefused(Frame, tag=14):
    """The batch was judged; `code` names the error.

    `due` is the next message number that the partition takes from this producer, -1 if unknown.
    """

    request: int
    code: str
    message: str
    retry_after_ms: int = 0
    due: int = -1
