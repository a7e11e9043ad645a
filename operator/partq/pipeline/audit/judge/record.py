"""The judge of one partition's record: fed line by line, it says what is wrong as it sees it."""

from collections.abc import Iterable

from partq.pipeline.audit.judge.chain import ChainJudge, RecordGroup
from partq.pipeline.audit.judge.changes.partition_changes import ChangeJudge
from partq.pipeline.audit.judge.finding import AuditFinding
from partq.pipeline.audit.judge.groups.history import LATER
from partq.pipeline.audit.judge.intervals import IntervalMap
from partq.pipeline.audit.judge.lines import RecordLine, parts_of
from partq.pipeline.audit.judge.outcome import (
    MAX_OFFSET,
    DeliveryStall,
    GroupTotals,
    Handoff,
    HolderSpell,
    OwnedRange,
    PartitionOutcome,
    PublishedRange,
    RecordedBatch,
    RecordedLog,
    RecordHead,
    Redelivered,
    UnrecordedRange,
)
from partq.pipeline.audit.judge.producers import ProducerJudge
from partq.pipeline.audit.judge.segment import SegmentJudge

MAX_CHANGES = 2_000
"""Changes of holder of one group, and claims, that are kept for the page."""
MAX_TIMES = 8
"""How often a publishing of the same offsets is told apart."""

_COUNTED = {
    "publish": "published",
    "deliver": "delivered",
    "ack": "acknowledged",
    "dead_letter": "dead_lettered",
    "expired": "expired",
}


