"""What the oracle knows of what is stored: logs, the place of each group in them, leases."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from partq.core.model import Cause, PartitionId

GROUP: Final = "group"
"""The group whose pods come and go."""
SECOND: Final = "second"
"""Another one: a single pod, slower, so that it holds the logs back."""
IDLE: Final = "idle"
"""A third one, which stands still until the end: it has no pod."""

TAKEN_BACK: Final = frozenset({Cause.NACK, Cause.ACK_TIMEOUT})
"""Causes by which a message is redelivered under the same token."""

Token = tuple[int, int]
"""(broker epoch, epoch)"""


class Violation(NamedTuple):
    """What must never happen, and has."""

    invariant: str
    text: str
    at: float


class Stored(NamedTuple):
    """A batch in a log."""

    first: int
    broker_epoch: int
    data: bytes
    ids: tuple[int, ...]


class LeaseFacts(NamedTuple):
    """A broker's lease."""

    since: float
    """Since when it has been renewed without a gap in which others may think it over."""
    renewed_at: float


@dataclass(eq=False, slots=True)
class LogFacts:
    """The log of a partition, and its owner."""

    name: str
    meta: bytes
    stream: bytes
    groups: list["GroupPartitionFacts"] = field(default_factory=list)
    """Of each group."""
    # ---- what is stored
    broker_epoch: int = 0
    """Of the owner; 0: nobody owns it."""
    affirmed: int = 0
    """When its owner has affirmed it last."""
    owner: str = ""
    first: int = 0
    """The first offset that is still in it."""
    ids: list[int] = field(default_factory=list)
    """The message at each offset."""
    slots: list[int] = field(default_factory=list)
    """The slot of the message at each offset."""
    stored_at: list[float] = field(default_factory=list)
    """When the message at each offset was stored."""
    stored_ms: list[int] = field(default_factory=list)
    """The same by Redis's clock, as it is stored."""
    batches: dict[int, Stored] = field(default_factory=dict)
    is_gone: bool = False
    """The layout names the partition no more."""
    is_torn: bool = False
    """The store was rolled back, and no broker has claimed the partition since."""
    # ---- what is remembered whatever the store forgets
    top_broker_epoch: int = 0
    calls: set[tuple[int, int]] = field(default_factory=set)
    """(broker epoch, number) of the append calls that have stored something."""
    taken_over: int = 0
    """The broker epoch of the last claim that took the partition from a silent owner."""

    generation: int = field(init=False)
    """Number of the change of the partition count that has made it."""

    def __post_init__(self) -> None:
        self.generation = PartitionId.parse(self.name).generation

    def follow(self, *, is_gone: bool) -> None:
        """Learn whether the layout names the partition.

        A group that is away when it goes will begin in others, and never needs what was here.
        """
        if is_gone and not self.is_gone:
            for facts in self.groups:
                if not facts.is_there:
                    facts.done.update(self.ids)
        self.is_gone = is_gone

    def cut(self, end: int) -> list[int]:
        """End at an offset, as the store does; return the messages that it has lost."""
        lost = self.ids[end:]
        del self.ids[end:], self.slots[end:], self.stored_at[end:], self.stored_ms[end:]
        self.batches = {first: b for first, b in self.batches.items() if first < end}
        return lost


@dataclass(eq=False, slots=True)
class GroupPartitionFacts:
    """The place of a group in a partition."""

    name: str
    log: LogFacts
    group: str
    key: bytes
    """Where its cursor is stored."""
    done: set[int]
    """The messages that the group needs no more, in all partitions: some application has finished
    them, or they have expired, became dead letters, or lie before the group's beginning."""
    # ---- what is stored
    is_there: bool = False
    epoch: int = 0
    cursor: int = 0
    acked: frozenset[int] = frozenset()
    member: str = ""
    outbox: dict[int, int] = field(default_factory=dict)
    """The offset of each dead letter on its way, by its number."""
    # ---- since the group began here, or was reset
    sent: Counter[int] = field(default_factory=Counter)
    """How often the message at each offset was sent to a member."""
    letters: set[int] = field(default_factory=set)
    """The offsets that became dead letters."""
    acked_late: set[int] = field(default_factory=set)
    """The offsets that an ack named after they were given back."""
    reset_to: list[int] = field(default_factory=list)
    """Where resets have moved the cursor."""
    was_reset_alone: bool = False
    """The last reset was of this partition alone."""
    # ---- what is remembered whatever the store forgets
    top_epoch: int = 0
    old_epoch: int = 0
    """What was handed out under this epoch, or an older one, is of an earlier life of the group, or
    from before a reset: it counts no more."""
    old_broker_epoch: int = 0
    """The highest one at that time. The epochs of members that share a partition begin with those
    of its record at each broker, so these are told apart by both."""
    bound: tuple[int, bytes, bytes] | None = None
    """The epoch of the last bind, with broker epoch and number of the write: so a repeat is told
    from an epoch that is drawn twice."""
    commit_epoch: int = 0
    """That of the last commit: later ones are of binds."""
    last_commit: int = 0
    """The answer of the last commit of a handoff; a repeat has it, also after a registration."""
    top_number: int = 0
    """Of the last dead letter."""

    @property
    def old_token(self) -> Token:
        """The highest token of the group's earlier life there, or from before a reset."""
        return self.old_broker_epoch, self.old_epoch

    def end_life(self, epoch: int) -> None:
        """Begin again: what was handed out under an epoch, or an older one, counts no more."""
        self.old_broker_epoch, self.old_epoch = self.log.top_broker_epoch, epoch

    @property
    def mark(self) -> bytes:
        """The field of `meta` that says what the group still needs of the log."""
        return b"mark:" + self.group.encode()

    def is_stored_done(self, offset: int) -> bool:
        """Say whether an offset is acknowledged, as stored."""
        return offset < self.cursor or offset in self.acked

    def place_of(self, offset: int) -> str:
        """Return the name of the place of the key of the message at an offset."""
        slots = self.log.slots
        if offset < len(slots):
            return f"{self.name}@{slots[offset]}"
        # The store has forgotten the message since it was sent, and what its key was.
        return f"{self.name}@forgotten-{offset}"

    def is_done(self, offset: int) -> bool:
        """Say whether the group needs the message at an offset no more."""
        ids = self.log.ids
        return offset < len(ids) and ids[offset] in self.done


def facts_name(partition: PartitionId | str, group: str) -> str:
    """Return the name of the place of a group in a partition; of `GROUP` that of the partition."""
    return str(partition) if group == GROUP else f"{partition}/{group}"


def judge_marks(
    log: LogFacts,
    read_hash: Callable[[bytes], Mapping[bytes, bytes]],
    fail: Callable[[str, str], None],
) -> None:
    """Whatever was called: no group has less in the log than it needs, or goes back in it."""
    fields = read_hash(log.meta)
    for facts in log.groups:
        if not facts.is_there or log.is_gone or not fields:
            continue
        trimmed, mark, end = (int(fields[each]) for each in (b"trimmed", facts.mark, b"next"))
        cursor = int(read_hash(facts.key)[b"cursor"])
        if not trimmed <= mark <= cursor <= end:
            fail(
                "marks",
                f"{facts.name}: {trimmed} to {end} are in the log, marked {mark}, its "
                f"cursor is {cursor}",
            )
        if mark > min(facts.outbox.values(), default=mark):
            fail("marks", f"{facts.name}: marked {mark}, {facts.outbox} wait to be sent")
        if cursor < facts.cursor:
            fail("S2", f"{facts.name}: the cursor goes from {facts.cursor} to {cursor}")
