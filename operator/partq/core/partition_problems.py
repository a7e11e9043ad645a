"""What keeps messages of a partition from a group, in the words that every view of it shows."""

from enum import StrEnum
from typing import NamedTuple

from partq.excerpts import counted


class ProblemKind(StrEnum):
    """What is wrong with a partition of a group, the worst first."""

    BLOCKED = "blocked"
    """Its dead letters are not stored, or its log lacks the message that comes next."""
    UNSERVED = "unserved"
    UNASSIGNED = "unassigned"
    UNBOUND = "unbound"
    PAUSED = "paused"
    WITHHELD = "withheld"
    HELD = "held"
    """The group has older messages to do with in other partitions first."""
    STALLED = "stalled"
    """In a group of order Key: too many keys wait, or one for too long; nothing new is sent."""
    KEYS_HELD = "keys_held"
    """In a group of order Key: keys wait until somebody releases them; the others continue."""
    PARKED = "parked"
    """Dead letters wait for their queue, and deliveries continue."""

    @property
    def text(self) -> str:
        """What it means, in a few words."""
        return _TEXTS[self]


_TEXTS = {
    ProblemKind.BLOCKED: "delivers nothing",
    ProblemKind.UNSERVED: "no broker or no Redis answers",
    ProblemKind.UNASSIGNED: "no member",
    ProblemKind.UNBOUND: "member not connected",
    ProblemKind.PAUSED: "in a handoff",
    ProblemKind.WITHHELD: "paused by its application",
    ProblemKind.HELD: "waits for older messages",
    ProblemKind.STALLED: "delivers nothing new",
    ProblemKind.KEYS_HELD: "holds keys until they are released",
    ProblemKind.PARKED: "dead letters wait for their queue",
}


class PartitionProblem(NamedTuple):
    """A problem of a partition, and what is known of it."""

    kind: ProblemKind
    text: str
    """A part of a sentence whose subject is the partition."""


def problems_of(
    *,
    is_served: bool,
    member: str,
    state: str,
    blocked: str = "",
    is_withheld: bool = False,
    gated_by: str = "",
    stands_still: str = "",
    blocked_keys: int = 0,
    quarantined_keys: int = 0,
    parked: str = "",
    dead_letters: int = 0,
) -> list[PartitionProblem]:
    """Return all that is wrong with a partition of a group, the worst first.

    Args:
        is_served: whether a broker answers for it.
        member: that has it; empty: none, or any member may have messages of it.
        state: as its broker, or the coordinator, calls it.
        blocked: why it delivers nothing; empty: it delivers.
        is_withheld: whether its member's application has paused it.
        gated_by: which older messages in other partitions come first; empty: none.
        stands_still: in a group of order Key, why nothing new is sent; empty: it is.
        blocked_keys: how many keys wait until they are released.
        quarantined_keys: how many keys make dead letters of all their messages.
        parked: why dead letters wait while it delivers; empty: none do.
        dead_letters: how many wait.
    """
    found = []
    if blocked:
        found.append(PartitionProblem(ProblemKind.BLOCKED, blocked_text(blocked)))
    is_unbound, is_paused = state == "Unbound", state == "Paused"
    for kind, is_so in (
        (ProblemKind.UNSERVED, not is_served),
        # In groups whose partitions have no member, one that any member is served is Ready.
        (ProblemKind.UNASSIGNED, not member and state != "Ready"),
        (ProblemKind.UNBOUND, bool(member) and is_unbound),
        (ProblemKind.PAUSED, bool(member) and is_paused),
    ):
        if is_so:
            found.append(PartitionProblem(kind, kind.text))
    if is_withheld:
        found.append(PartitionProblem(ProblemKind.WITHHELD, withheld_text(member)))
    if gated_by:
        found.append(PartitionProblem(ProblemKind.HELD, gated_text(gated_by)))
    if stands_still:
        found.append(PartitionProblem(ProblemKind.STALLED, stalled_text(stands_still)))
    if held := held_keys_text(blocked_keys, quarantined_keys):
        found.append(PartitionProblem(ProblemKind.KEYS_HELD, held))
    if parked:
        found.append(PartitionProblem(ProblemKind.PARKED, parked_text(dead_letters, parked)))
    return found


def blocked_text(reason: str) -> str:
    """Say that a partition delivers nothing, and why."""
    return f"{ProblemKind.BLOCKED.text}: {reason}"


def withheld_text(member: str) -> str:
    """Say which application has paused a partition, or its keys of it.

    `member`: several where members share the partition; empty: not known.
    """
    who = f"one of {member}" if ", " in member else member or "a member"
    return f"{ProblemKind.WITHHELD.text}: {who} has called pause"


def gated_text(older: str) -> str:
    """Say which messages of other partitions a partition waits for."""
    return f"{ProblemKind.HELD.text}: {older}"


def stalled_text(reason: str) -> str:
    """Say that nothing new is sent of a partition, and why."""
    return f"{ProblemKind.STALLED.text}: {reason}"


def parked_keys_text(count: int, lowest: int) -> str:
    """Say how many keys wait; `lowest`: the first of their messages, -1: not known."""
    what = counted(count, "key waits", "keys wait", spec=",")
    place = f", from offset {lowest:,} on" if lowest >= 0 else ""
    return f"{what}{place}, and the others continue: `partq keys list` shows which"


def held_keys_text(blocked: int, quarantined: int) -> str:
    """Say how many keys wait until they are released; empty: none does."""
    parts = []
    if blocked:
        what = counted(blocked, "key is", "keys are", spec=",")
        parts.append(f"{what} blocked by a message that failed too often")
    if quarantined:
        what = counted(quarantined, "key is", "keys are", spec=",")
        parts.append(f"{what} in quarantine (what follows becomes dead letters)")
    if not parts:
        return ""
    return f"{', and '.join(parts)}: `partq keys release` ends that"


def parked_text(count: int, reason: str) -> str:
    """Say how many dead letters wait for a queue that is not there, and why."""
    what = counted(count, "dead letter waits", "dead letters wait")
    return f"{what} for the dead-letter queue, and deliveries continue: {reason}"
