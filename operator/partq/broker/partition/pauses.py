"""The state of a group's partition, its pause, and how its last handoff ended."""

import asyncio
from dataclasses import dataclass
from enum import StrEnum

from partq.core.model import Epoch, MemberId


class PartitionState(StrEnum):
    """State of a group's partition."""

    UNASSIGNED = "Unassigned"
    READY = "Ready"
    PAUSED = "Paused"
    UNBOUND = "Unbound"


@dataclass(slots=True)
class ActivePause:
    """A pause in force: the broker's memory, on its own clock."""

    attempt: int
    epoch: Epoch
    until: float
    drain_until: float
    timer: asyncio.TimerHandle | None = None
    is_drain_recorded: bool = False
    """Whether the audit record says that its drain is over."""
    is_unregistering: bool = False
    """Whether its member gives the partition back itself: no coordinator has drawn the attempt."""


@dataclass(frozen=True, slots=True)
class ClosedHandoff:
    """How the last handoff that this broker committed ended: a repeat gets the same answer."""

    attempt: int
    target: MemberId | None
    epoch: Epoch
    was_forced: bool
