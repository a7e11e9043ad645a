"""Puts findings together that say the same of one partition and owner: a line for each cause."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from partq.core.model import PartitionId
from partq.pipeline.audit.judge.finding import AuditFinding
from partq.pipeline.audit.schema import FAULT, INFORMATION, KINDS, WARNING

MAX_EXAMPLES = 10
"""Findings of a line that are shown one by one."""

_SEVERITIES: Final = (FAULT, WARNING, INFORMATION)
_RANKS: Final = {what: rank for rank, what in enumerate(KINDS)}
_LATE = float("inf")


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """Findings of one kind in one partition, of one group and member.

    `first` to `stop`, the sequences and the times span all of them; None: no finding has one.
    """

    what: str
    severity: str
    partition: str
    group: str
    member: str
    count: int
    first: int | None
    stop: int | None
    sequence: int | None
    last_sequence: int | None
    at_ms: int | None
    last_ms: int | None
    examples: tuple[AuditFinding, ...]
    """The first ones, in the order of the record."""


def group_findings(findings: Iterable[AuditFinding]) -> list[FindingGroup]:
    """Return one line per kind, partition, group and member, in the order of `root_first`."""
    alike: dict[tuple[str, str, str, str, str], list[AuditFinding]] = {}
    for each in findings:
        key = (
            each.what,
            each.severity,
            each.partition or "",
            each.group or "",
            each.member or "",
        )
        alike.setdefault(key, []).append(each)
    return root_first(_group(*key, found) for key, found in alike.items())


def root_first(groups: Iterable[FindingGroup]) -> list[FindingGroup]:
    """Return lines in the order in which somebody wants to read them.

    The gravest come first. The lines of one partition stay together, in the order of its record:
    what comes first may have caused the others. The partition with the earliest finding comes
    first; of those with findings at the same time, the one with the lowest number.
    """
    lines = list(groups)
    began: dict[tuple[str, str], float] = {}
    for each in lines:
        block = (each.severity, each.partition)
        began[block] = min(began.get(block, _LATE), _or_late(each.at_ms))

    def place(each: FindingGroup) -> tuple[object, ...]:
        return (
            _SEVERITIES.index(each.severity),
            began[each.severity, each.partition],
            _number(each.partition),
            _or_late(each.sequence),
            _RANKS[each.what],
            each.group,
            each.member,
        )

    return sorted(lines, key=place)


def _group(
    what: str, severity: str, partition: str, group: str, member: str, found: list[AuditFinding]
) -> FindingGroup:
    sequences = [each.sequence for each in found if each.sequence is not None]
    times = [each.at_ms for each in found if each.at_ms is not None]
    firsts = [each.first for each in found if each.first is not None]
    stops = [each.stop for each in found if each.stop is not None]
    examples = heapq.nsmallest(
        MAX_EXAMPLES, found, key=lambda each: (_or_late(each.sequence), _or_late(each.first))
    )
    return FindingGroup(
        what=what,
        severity=severity,
        partition=partition,
        group=group,
        member=member,
        count=len(found),
        first=min(firsts, default=None),
        stop=max(stops, default=None),
        sequence=min(sequences, default=None),
        last_sequence=max(sequences, default=None),
        at_ms=min(times, default=None),
        last_ms=max(times, default=None),
        examples=tuple(examples),
    )


def _or_late(number: int | None) -> float:
    return _LATE if number is None else number


def _number(partition: str) -> tuple[int, int]:
    if not partition:
        return (-1, -1)
    number = PartitionId.parse(partition)
    return (number.generation, number.index)
