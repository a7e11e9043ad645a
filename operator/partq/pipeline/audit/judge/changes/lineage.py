"""Compares what partitions say of changes of the partition count: seals, openings and gates."""

from collections.abc import Iterator

import numpy as np

from partq.core.model import PartitionId
from partq.pipeline.audit.judge.chain import MAX_CLOCK_STEP_MS
from partq.pipeline.audit.judge.finding import GATE, LINEAGE, AuditFinding, finding
from partq.pipeline.audit.judge.recorded_changes import (
    Passage,
    RecordedChanges,
    RecordedGate,
    RecordedOpening,
    mask_of,
)


class LineageJudge:
    """Takes what the record of each partition says, and judges all of it in the end.

    What a record cannot tell, as it lacks its beginning or its end, is no finding: other checks
    report that.
    """

    def __init__(self) -> None:
        self._records: dict[str, RecordedChanges] = {}

    def add(self, recorded: RecordedChanges) -> None:
        """Take a partition in."""
        self._records[recorded.partition] = recorded

    def findings(self) -> Iterator[AuditFinding]:
        """Yield what does not fit together."""
        changes = {number for each in self._records.values() for number in each.seals}
        for partition in sorted(self._records, key=PartitionId.parse):
            recorded = self._records[partition]
            if recorded.opening is not None:
                yield from self._judge_opening(recorded, recorded.opening)
            elif PartitionId.parse(partition).generation in changes:
                yield from _without_opening(recorded)
            for gate in recorded.gates:
                yield from self._judge_gate(recorded, gate)
        yield from self._judge_slots()

    # ---- openings -------------------------------------------------------------------------------

    def _judge_opening(
        self, recorded: RecordedChanges, opening: RecordedOpening
    ) -> Iterator[AuditFinding]:
        generation = PartitionId.parse(recorded.partition).generation
        for name, told in opening.predecessors.items():
            giver = self._records.get(name)
            if giver is None or not giver.is_whole:
                continue
            seal = giver.seals.get(generation)
            if seal is not None and seal.stop == told.stop:
                continue
            # A record that was archived less far than this one may have the seal in its next part.
            if seal is None and giver.end_ms <= opening.at_ms + MAX_CLOCK_STEP_MS:
                continue
            says = "has no such seal" if seal is None else f"was sealed at {seal.stop}"
            yield _at_opening(
                recorded,
                opening,
                "opened_before_seal",
                f"it was opened in group {opening.sequence} as if {name} were sealed at "
                f"{told.stop} for slots {told.slots or '?'}, and the record of {name} {says}: both "
                "may have stored messages of these slots at the same time",
            )

    def _judge_slots(self) -> Iterator[AuditFinding]:
        """Report slots that two partitions have got by one change, or that a giver kept."""
        by_giver: dict[tuple[str, int], list[tuple[RecordedChanges, RecordedOpening, str]]] = {}
        for partition in sorted(self._records, key=PartitionId.parse):
            recorded = self._records[partition]
            opening = recorded.opening
            generation = PartitionId.parse(partition).generation
            for name, told in ({} if opening is None else opening.predecessors).items():
                assert opening is not None  # noqa: S101  it has predecessors
                by_giver.setdefault((name, generation), []).append((recorded, opening, told.slots))
        for (name, generation), takers in by_giver.items():
            giver = self._records.get(name)
            seal = None if giver is None else giver.seals.get(generation)
            holders = [] if seal is None else [(f"{name}, which kept it", mask_of(seal.slots))]
            for recorded, opening, slots in takers:
                mask = mask_of(slots)
                for holder, other in holders:
                    twice = np.flatnonzero(other & mask)
                    if twice.size:
                        text = (
                            f"by change {generation} it has slot {twice[0]} from {name}, and so "
                            f"has {holder}: {twice.size} slots have two partitions"
                        )
                        yield _at_opening(recorded, opening, "slot_covered_twice", text)
                        break
                holders.append((recorded.partition, mask))

    # ---- gates ----------------------------------------------------------------------------------

    def _judge_gate(self, recorded: RecordedChanges, gate: RecordedGate) -> Iterator[AuditFinding]:
        generation = PartitionId.parse(recorded.partition).generation
        for name, told in gate.predecessors.items():
            giver = self._records.get(name)
            if giver is None or not giver.is_whole or giver.end < told.sequence:
                continue
            if generation not in giver.seals:
                continue  # the finding about the opening says that
            passages = giver.passages.get((gate.group, generation), [])
            if not any(_has(each, told.sequence, gate.at_ms) for each in passages):
                text = (
                    f"the gate of {gate.group} was opened in group {gate.sequence} as if it had "
                    f"done with {name} below {told.stop} by group {told.sequence} of its record; "
                    f"{_when_passed(passages, told.sequence)}"
                )
                yield _at_gate(recorded, gate, text)
            elif giver.opening is not None and not any(
                each.group == gate.group and each.sequence < told.sequence for each in giver.gates
            ):
                text = (
                    f"the gate of {gate.group} was opened in group {gate.sequence} after that of "
                    f"its predecessor {name}, which by group {told.sequence} was not open: there "
                    "may be messages in the predecessors of that one"
                )
                yield _at_gate(recorded, gate, text)


def _has(passage: Passage, sequence: int, at_ms: int) -> bool:
    """Whether it was true for the groups of a record below a sequence, which was read at a time.

    The cursor is read before the sequence, so a reset in between is no contradiction.
    """
    return passage.begin < sequence and (
        passage.end is None
        or passage.end >= sequence
        or passage.end_ms >= at_ms - MAX_CLOCK_STEP_MS
    )


def _when_passed(passages: list[Passage], sequence: int) -> str:
    later = next((each for each in passages if each.begin >= sequence), None)
    if later is None:
        return "by its record it had not"
    if later.first == later.stop:
        return f"by its record it was sealed in group {later.begin}"
    return (
        f"by its record the group did so in group {later.begin}, with offset {later.first}, of "
        f"slot {later.slot}"
    )


def _without_opening(recorded: RecordedChanges) -> Iterator[AuditFinding]:
    stored = recorded.stored
    if stored is None or not recorded.is_whole:
        return
    yield finding(
        LINEAGE,
        "published_before_open",
        recorded.partition,
        f"offset {stored.first}, of slot {stored.slot}, was stored, and the record has no opening "
        "of the partition",
        sequence=stored.sequence,
        at_ms=stored.at_ms,
        first=stored.first,
        stop=stored.stop,
    )


def _at_opening(
    recorded: RecordedChanges, opening: RecordedOpening, what: str, detail: str
) -> AuditFinding:
    stored = recorded.stored
    return finding(
        LINEAGE,
        what,
        recorded.partition,
        detail,
        sequence=opening.sequence,
        at_ms=opening.at_ms,
        first=None if stored is None else stored.first,
        stop=None if stored is None else stored.stop,
    )


def _at_gate(recorded: RecordedChanges, gate: RecordedGate, detail: str) -> AuditFinding:
    stored = recorded.stored
    return finding(
        GATE,
        "gate_too_early",
        recorded.partition,
        detail,
        group=gate.group,
        sequence=gate.sequence,
        at_ms=gate.at_ms,
        first=None if stored is None else stored.first,
        stop=None if stored is None else stored.stop,
    )
