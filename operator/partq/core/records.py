"""What the coordinator writes down: values that the store keeps and a next coordinator reads."""

from dataclasses import dataclass

from partq.core.model import Epoch, MemberId


@dataclass(frozen=True, slots=True)
class Assigned:
    """One partition's place in the assignment."""

    member: MemberId | None
    epoch: Epoch
    state: str
    """`Unassigned`, `Ready`, `Paused` or `Unbound`."""


@dataclass(frozen=True, slots=True)
class HandoffRecord:
    """One partition's handoff."""

    source: MemberId | None
    target: MemberId | None
    attempt: int
    phase: str
    deadline_ms: int
    """Of the drain, in Redis's time."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """What one change of a group's members did; times in milliseconds."""

    trigger: str
    moved: int
    """Partitions that left a member for another, or for none."""
    assigned: int
    """Partitions that nobody had before."""
    started_at_ms: int
    """In Redis's time, as `ended_at_ms`."""
    ended_at_ms: int
    longest_pause_ms: int
    """The longest time that a partition had no consumer: from its pause, or from the loss of its
    member's flow, to the commit."""
    timed_out: int = 0
    """Partitions whose member had not finished when its time was over."""

    @property
    def duration_ms(self) -> int:
        """From the plan to the last commit."""
        return self.ended_at_ms - self.started_at_ms
