"""What an engine is given, and what it gives back, whatever reads the archive."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, Self

from partq.core.model import PartitionId
from partq.pipeline.audit.archived.log import MessageReach
from partq.pipeline.audit.archived.messages import MessageOutcome
from partq.pipeline.audit.judge.finding import AuditFinding
from partq.pipeline.audit.judge.outcome import (
    PartitionOutcome,
    RecordedLog,
    RecordHead,
    Redelivered,
)
from partq.pipeline.manifest import ArchiveState, DataFile, Stream

Place = tuple[str, int]
"""A partition, and an offset."""


@dataclass(frozen=True)
class AuditScope:
    """What is to be judged of an archive."""

    queue: str | None
    """The name of the queue that the archive is of; None: not known."""
    state: ArchiveState
    with_messages: bool
    """Compare the record with the archived messages, too."""
    is_from_start: bool
    """What the record lacks before its first line is a fault."""
    heads: Mapping[str, RecordHead] | None = None
    """Partition → a group that an earlier audit saw; None: none is given."""

    @cached_property
    def _files(self) -> Mapping[tuple[Stream, str], list[DataFile]]:
        found: dict[tuple[Stream, str], list[DataFile]] = {}
        for each in self.state.files.values():
            found.setdefault((each.stream, each.partition), []).append(each)
        return found

    def files(self, stream: Stream, partition: str) -> Sequence[DataFile]:
        """Return the files that hold rows of a stream of a partition."""
        return self._files.get((stream, partition), [])

    @property
    def expected(self) -> Mapping[str, RecordHead]:
        """Partition → a group that an earlier audit saw."""
        return self.heads or {}

    def not_expected(self) -> Sequence[str] | None:
        """Return the partitions for which no head is given; None: heads are given for none."""
        if self.heads is None:
            return None
        return [each for each in self.partitions() if each not in self.heads]

    @property
    def has_record(self) -> bool:
        """Whether the archive has a record of anything, or says so."""
        told = (self.state.positions, self.state.beginnings)
        return any(each.get("audit") for each in told) or any(
            each.stream == "audit" for each in self.state.files.values()
        )

    @property
    def streams(self) -> tuple[Stream, ...]:
        """What is read of the archive."""
        return ("audit", "messages") if self.with_messages else ("audit",)

    def without(self, paths: frozenset[str]) -> Self:
        """Return what is to be judged without some files, which cannot be read."""
        files = {path: each for path, each in self.state.files.items() if path not in paths}
        return replace(self, state=replace(self.state, files=files))

    def partitions(self) -> list[str]:
        """Return the partitions of which there are rows, or a record by the archive's entries."""
        files = {each.partition for each in self.state.files.values() if each.stream == "audit"}
        told = (self.state.positions, self.state.beginnings)
        named = {partition for each in told for partition in each.get("audit", {})}
        if self.with_messages:
            of_state = self.state.files.values()
            files |= {each.partition for each in of_state if each.stream == "messages"}
        return sorted(files | named | set(self.expected), key=PartitionId.parse)

    def record_stop(self, partition: str) -> int | None:
        """Return how far the archive says that it has the record."""
        position = self.state.positions.get("audit", {}).get(partition)
        return None if position is None else position.offset

    def reach(self, partition: str) -> MessageReach:
        """Return how far the archive says that it has the messages."""
        position = self.state.positions.get("messages", {}).get(partition)
        return MessageReach(
            queue=self.queue,
            is_partial=not self.is_from_start,
            first=self.state.beginnings.get("messages", {}).get(partition),
            stop=None if position is None else position.offset,
            gaps=self._gaps(partition, is_undecodable=False),
            undecodable=self._gaps(partition, is_undecodable=True),
        )

    def _gaps(self, partition: str, *, is_undecodable: bool) -> list[tuple[int, int]]:
        return [
            (each.first, each.stop)
            for each in self.state.gaps
            if (each.stream, each.partition) == ("messages", partition)
            and bool(each.undecodable_path) == is_undecodable
        ]


@dataclass(slots=True)
class JudgedRecord:
    """What the record of a partition came to."""

    outcome: PartitionOutcome
    findings: list[AuditFinding]
    repeats: list[Redelivered]


@dataclass(slots=True)
class JudgedPartition:
    """What a partition came to, its messages included."""

    outcome: PartitionOutcome
    findings: list[AuditFinding] = field(default_factory=list)
    repeats: Sequence[Redelivered] = ()
    archived: int | None = None
    """How many messages there are; None: they were not looked at."""
    compared: int | None = None
    """Of how many the content is that which was stored, by the checksum of their batch."""

    @classmethod
    def of(cls, record: JudgedRecord, messages: MessageOutcome | None) -> "JudgedPartition":
        """Join what its record and its messages came to."""
        if messages is None:
            return cls(record.outcome, record.findings, record.repeats)
        messages.note_continued(record.outcome.handoffs)
        findings = [*record.findings, *messages.findings]
        return cls(record.outcome, findings, record.repeats, messages.count, messages.compared)


class AuditEngine(Protocol):
    """Reads an archive and has it judged."""

    def judge(self, scope: AuditScope) -> Iterator[JudgedPartition]:
        """Yield what each partition came to, in the order of partitions."""

    def keys(self, scope: AuditScope, places: Iterable[Place]) -> Mapping[Place, str]:
        """Return the keys of messages; those that have none, or are not there, are left out."""

    def published_at(
        self, scope: AuditScope, places: Iterable[Place]
    ) -> Mapping[Place, tuple[int, int]]:
        """Return sequence and time of the last records up to these offsets that tell publishing."""


def log_of(record: JudgedRecord) -> RecordedLog:
    """Return what a judged record says of the log."""
    return record.outcome.log or RecordedLog(record.outcome.partition)