class RecordJudge:
    """Judges the record of one partition.

    It holds what is open: ranges of offsets with one history, which fall together as acks come and
    the log is trimmed. Of each stored batch it keeps what its messages are compared with: a line,
    and two bytes per message.

    Args:
        partition: its name.
        is_from_start: the record is there from its beginning: what lacks there is a fault.
        expected: a group that has to be in it; None: nothing is known of it.
    """

    def __init__(
        self, partition: str, *, is_from_start: bool, expected: RecordHead | None = None
    ) -> None:
        self.partition = partition
        self.findings: list[AuditFinding] = []
        """What was found since this list was emptied last."""
        self.repeats: list[Redelivered] = []
        """What was delivered again, likewise."""
        self._is_from_start = is_from_start
        self._outcome = PartitionOutcome(partition)
        self._holders: dict[str, list[HolderSpell]] = {}
        self._stalls: dict[str, DeliveryStall] = {}
        self._groups: dict[str, GroupTotals] = {}
        self._claims: list[tuple[int, str]] = []
        self._chain = ChainJudge(
            partition, self.found, is_from_start=is_from_start, expected=expected
        )
        self._producers = ProducerJudge(partition, self.found)
        self._segment: SegmentJudge | None = None
        self._segment_count = 0
        self._published: IntervalMap[tuple[int, ...]] = IntervalMap()
        """Offsets → the broker epochs that they were published under."""
        self._batches: list[RecordedBatch] = []
        self._areas: list[tuple[int, int]] = []
        self._unrecorded: list[UnrecordedRange] = []
        self._stop: int | None = None
        """The end of the log, as far as the record tells."""
        self._changes = ChangeJudge(partition, self.found, self._batches)
        self._is_off = False
        self._began: RecordGroup | None = None
        """The group that the segment begins with, if the record was off before it."""
        self._handoffs: list[Handoff] = []
        self._owned: list[OwnedRange] = []

    def found(self, finding: AuditFinding) -> None:
        """Take a finding."""
        self.findings.append(finding)

    def repeated(self, row: Redelivered) -> None:
        """Take messages that were delivered again."""
        self.repeats.append(row)

    def changed(self, group: str, member: str, at_ms: int) -> HolderSpell:
        """Return where to note the signs of life of the member that holds it from now on."""
        spells = self._holders.setdefault(group, [])
        if spells and spells[-1].member == member:
            return spells[-1]
        spell = HolderSpell(member, at_ms)
        if len(spells) < MAX_CHANGES:
            spells.append(spell)
        return spell

    def judge(self, lines: Iterable[RecordLine]) -> None:
        """Judge lines in the order of sequence and place; all of one sequence in one call."""
        for group in self._chain.judge(lines):
            self._judge(group)

    def finish(self, record_stop: int | None = None) -> PartitionOutcome:
        """Judge what is left open, and return the rest of what was found.

        `record_stop`: how far the archive says that it has the record; None: to its last group.
        """
        for group in self._chain.finish(record_stop):
            self._judge(group)
        self._end_segment(is_last=True)
        outcome = self._outcome
        outcome.holders, outcome.claims = self._holders, self._claims
        outcome.stalls = list(self._stalls.values())
        outcome.groups = self._groups
        outcome.handoffs = self._handoffs
        outcome.head = self._chain.head
        outcome.changes = self._changes.finish()
        outcome.log = RecordedLog(
            self.partition,
            published=[
                PublishedRange(first, stop, epoch)
                for first, stop, epochs in self._published
                for epoch in epochs
            ],
            areas=self._areas,
            unrecorded=self._unrecorded,
            stop=self._stop,
            batches=self._batches,
            owned=self._owned,
            dropped=frozenset(self._chain.dropped),
        )
        return outcome

    def _judge(self, group: RecordGroup) -> None:
        lines = group.lines
        one = lines[0]
        begins = one.kind == "begin" and not one.group
        # Where a record was turned off and on again, what happened meanwhile is not in it.
        if self._segment is None or group.begins_segment or (begins and group.sequence > 0):
            self._end_segment(is_last=False)
            is_late = self._segment_count > 0 or self._chain.starts != 0
            self._segment = SegmentJudge(self.partition, self._segment_count, self, is_late=is_late)
            self._segment_count += 1
            # Else groups are missing in front of it, which is told as such.
            is_known = begins or group.sequence == 0 or not self._is_from_start
            self._began = group if is_known else None
        segment = self._segment
        for line in lines:
            if not line.group and line.kind in ("begin", "end"):
                self._is_off = line.kind == "end"
            self._outcome.totals.records += 1
            for part in parts_of(line):
                self._count(part, is_stray=segment.judge(part))
                if not segment.is_of_removed:
                    self._changes.judge(part, is_late=segment.state.is_late)

    def _end_segment(self, *, is_last: bool) -> None:
        segment, self._segment = self._segment, None
        if segment is None:
            return
        segment.finish(is_last=is_last)
        area = segment.area()
        if area is not None:
            self._note_area(*area)
        if is_last and self._is_off and self._stop is not None:
            state = segment.state
            self._unrecorded.append(
                UnrecordedRange(self._stop, MAX_OFFSET, state.last_sequence, state.last_ms)
            )
        self._handoffs += segment.handoffs
        self._owned += segment.owned
        for name, totals in segment.totals.items():
            self._groups.setdefault(name, GroupTotals()).add(totals)
        for stall in segment.stalls:
            known = self._stalls.get(stall.group)
            if known is None or stall.length_ms > known.length_ms:
                self._stalls[stall.group] = stall

    def _note_area(self, first: int, stop: int) -> None:
        before, began = self._stop or 0, self._began
        if began is not None and before < first:
            self._unrecorded.append(UnrecordedRange(before, first, began.sequence, began.at_ms))
        if first < stop:
            self._areas.append((first, stop))
        self._stop = max(before, stop)

    def _count(self, line: RecordLine, *, is_stray: bool) -> None:
        totals, kind = self._outcome.totals, line.kind
        totals.from_ms = min(totals.from_ms or line.at_ms, line.at_ms)
        totals.until_ms = max(totals.until_ms or line.at_ms, line.at_ms)
        if kind == "publish":
            self._publish(line)
        elif kind in ("schedule", "known_id"):
            self._producers.use_up(line, self._segment_count)
        elif kind == "claim" and len(self._claims) < MAX_CHANGES:
            self._claims.append((line.at_ms, line.broker))
        name = _COUNTED.get(kind)
        if name is not None and line.flags not in LATER:
            messages = line.stop - line.first
            setattr(totals, name, getattr(totals, name) + messages)
            if not is_stray:
                self._outcome.pace.add(name, line.group, line.at_ms, messages)

    def _publish(self, line: RecordLine) -> None:
        if not 0 <= line.first < line.stop:
            return  # no broker writes that: the hash of the group tells it
        self._producers.publish(line, self._segment_count)
        epoch = line.append_broker_epoch
        self._batches.append(
            RecordedBatch(
                line.first,
                line.stop,
                epoch,
                line.sequence,
                line.at_ms,
                line.content_crc,
                line.slots,
            )
        )

        def change(first: int, stop: int, old: tuple[int, ...] | None) -> tuple[int, ...]:
            return (epoch,) if old is None else (*old, epoch)[-MAX_TIMES:]

        self._published.update(line.first, line.stop, change)
