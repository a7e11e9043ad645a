"""Replaying and dropping dead letters over HTTP: what is asked, and what is answered."""

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from partq.wire.calls.answers import ErrorDetail
from partq.wire.calls.bodies import Natural

MAX_REPLAYED = 1000
MAX_FILTER_CHARS = 65_536
"""The longest key or reason that is looked for."""


class ReplayBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which dead letters go back to where they came from: from these offsets on, in order.

    One that was on its way when an earlier replay was cut off comes first, whatever is chosen.
    """

    partitions: list[str] = []
    """Empty: all."""
    offsets: dict[str, Natural] = {}
    """By partition, the `next` of the call before: that replay continues. Else one begins, with
    the oldest. An offset that no call has come to begins where the last one ended."""
    max_messages: Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLAYED)] = 100
    """Of each partition."""
    key: Annotated[str, msgspec.Meta(max_length=MAX_FILTER_CHARS)] | None = None
    """Only dead letters with this partition key; the others stay."""
    reason: Annotated[str, msgspec.Meta(max_length=MAX_FILTER_CHARS)] | None = None
    """Only those with this reason, of the broker or of the application; the others stay."""


class ReplayResult(msgspec.Struct):
    """How far the replay of a partition came, or why it did not begin."""

    next: int | UnsetType = UNSET
    end: int | UnsetType = UNSET
    replayed: int | UnsetType = UNSET
    repeated: int | UnsetType = UNSET
    """How many had been replayed before, by a call that was cut off: they are not stored again."""
    skipped: int | UnsetType = UNSET
    """How many stand for undecodable messages: they are no messages themselves, and stay here."""
    quarantined: int | UnsetType = UNSET
    """How many of the replayed ones went to keys that are in quarantine, where they become dead
    letters again until the key is released. Left out: none, or nobody could say."""
    first_quarantined: str | UnsetType = UNSET
    """Slot, group and queue of one of these."""
    stopped: ErrorDetail | UnsetType = UNSET
    """Why the message at `next` could not be replayed."""
    skipped_because: ErrorDetail | UnsetType = UNSET
    """What to do about those that were skipped."""
    error: ErrorDetail | UnsetType = UNSET


class ReplayResults(msgspec.Struct):
    """One result per partition, by its name."""

    partitions: dict[str, ReplayResult]


class DropBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which dead letters are dropped: all that are there, or those before an offset."""

    partitions: list[str] = []
    """Empty: all."""
    before: Natural | None = None
    is_dry_run: bool = False


class DropResult(msgspec.Struct):
    """Which offsets of a partition were dropped, or would be."""

    start: int | UnsetType = UNSET
    stop: int | UnsetType = UNSET
    stopped: ErrorDetail | UnsetType = UNSET
    """Why not all that was asked for is dropped, or would be."""
    error: ErrorDetail | UnsetType = UNSET


class DropResults(msgspec.Struct):
    """One result per partition, by its name."""

    partitions: dict[str, DropResult]
