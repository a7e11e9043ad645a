"""Browsing and pins over HTTP: what is asked, and what is answered."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from partq.wire.calls.answers import ErrorDetail, MessageContent
from partq.wire.calls.bodies import Natural

MAX_BROWSED_MESSAGES = 10_000
MAX_BROWSED_BYTES = 4 * 1024 * 1024
MAX_PIN_MS = 600_000
"""How long a pin lasts after it was set or renewed."""
PIN_RENEW_S = 120.0
"""How often a reader renews its pin: four tries may fail before it ends."""


class BrowseBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What to show: from the offsets, else from the time, else from the oldest message on."""

    partitions: list[str] = []
    """Empty: all."""
    offsets: dict[str, Natural] = {}
    at_ms: Natural | None = None
    max_messages: Annotated[int, msgspec.Meta(ge=1, le=MAX_BROWSED_MESSAGES)] = 100
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_BROWSED_BYTES)] = 1024 * 1024
    is_merged: bool = True
    """Over the partitions, by the time of storing; else each partition apart."""


def narrowed(body: BrowseBody, changes: Mapping[str, object]) -> BrowseBody:
    """Return what to show with some of it changed."""
    return msgspec.structs.replace(body, **changes)


class PinBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Where a pin holds the logs: from these offsets on, else from their first message on."""

    partitions: list[str] = []
    """Empty: those of the offsets, else all."""
    offsets: dict[str, Natural] = {}
    number: Natural | UnsetType = UNSET
    """Grows with the calls of a reader; one below that of the last call changes nothing. 0 asks for
    a number above those of all calls before."""


class BrowsedMessage(MessageContent):
    """A message; with `error` in the place of its content when it is undecodable."""

    partition: str
    offset: int
    publish_time_ms: int
    append_broker_epoch: int
    producer: str | UnsetType = UNSET
    """Left out with `sequence`: published without numbers, or stored by an earlier version."""
    sequence: int | UnsetType = UNSET
    is_replayed: bool | UnsetType = UNSET
    """Left out unless true: a dead letter that was sent back, and is not freed yet."""


class BrowseAnswer(msgspec.Struct):
    """Messages of several partitions by time, and where and why they end."""

    messages: list[BrowsedMessage]
    next: dict[str, int]
    why: str
    trimmed: dict[str, int]
    unavailable: dict[str, ErrorDetail]
    missing: dict[str, list[tuple[int, int]]] = {}
    """By partition, the offsets [start, stop) before its `next` that its log does not hold."""


class BrowsedRow(msgspec.Struct):
    """A message of one partition, and what it counts for in bytes."""

    size: int
    message: BrowsedMessage


class BrowsedPage(msgspec.Struct):
    """Messages of one partition, or why they cannot be shown."""

    rows: list[BrowsedRow] | UnsetType = UNSET
    next: int | UnsetType = UNSET
    why: str | UnsetType = UNSET
    first: int | UnsetType = UNSET
    end: int | UnsetType = UNSET
    missing: list[tuple[int, int]] | UnsetType = UNSET
    """The offsets [start, stop) before `next` that the log does not hold."""
    error: ErrorDetail | UnsetType = UNSET


class BrowsedPages(msgspec.Struct):
    """One page per partition, by its name."""

    partitions: dict[str, BrowsedPage]


class PinResult(msgspec.Struct):
    """From where on a pin holds a partition's log, or why it does not."""

    offset: int | UnsetType = UNSET
    lasts_ms: int | UnsetType = UNSET
    number: int | UnsetType = UNSET
    """Of the call that has set the pin, for a caller that names one; higher, if that is later."""
    error: ErrorDetail | UnsetType = UNSET


class PinResults(msgspec.Struct):
    """One result per partition, by its name."""

    partitions: dict[str, PinResult]
