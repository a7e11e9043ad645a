"""Sums up what partitions came to: to a verdict of a few lines, and what a page can hold."""

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from partq.core.model import PartitionId
from partq.pipeline.audit.engines.port import JudgedPartition
from partq.pipeline.audit.figures import (
    BUCKETS,
    MAX_FINDINGS,
    MAX_HANDOFFS,
    MAX_LANES,
    MAX_MARKS,
    MAX_PAUSES,
    MAX_SPELLS,
    Figures,
    FindingMark,
    HandoffPause,
    PaceSeries,
    Spell,
)
from partq.pipeline.audit.grouping import FindingGroup, group_findings, root_first
from partq.pipeline.audit.judge.finding import AuditFinding
from partq.pipeline.audit.judge.outcome import (
    DeliveryStall,
    GroupTotals,
    Handoff,
    HolderSpell,
    RecordHead,
)
from partq.pipeline.audit.judge.pace import PaceCounts
from partq.pipeline.audit.schema import FAULT
from partq.pipeline.audit.verdict import (
    AuditTotals,
    AuditVerdict,
    Duplicates,
    FindingCount,
    HandoffCount,
)

MAX_GROUPS = 1_000
"""Lines of each table of the verdict."""

_SUMMED = ("records", "published", "delivered", "acknowledged", "dead_lettered", "expired")


@dataclass(slots=True)
class _HandoffSum:
    count: int = 0
    cut: int = 0
    continued: int | None = None
    pauses_ms: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Lane:
    group: str
    partition: str
    spells: list[HolderSpell]
    has_faults: bool

    @property
    def place(self) -> tuple[str, PartitionId]:
        """What lanes are ordered by."""
        return self.group, PartitionId.parse(self.partition)

    @property
    def rank(self) -> tuple[bool, str, PartitionId]:
        """What it depends on whether a lane is shown: where faults are, one wants to see it."""
        return not self.has_faults, *self.place


