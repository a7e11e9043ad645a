"""Removing a consumer group over HTTP: what is asked, and what is answered."""

import msgspec
from msgspec import UNSET, UnsetType

from partq.wire.calls.bodies import Natural


class RemoveBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Whether a group is removed, or what would go is only shown."""

    is_dry_run: bool = False
    born: Natural | UnsetType = UNSET
    """When the group that is meant was made, as an answer has it; left out: whichever it is."""


class RemoveAnswer(msgspec.Struct):
    """What is left of a group, and what goes with it."""

    is_removed: bool
    """The queue does not name it any more. What `partitions` counts goes by itself."""
    partitions: int
    """Where its cursor is still stored, or a broker still knows it."""
    lag: int
    """How many messages it has not acknowledged, in these partitions."""
    dead_letters: int
    """How many of its dead letters are not in their queue yet, in these partitions."""
    groups: list[str]
    """The other groups of the queue."""
    born: int | UnsetType = UNSET
    """When the group was made; left out: its removal has begun."""
