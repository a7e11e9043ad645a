"""Moves of partitions: what starts one, why it is forced, and the move as a value."""

from dataclasses import dataclass
from enum import StrEnum

from partq.core.group.observation import PartitionOwnership
from partq.core.model import MemberId, PartitionId


class Trigger(StrEnum):
    """What a rebalance is due to."""

    MEMBER_JOINED = "member_joined"
    MEMBER_LEFT = "member_left"
    MEMBER_LOST = "member_lost"


class Forced(StrEnum):
    """Why a commit does without the source's drain."""

    UNASSIGNED = "unassigned"
    SOURCE_LOST = "source_lost"
    """The source has no flow at any broker."""
    SOURCE_UNBOUND = "source_unbound"
    """The source has flows, but none at the partition's broker."""
    DRAIN_TIMEOUT = "drain_timeout"


@dataclass(frozen=True, slots=True)
class Move:
    """One partition is to pass from one member, or none, to another, or none."""

    ownership: PartitionOwnership
    target: MemberId | None
    trigger: Trigger
    forced: Forced | None
    """None: the source is bound and is drained first."""
    is_inherited: bool = False
    """The target takes over whatever its source has."""
    may_wait: bool = False
    """The source stays, and could continue with it: the move is for balance only."""

    @property
    def partition(self) -> PartitionId:
        """What moves."""
        return self.ownership.partition
