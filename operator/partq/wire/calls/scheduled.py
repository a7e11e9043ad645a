"""Scheduled messages over HTTP: shown, cancelled, dropped."""

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from partq.wire.calls.answers import ErrorDetail
from partq.wire.calls.bodies import Natural

MAX_LISTED = 1000
MAX_KEY_CHARS = 1024
_PLACE = r"^[0-9]{1,16}/[0-9]{1,9}\.[0-9]{1,9}/[0-9]{16}$"


class ScheduledQuery(msgspec.Struct):
    """Which scheduled messages are asked for."""

    partition: Annotated[str, msgspec.Meta(max_length=40)] = ""
    """As `1.3`; left out: all."""
    before_ms: Natural | None = None
    """Only what is due before this time, in ms since 1970."""
    key: Annotated[str, msgspec.Meta(max_length=MAX_KEY_CHARS)] | None = None
    """Only messages of this partition key."""
    after: (
        Annotated[
            str,
            msgspec.Meta(
                pattern=_PLACE,
                description="What the last answer calls next; left out: from the beginning.",
            ),
        ]
        | None
    ) = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_LISTED)] = 100


class ScheduledPartitions(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What one broker asks another one for."""

    partitions: list[str] = []
    """Empty: as the query says."""


class ScheduledMessage(msgspec.Struct, omit_defaults=True):
    """What waits until it is due: a message, or the messages of a list, sent together."""

    id: str
    due_ms: int
    """When it is due, by Redis's clock, in ms since 1970."""
    count: int
    """How many messages it is."""
    bytes: int
    """Of the batch, as it is stored."""
    key: str | None = None
    """The partition key of the first of them."""
    ttl_ms: int = 0
    """How long they may wait to be delivered from then on; 0: as long as the queue says."""
    error: ErrorDetail | UnsetType = UNSET
    """Why its key is not known; left out: it is."""


class ScheduledPage(msgspec.Struct):
    """Some scheduled messages of a partition, or why they are not known."""

    messages: list[ScheduledMessage] | UnsetType = UNSET
    upto: str | UnsetType = UNSET
    """The place of the last one that was looked at; left out: all were."""
    error: ErrorDetail | UnsetType = UNSET


class ScheduledPages(msgspec.Struct):
    """One result per partition, by its name."""

    partitions: dict[str, ScheduledPage]


class ScheduledList(msgspec.Struct):
    """Scheduled messages, by the time at which they are due."""

    messages: list[ScheduledMessage]
    next: str | UnsetType = UNSET
    """What to ask for `after`; left out: these were the last."""
    unavailable: dict[str, ErrorDetail] | UnsetType = UNSET
    """Partitions of which nothing is known now, and why; left out: none."""


class ScheduledCancel(msgspec.Struct):
    """What has become of a scheduled message that was to be cancelled."""

    is_cancelled: bool
    """False: it was delivered or cancelled before, or there was no such message."""


class DropScheduledBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which scheduled messages are dropped."""

    partitions: list[str] = []
    """Empty: all."""
    before_ms: Natural | None = None
    """Only what is due before this time."""
    upto: dict[str, Natural] = {}
    """By partition, what a dry run has answered: what was scheduled later stays."""
    is_dry_run: bool = False


class DropScheduledResult(msgspec.Struct):
    """How many scheduled messages of a partition were dropped, or would be."""

    count: int | UnsetType = UNSET
    """Entries: the messages of a list that were sent together are one."""
    upto: int | UnsetType = UNSET
    """The number of the last entry that there is."""
    more: bool | UnsetType = UNSET
    """True: the time was up; repeat the call. Left out: nothing is left of what was asked for."""
    error: ErrorDetail | UnsetType = UNSET


class DropScheduledResults(msgspec.Struct):
    """One result per partition, by its name."""

    partitions: dict[str, DropScheduledResult]
