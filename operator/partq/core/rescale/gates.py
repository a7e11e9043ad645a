"""When a group may have messages of a new partition: what it has to read before them."""

from collections.abc import Mapping
from typing import NamedTuple

from partq.core.model import PartitionId
from partq.excerpts import counted


class GroupProgress(NamedTuple):
    """A group in a predecessor, as its record says."""

    cursor: int
    is_gate_open: bool
    outbox_count: int = 0
    """Dead letters that wait."""
    member: str = ""
    """Empty: none."""
    reset: str = ""
    """The last reset of all partitions that has moved the cursor; empty: none has."""
    blocked: tuple[int, ...] = ()
    """The slots that wait until they are released."""
    quarantined: tuple[int, ...] = ()
    """The slots whose messages become dead letters until they are released."""
    has_states: bool = False
    """Some keys have a state."""


class PredecessorView(NamedTuple):
    """A predecessor, as its record says."""

    sealed_at: int | None
    """The end of its log when the slots left it; None: it is not sealed."""
    trimmed: int
    groups: Mapping[str, GroupProgress]


def has_passed(predecessor: PredecessorView, group: str) -> bool:
    """Whether a group has done with all that a predecessor, and its predecessors, have for it.

    A closed gate says that its own predecessors are not passed; then the cursor says nothing: it
    is at the seal of a partition that was sealed empty. Dead letters that wait are done with.
    """
    view = predecessor.groups.get(group)
    return (
        predecessor.sealed_at is not None
        and view is not None
        and view.is_gate_open
        and view.cursor >= predecessor.sealed_at
    )


class GateHold(NamedTuple):
    """What a group has to do in a predecessor before it may have messages of the successor."""

    predecessor: PartitionId
    sealed_at: int | None
    """The end of its log when the slots left it; None: it is not sealed yet."""
    messages: int = 0
    """How many below that the group has not passed."""
    member: str = ""
    """The group's member in the predecessor; empty: none."""
    is_gated: bool = False
    """Its own predecessors come first."""
    is_awaiting_reset: bool = False
    """The reset that holds the gate has not moved the cursor in it yet."""
    blocked_keys: int = 0
    """How many keys wait there until they are released."""
    letters: int = 0
    """Dead letters that wait, of which keys in quarantine have later ones in the successor."""

    @property
    def text(self) -> str:
        """What it waits for, as a part of a sentence."""
        if self.sealed_at is None:
            return f"{self.predecessor}, whose broker has not sealed it yet"
        if self.is_awaiting_reset:
            return f"{self.predecessor}, which the reset of the group has not reached yet"
        if self.is_gated:
            return f"{self.predecessor}, which waits for its own predecessors"
        if self.letters:
            waiting = counted(self.letters, "dead letter", "dead letters")
            return f"{self.predecessor}: {waiting} of keys in quarantine on the way"
        count = counted(self.messages, "message", "messages")
        at = f"member {self.member}" if self.member else "no member"
        text = f"{self.predecessor}: {count} before offset {self.sealed_at}, at {at}"
        if self.blocked_keys:
            keys = counted(self.blocked_keys, "key is", "keys are")
            text += f", where {keys} blocked until `partq keys release`"
        return text


def find_holds(
    predecessors: Mapping[PartitionId, PredecessorView], group: str, reset: str = ""
) -> tuple[GateHold, ...]:
    """Return which predecessors keep a gate closed for a group, in order; none: it may be opened.

    Args:
        predecessors: those that the lineage still names.
        group: of the gate.
        reset: the one that holds the gate: it has to reach the predecessors first. Empty: none
            does, or its caller has gone.
    """
    holds = []
    for partition, view in sorted(predecessors.items()):
        found = view.groups.get(group)
        is_awaiting = bool(reset) and (found is None or found.reset != reset)
        is_passed = has_passed(view, group) and not is_awaiting
        # The dead letters of a key in quarantine arrive in order, also across the change.
        letters = found.outbox_count if is_passed and found is not None and found.quarantined else 0
        if is_passed and not letters:
            continue
        cursor = 0 if found is None else found.cursor
        holds.append(
            GateHold(
                partition,
                view.sealed_at,
                messages=max(0, (view.sealed_at or 0) - cursor),
                member="" if found is None else found.member,
                is_gated=found is not None and not found.is_gate_open,
                is_awaiting_reset=is_awaiting,
                blocked_keys=0 if found is None else len(found.blocked),
                letters=letters,
            )
        )
    return tuple(holds)
