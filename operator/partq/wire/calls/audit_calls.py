"""The audit record over HTTP: what is asked and answered."""

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from partq.wire.calls.answers import ErrorDetail
from partq.wire.calls.bodies import Natural
from partq.wire.calls.entries import DEFAULT_BYTES, MAX_BYTES


class AuditQuery(msgspec.Struct):
    """Which groups are asked for."""

    from_: Annotated[Natural, msgspec.Meta(description="Sequence of the first group.")] = (
        msgspec.field(name="from")
    )
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_BYTES)] = DEFAULT_BYTES


class AuditBounds(msgspec.Struct):
    """The audit record of a partition, or why it is not known."""

    is_on: bool | UnsetType = UNSET
    first: int | UnsetType = UNSET
    """Sequence of the first group that is stored."""
    next: int | UnsetType = UNSET
    """Sequence of the next group."""
    chain: str | UnsetType = UNSET
    """The chain after the last group."""
    bytes: int | UnsetType = UNSET
    """Of the groups that are stored."""
    error: ErrorDetail | UnsetType = UNSET


class AuditStates(msgspec.Struct):
    """The audit record of each partition, by its name."""

    partitions: dict[str, AuditBounds]


class AuditCursors(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Up to where an archive has the record of each partition."""

    cursors: Annotated[dict[str, Natural], msgspec.Meta(min_length=1)]
    """By partition: sequence of the first group that it does not have."""
    partitions: list[str] = []
    """Empty: all of the cursors."""