class AuditTally:
    """Takes what one partition after the other came to."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._archived: int | None = None
        self._compared: int | None = None
        self._partitions = 0
        self._heads: dict[str, RecordHead] = {}
        self._from_ms: int | None = None
        self._until_ms: int | None = None
        self._found: Counter[tuple[str, str, str]] = Counter()
        self._shown: list[FindingGroup] = []
        self._line_count = 0
        self._stalls: list[DeliveryStall] = []
        self._groups: dict[str, GroupTotals] = {}
        self._repeats: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._handoffs: dict[tuple[str, str, bool], _HandoffSum] = {}
        self._pauses: list[HandoffPause] = []
        self._slowest: list[tuple[int, int, Handoff]] = []
        self._lanes: list[_Lane] = []
        self._lane_count = 0
        self._claims: list[tuple[int, str]] = []
        self._pace = PaceCounts()

    def add(self, judged: JudgedPartition) -> None:
        """Count a partition in."""
        outcome, totals = judged.outcome, judged.outcome.totals
        if totals.records:
            self._partitions += 1
        if outcome.head is not None:
            self._heads[outcome.partition] = outcome.head
        for name in _SUMMED:
            self._sums[name] += getattr(totals, name)
        if judged.archived is not None:
            self._archived = (self._archived or 0) + judged.archived
        if judged.compared is not None:
            self._compared = (self._compared or 0) + judged.compared
        for at_ms in (totals.from_ms, totals.until_ms):
            if at_ms is not None:
                self._from_ms = min(self._from_ms or at_ms, at_ms)
                self._until_ms = max(self._until_ms or at_ms, at_ms)
        self.add_findings(judged.findings)
        for row in judged.repeats:
            key = row.group, row.cause, row.event or ""
            events, messages = self._repeats.get(key, (0, 0))
            self._repeats[key] = (events + (row.event is not None), messages + row.messages)
        for handoff in outcome.handoffs:
            self._add_handoff(handoff)
        for name, done in outcome.groups.items():
            self._groups.setdefault(name, GroupTotals()).add(done)
        self._stalls += outcome.stalls
        self._stalls.sort(key=_longest_first)
        del self._stalls[MAX_GROUPS:]
        held = {group: found for group, found in outcome.holders.items() if _is_held(found)}
        self._lane_count += len(held)
        has_faults = any(each.severity == FAULT for each in judged.findings)
        self._lanes += [
            _Lane(group, outcome.partition, list(found), has_faults)
            for group, found in held.items()
        ]
        self._lanes = sorted(self._lanes, key=lambda lane: lane.rank)[:MAX_LANES]
        self._claims = sorted([*self._claims, *outcome.claims])[:MAX_SPELLS]
        self._pace.merge(outcome.pace)

    def verdict(self) -> AuditVerdict:
        """Return the verdict on all that was added."""
        found = sorted(self._found.items(), key=lambda item: (item[0][2], -item[1], item[0][1]))
        repeats = sorted(self._repeats.items(), key=lambda item: (item[0][0], -item[1][1]))
        return AuditVerdict(
            totals=AuditTotals(
                partitions=self._partitions,
                archived=self._archived,
                compared=self._compared,
                from_ms=self._from_ms or 0,
                until_ms=self._until_ms or 0,
                **{name: self._sums[name] for name in _SUMMED},
            ),
            heads=self._heads,
            groups=dict(sorted(self._groups.items())[:MAX_GROUPS]),
            found=[FindingCount(*kind, count) for kind, count in found[:MAX_GROUPS]],
            duplicates=[Duplicates(*key, *counts) for key, counts in repeats[:MAX_GROUPS]],
            handoffs=[
                HandoffCount(
                    *key,
                    each.count,
                    len(each.pauses_ms),
                    sorted(each.pauses_ms)[(len(each.pauses_ms) - 1) // 2]
                    if each.pauses_ms
                    else None,
                    max(each.pauses_ms, default=None),
                    each.cut,
                    each.continued,
                )
                for key, each in sorted(self._handoffs.items())[:MAX_GROUPS]
            ],
            stalls=tuple(self._stalls),
        )

    def figures(self) -> Figures:
        """Return what the page shows."""
        slowest = sorted(self._slowest, key=lambda each: each[:2], reverse=True)
        findings = root_first(self._shown)[:MAX_FINDINGS]
        return Figures(
            pace=self._pace_series(),
            spells=self._spells(),
            lanes=self._lane_count,
            claims=self._claims,
            pauses=self._pauses,
            findings=findings,
            finding_lines=self._line_count,
            marks=self._marks(findings),
            slowest=[handoff for _, _, handoff in slowest],
        )

    def add_findings(self, findings: Iterable[AuditFinding]) -> None:
        """Count findings in, of a partition or of the archive as a whole."""
        found = list(findings)
        for each in found:
            self._found[each.check, each.what, each.severity] += 1
        lines = group_findings(found)
        self._line_count += len(lines)
        self._shown += lines
        if len(self._shown) > 10 * MAX_FINDINGS:
            self._shown = root_first(self._shown)[:MAX_FINDINGS]

    def _add_handoff(self, handoff: Handoff) -> None:
        is_forced, kind = handoff.is_forced, handoff.kind
        key = handoff.group, kind, is_forced
        known = self._handoffs.setdefault(key, _HandoffSum())
        known.count += 1
        known.cut += handoff.messages_cut
        if handoff.keys_continued is not None:
            known.continued = (known.continued or 0) + handoff.keys_continued
        length_ms = handoff.pause_ms
        if length_ms is None:
            return
        known.pauses_ms.append(length_ms)
        if kind != "commit":
            return
        if len(self._pauses) < MAX_PAUSES:
            self._pauses.append(HandoffPause(length_ms, is_forced))
        entry = (length_ms, -len(self._pauses), handoff)
        if len(self._slowest) < MAX_HANDOFFS:
            heapq.heappush(self._slowest, entry)
        elif entry[:2] > self._slowest[0][:2]:
            heapq.heapreplace(self._slowest, entry)

    def _spells(self) -> list[Spell]:
        """Return who held what; a change of a member to itself does not count."""
        names = self._lane_names()
        until_ms = self._until_ms or 0
        spells = []
        for lane in self._lanes:
            ends = [each.from_ms for each in lane.spells[1:]]
            for each, end in zip(lane.spells, [*ends, None], strict=True):
                if not each.member:
                    continue
                if end is None:  # of the last one, the record does not say that it has gone
                    end, seen_ms = until_ms, until_ms
                else:
                    seen_ms = min(end, each.from_ms if each.seen_ms is None else each.seen_ms)
                name = names[lane.partition, lane.group]
                spells.append(Spell(name, each.member, each.from_ms, seen_ms, end))
        return sorted(spells, key=lambda each: each.from_ms)[:MAX_SPELLS]

    def _marks(self, findings: Iterable[FindingGroup]) -> list[FindingMark]:
        """Return where to mark lines; those without a group are marked at its partition's first."""
        names = self._lane_names()
        of_partition: dict[str, str] = {}
        for (partition, _), name in names.items():
            of_partition.setdefault(partition, name)
        marks = []
        for number, each in enumerate(findings, 1):
            lane = names.get((each.partition, each.group), of_partition.get(each.partition))
            if lane is not None and each.at_ms is not None:
                marks.append(FindingMark(number, lane, each.at_ms, each.severity == FAULT))
        return marks[:MAX_MARKS]

    def _lane_names(self) -> dict[tuple[str, str], str]:
        """Return partition and group → name, in the order in which lanes are shown."""
        lanes = sorted(self._lanes, key=lambda lane: lane.place)
        several = len({lane.group for lane in lanes}) > 1
        return {
            (lane.partition, lane.group): f"{lane.partition} {lane.group}"
            if several
            else lane.partition
            for lane in lanes
        }

    def _pace_series(self) -> PaceSeries:
        from_ms, until_ms = self._from_ms or 0, self._until_ms or 0
        bucket_ms = max(1, -(-(until_ms - from_ms + 1) // BUCKETS))
        published, delivered, done = ([0] * BUCKETS for _ in range(3))
        finished = {group: [0] * BUCKETS for _, group in sorted(self._pace.counts) if group}
        for (what, group), series in self._pace.counts.items():
            for bucket, messages in series.items():
                at_ms = bucket * self._pace.width_ms
                at = max(0, min(BUCKETS - 1, (at_ms - from_ms) // bucket_ms))
                if what == "published":
                    published[at] += messages
                elif what == "delivered":
                    delivered[at] += messages
                elif group:  # a forged record may name none
                    done[at] += messages
                    finished[group][at] += messages
        lag = {}
        for group, steps in finished.items():
            open_ones, line = 0, []
            for came, went in zip(published, steps, strict=True):
                open_ones += came - went
                line.append(max(0, open_ones))
            lag[group] = line
        return PaceSeries(from_ms, bucket_ms, published, delivered, done, lag)


def _is_held(spells: Iterable[HolderSpell]) -> bool:
    """Return whether a member held it; a group that only moves its cursor holds no partition."""
    return any(each.member for each in spells)


def _longest_first(stall: DeliveryStall) -> tuple[int, PartitionId, str]:
    return -stall.length_ms, PartitionId.parse(stall.partition), stall.group
