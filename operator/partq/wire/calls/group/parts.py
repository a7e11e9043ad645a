"""Parts of partitions in a group of type KeyShared: how they are shown, and given to members."""

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from partq.core.parts.part_id import MAX_PARTS
from partq.wire.calls.answers import PartitionResult
from partq.wire.calls.bodies import CommitItem, PauseTime

PartNumber = Annotated[int, msgspec.Meta(ge=0, lt=MAX_PARTS)]
NOBODY = -1
"""In the place of a member: nobody has the part."""


class PartCommitItem(CommitItem, kw_only=True):
    """A part of a partition that another member gets; an empty source or target means none.

    `epoch` is that of the group in the partition when the move was decided; a higher one now, as
    after a bind, is no obstacle. An attempt that was carried out is answered as it was then.
    """

    part: PartNumber
    drain_ms: PauseTime
    """How long the source may keep the keys of which it has messages, before it is forced."""


class PartCommits(msgspec.Struct):
    """Parts to give to members."""

    commits: list[PartCommitItem]


class PartResult(PartitionResult, kw_only=True):
    """Whether a part was given to its target."""

    part: int
    epoch: int | UnsetType = UNSET
    """Of the group in the partition from then on."""


class PartResults(msgspec.Struct):
    """One result per part, in the order of the call."""

    results: list[PartResult]


class PartsDetail(msgspec.Struct, kw_only=True):
    """The members that have the parts of one partition."""

    members: list[str]
    bound: list[bool]
    """Of each of these members, whether it has a flow at this broker."""
    of: list[int]
    """Of each part its member, by its place among `members`; -1: nobody."""
    attempts: list[int]
    """Of each part the last attempt that is over."""
    draining: list[int] = []
    """Of each part how many slots its member waits for, as another one has messages of them;
    empty: none."""
