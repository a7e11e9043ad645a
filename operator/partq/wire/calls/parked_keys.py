"""Parked keys of a group over HTTP: what is asked, and what is answered."""

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from partq.core.model import SLOT_COUNT
from partq.wire.calls.answers import ErrorDetail


class ParkedKeysBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Of which partitions the parked keys are asked for."""

    partitions: list[str] = []
    """Empty: all."""


class ParkedKey(msgspec.Struct):
    """A slot whose messages wait, as one of them was given back or took too long."""

    slot: int
    """Of its keys: one of 65,536."""
    offset: int
    """The lowest of its messages that the group has not done with."""
    due_ms: int
    """How long its messages still wait; 0 where they wait until the key is released."""
    redeliveries: int
    """How often that message was sent again."""
    state: str = "waits"
    """`waits` for its time; or until it is released: `blocked`, or `quarantined`, where its
    messages become dead letters."""


class ParkedKeysResult(msgspec.Struct):
    """The parked keys of a group in a partition, or why they are not known."""

    keys: list[ParkedKey] | UnsetType = UNSET
    """By rising slots."""
    more: int | UnsetType = UNSET
    """How many wait beside them, with higher slots: too many to list. Left out: none."""
    stands_still: str | UnsetType = UNSET
    """Why the group is sent nothing new of the partition; left out: it is."""
    error: ErrorDetail | UnsetType = UNSET


class ParkedKeysResults(msgspec.Struct):
    """One result per partition, by its name."""

    partitions: dict[str, ParkedKeysResult]


class ReleaseKeyBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which key waits no longer: one of `slot`, `key` and `all`."""

    slot: Annotated[int, msgspec.Meta(ge=0, le=SLOT_COUNT - 1)] | None = None
    key: str | None = None
    """The keys of its slot are all released."""
    all: bool = False
    """All keys that wait are released, whatever for."""
    partitions: list[str] = []
    """Empty: all."""


class ReleasedKeyResult(msgspec.Struct):
    """Whether a key was parked in a partition, and waits no longer; or why it still does."""

    is_released: bool | UnsetType = UNSET
    """False: it was not parked there."""
    released: int | UnsetType = UNSET
    """How many slots waited, if all were to be released."""
    error: ErrorDetail | UnsetType = UNSET


class ReleasedKeyResults(msgspec.Struct):
    """One result per partition, by its name."""

    partitions: dict[str, ReleasedKeyResult]
