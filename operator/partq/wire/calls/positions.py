"""Positions of logs over HTTP, and cursors that are moved to them: what is asked and answered."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from partq.wire.calls.answers import ErrorDetail
from partq.wire.calls.bodies import Natural


class PositionsBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which positions are asked for: one of `to`, `at_ms`, `group` and `offsets`."""

    partitions: list[str] = []
    """Empty: those of the offsets, else all."""
    to: Literal["earliest", "latest"] | None = None
    at_ms: Natural | None = None
    """Of the first message that was stored then or later."""
    group: str | None = None
    """Of the group's cursor."""
    offsets: dict[str, Natural] | None = None


class PositionResult(msgspec.Struct):
    """A position in a partition's log, and what the log holds; or why it is not known."""

    offset: int | UnsetType = UNSET
    append_broker_epoch: int | UnsetType = UNSET
    """Of the message below the offset; 0: none is stored there."""
    first: int | UnsetType = UNSET
    end: int | UnsetType = UNSET
    seals: dict[str, int] | UnsetType = UNSET
    """Generation of each change of the partition count that took slots away → the end of the log at
    that time. Left out where none has."""
    error: ErrorDetail | UnsetType = UNSET


class PositionResults(msgspec.Struct):
    """One position per partition, by its name."""

    partitions: dict[str, PositionResult]


class CursorPosition(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Up to where a reader has processed a partition."""

    offset: Natural
    append_broker_epoch: Natural = 0
    """Of the message below the offset, as the reader knows it; 0: it knows none."""


class CursorsBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Where a group's cursors are to be."""

    positions: dict[str, CursorPosition]
    partitions: list[str] = []
    """Empty: all of the positions."""


class CursorResult(msgspec.Struct):
    """Where a group's cursor is, or why it was not moved."""

    cursor: int | UnsetType = UNSET
    is_moved: bool | UnsetType = UNSET
    """False: it was there or farther already, and nothing has changed."""
    error: ErrorDetail | UnsetType = UNSET


class CursorResults(msgspec.Struct):
    """One result per partition, by its name."""

    partitions: dict[str, CursorResult]
