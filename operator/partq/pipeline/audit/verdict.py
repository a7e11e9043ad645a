"""The verdict of an audit, and its figures, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from partq.pipeline.audit.judge.outcome import DeliveryStall, GroupTotals, RecordHead
from partq.pipeline.audit.schema import FAULT, INFORMATION, WARNING

CLEAN: Final = "clean"
FAULTS_FOUND: Final = "faults found"
INCOMPLETE: Final = "incomplete"

INCOMPLETE_KINDS: Final = frozenset({"missing_range", "missing_record", "no_record"})
"""Findings that say that something could not be judged."""


EVENTS: Final[Mapping[str, str]] = {
    "": "nothing that is recorded",
    "claim": "another broker took the partition over",
    "bind": "a connection was lost, and a member took the partition up again",
    "unbind": "a connection was lost, or what a member had was taken from it",
    "unlock": "the lock of a session ended",
    "register": "a member registered the partition",
    "commit": "the partition was handed over without a drain",
    "nack": "a member gave messages back, or their time for an ack was over",
    "reset": "the cursor was moved back",
}
"""Kind of record that a redelivery goes back to → what had happened, in words."""

OUTCOMES: Final[Mapping[str, str]] = {
    "commit": "handed over",
    "assignment": "assigned, nobody held it",
    "release": "given back, nobody got it",
    "cancel": "cancelled",
    "lapse": "lapsed",
    "broker_change": "ended by a change of the broker",
    "under_way": "under way at the end of the record",
    "no_end": "without an end",
    "gone": "ended as the group was removed",
    "not_known": "end not recorded",
}
"""How a handoff ended → the same in words."""


@dataclass(frozen=True, slots=True)
class FindingCount:
    """Findings of one kind."""

    check: str
    what: str
    severity: str
    count: int


@dataclass(frozen=True, slots=True)
class Duplicates:
    """What one group got more than once for one cause."""

    group: str
    cause: str
    event: str
    """What the cause goes back to, a kind of record such as `claim` or `commit`; "": nothing."""
    events: int
    messages: int


@dataclass(frozen=True, slots=True)
class HandoffCount:
    """Handoffs of one group that ended in one way."""

    group: str
    outcome: str
    """As of a handoff; a `commit` is from one member to another, of what nobody held it is an
    `assignment`, and to nobody a `release`."""
    is_forced: bool
    """It was taken from a member that did not finish, or was lost."""
    count: int
    paused: int
    """How many of them had the partition paused, and ended: those have a length."""
    median_pause_ms: int | None
    longest_pause_ms: int | None
    messages_cut: int
    keys_continued: int | None

    @property
    def text(self) -> str:
        """How they ended, in words."""
        told = OUTCOMES.get(self.outcome, self.outcome)
        return f"{told}, forced" if self.is_forced else told


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTotals:
    """How much was looked at."""

    partitions: int
    records: int
    published: int
    delivered: int
    acknowledged: int
    dead_lettered: int
    expired: int
    archived: int | None
    """None: the messages were not looked at."""
    compared: int | None = None
    """Of how many messages the archived content is that which was stored, by the checksum in the
    record of their batch; None: the messages were not looked at."""
    from_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerdict:
    """What an audit came to."""

    totals: AuditTotals
    groups: Mapping[str, GroupTotals] = field(default_factory=dict)
    """Groups that were not removed → what they have done with the messages."""
    found: Sequence[FindingCount] = field(default_factory=tuple)
    duplicates: Sequence[Duplicates] = field(default_factory=tuple)
    handoffs: Sequence[HandoffCount] = field(default_factory=tuple)
    stalls: Sequence[DeliveryStall] = field(default_factory=tuple)
    """The longest time without a delivery while there was lag, of each partition and group; the
    longest ones first."""
    heads: Mapping[str, RecordHead] = field(default_factory=dict)
    """Partition → the end of its record: kept elsewhere, a later audit finds that it was cut."""
    archived: Mapping[str, int] = field(default_factory=dict)
    """Partition → the offset below which the archive has its messages, for the same use; empty:
    the messages were not looked at."""
    not_expected: Sequence[str] | None = None
    """Partitions that the heads of an earlier audit say nothing of; None: no heads were given."""

    @property
    def text(self) -> str:
        """`clean`, `faults found` or `incomplete`."""
        faults = self.faults()
        if faults.keys() - INCOMPLETE_KINDS:
            return FAULTS_FOUND
        return INCOMPLETE if faults else CLEAN

    @property
    def is_clean(self) -> bool:
        """Whether everything was judged, and nothing is wrong."""
        return self.text == CLEAN

    def faults(self) -> Mapping[str, int]:
        """Return how many faults there are of each kind."""
        return {each.what: each.count for each in self.found if each.severity == FAULT}

    def count(self, severity: str) -> int:
        """Return how many findings there are of a severity."""
        return sum(each.count for each in self.found if each.severity == severity)

    def by_cause(self) -> Mapping[str, int]:
        """Return how many messages were redelivered, by cause."""
        counts: dict[str, int] = {}
        for each in self.duplicates:
            counts[each.cause] = counts.get(each.cause, 0) + each.messages
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def to_json(self) -> dict[str, object]:
        """Return it under stable names."""
        return {
            "verdict": self.text,
            "faults": self.count(FAULT),
            "warnings": self.count(WARNING),
            "informations": self.count(INFORMATION),
            "totals": asdict(self.totals),
            "groups": [{"group": name, **asdict(each)} for name, each in self.groups.items()],
            "findings": [asdict(each) for each in self.found],
            "duplicates": [asdict(each) for each in self.duplicates],
            "handoffs": [asdict(each) for each in self.handoffs],
            "stalls": [{**each._asdict(), "length_ms": each.length_ms} for each in self.stalls],
            "not_expected": None if self.not_expected is None else list(self.not_expected),
            "heads": {partition: head._asdict() for partition, head in self.heads.items()},
            "archived": dict(self.archived),
        }
