"""What the page shows, as plain values in amounts that a page can hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from partq.pipeline.audit.grouping import FindingGroup
from partq.pipeline.audit.judge.outcome import Handoff

MAX_FINDINGS = 200
MAX_MARKS = 60
MAX_HANDOFFS = 20
MAX_LANES = 32
MAX_SPELLS = 2_000
MAX_PAUSES = 10_000
BUCKETS = 160


@dataclass(frozen=True, slots=True)
class Spell:
    """A member held a partition of a group for some time."""

    lane: str
    member: str
    from_ms: int
    seen_ms: int
    """Its last sign of life."""
    until_ms: int
    """When the next one took the partition up."""


@dataclass(frozen=True, slots=True)
class FindingMark:
    """Where a line of findings begins, among the owners over time."""

    number: int
    """Of the line, from 1."""
    lane: str
    at_ms: int
    is_fault: bool


@dataclass(frozen=True, slots=True)
class PaceSeries:
    """What happened per bucket of time, and what was still open after it."""

    from_ms: int
    bucket_ms: int
    published: Sequence[int]
    delivered: Sequence[int]
    done: Sequence[int]
    lag: Mapping[str, Sequence[int]]
    """Group → messages published and not done with."""


@dataclass(frozen=True, slots=True)
class HandoffPause:
    """How long a partition was paused for a handoff that went through."""

    length_ms: int
    is_forced: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything on the page that is not in the verdict."""

    pace: PaceSeries
    spells: Sequence[Spell]
    lanes: int
    """Partitions that a member of a group has held; `spells` has the first `MAX_LANES` at most."""
    claims: Sequence[tuple[int, str]]
    """When a broker claimed a partition again, and which broker."""
    pauses: Sequence[HandoffPause]
    findings: Sequence[FindingGroup]
    """One for each kind, partition and owner; what may have caused the others first."""
    finding_lines: int
    """How many there are; `findings` has the first `MAX_FINDINGS` at most."""
    marks: Sequence[FindingMark]
    slowest: Sequence[Handoff]
    """The handoffs with the longest pauses."""
