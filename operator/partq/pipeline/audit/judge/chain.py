"""Checks that the record is whole: numbered without a gap, linked, and as it was written."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from partq.pipeline.audit.judge.finding import CHAIN, Found, finding
from partq.pipeline.audit.judge.lines import RecordLine
from partq.pipeline.audit.judge.outcome import RecordHead
from partq.wire.audit import chain_of, encode_head

MAX_CLOCK_STEP_MS = 1_000
"""How far Redis's time may go back unmentioned: servers whose clocks are kept differ by less."""


@dataclass(slots=True)
class RecordGroup:
    """The lines of one group, each place once."""

    sequence: int
    chain: str
    previous: str
    at_ms: int
    lines: list[RecordLine]
    """One for each place, in order."""
    copies: int = 0
    """Lines that are in the archive again."""
    others: list[RecordLine] = field(default_factory=list)
    """Lines that are not the one at their place."""
    begins_segment: bool = False
    """Groups before it are missing."""

    @classmethod
    def of(cls, lines: Sequence[RecordLine]) -> "RecordGroup":
        """Return the group of all lines of one sequence and chain."""
        one = lines[0]
        kept: list[RecordLine] = []
        group = cls(one.sequence, one.chain, one.previous, one.at_ms, kept)
        for line in lines:
            if not kept or kept[-1].place != line.place:
                kept.append(line)
            elif line in kept or line in group.others:
                group.copies += 1
            else:
                group.others.append(line)
        return group

    @property
    def last_place(self) -> int:
        """How many lines it has, as its last one says."""
        return self.lines[-1].place + 1

    @property
    def count(self) -> int:
        """How many different lines there are."""
        return len(self.lines) + len(self.others)

    def computed(self) -> str:
        """Return the hash that follows from the columns."""
        one = self.lines[0]
        heads = {(each.previous, each.at_ms, each.broker_epoch, each.broker) for each in self.lines}
        if len(heads) > 1:
            return "none, as they differ in time or broker"
        head = encode_head(self.sequence, self.at_ms, one.broker_epoch, one.broker)
        lines = self.lines
        if self.others:
            lines = sorted((*lines, *self.others), key=attrgetter("place"))
        return chain_of(self.previous, b"".join([head, *(each.encoded() for each in lines)]))

    def published(self) -> tuple[int, int] | None:
        """Return which offsets it tells the publishing of."""
        ranges = [(each.first, each.stop) for each in self.lines if each.kind == "publish"]
        return (min(ranges)[0], max(stop for _, stop in ranges)) if ranges else None


class ChainJudge:
    """Follows the chain of a partition's record.

    Args:
        partition: its name.
        found: takes findings.
        is_from_start: the record is there from its beginning, so that a missing one is a fault.
        expected: a group that has to be in the record; None: nothing is known of it.
    """

    def __init__(
        self,
        partition: str,
        found: Found,
        *,
        is_from_start: bool,
        expected: RecordHead | None = None,
    ) -> None:
        self._partition = partition
        self._found = found
        self._is_from_start = is_from_start
        self._expected = expected
        self._other_chain = ""
        """Of a group under the number of the expected one, which is not there."""
        self.head: RecordHead | None = None
        """The last group that counts."""
        self._before: frozenset[str] = frozenset()
        """Chains of the groups under the last sequence."""
        self._rivals: list[RecordGroup] = []
        """Groups of one sequence that wait for those of the next: these say which counts."""
        self._has_forked = False
        self._written_to = -1
        """Time of the latest group so far, ms."""
        self._clock_ms = -1
        self.dropped: set[tuple[int, str]] = set()
        """Sequence and chain of groups that do not count."""
        self.starts: int | None = None
        """The first sequence."""
        self.last: int | None = None
        """The sequence of the last group that was judged."""

    def judge(self, lines: Iterable[RecordLine]) -> Iterator[RecordGroup]:
        """Yield the groups that count of lines in the order of sequence and place.

        The lines of one sequence must come in one call.
        """
        for _, same in groupby(lines, attrgetter("sequence")):
            rivals = self._groups_of(list(same))
            yield from self._decide({each.previous for each in rivals})
            self._rivals = rivals

    def finish(self, record_stop: int | None) -> Iterator[RecordGroup]:
        """Yield what still waits; `record_stop`: how far the archive says that it has it."""
        yield from self._decide(set())
        self._check_expected()
        last = -1 if self.last is None else self.last
        if record_stop is not None and record_stop > last + 1:
            self._found(
                finding(
                    CHAIN,
                    "missing_range",
                    self._partition,
                    f"groups {last + 1} to {record_stop - 1} of the record are missing at its end",
                    sequence=self.last,
                    at_ms=None if self.last is None else self._clock_ms,
                )
            )

    def _check_expected(self) -> None:
        """Report an expected group that did not come."""
        expected = self._expected
        if expected is None:
            return
        there = (
            f"there is one with chain {self._other_chain}"
            if self._other_chain
            else f"it ends before, with group {self.last}"
            if self.last is not None and self.last < expected.sequence
            else "it is missing"
        )
        self._found(
            finding(
                CHAIN,
                "head_not_found",
                self._partition,
                f"the record had group {expected.sequence} with chain {expected.chain} at an "
                f"earlier audit; {there}",
                sequence=expected.sequence,
            )
        )

    def _note_chains(self, rivals: Sequence[RecordGroup]) -> None:
        """Look for the expected group among those of one number."""
        expected = self._expected
        if expected is None or expected.sequence != rivals[0].sequence:
            return
        if any(each.chain == expected.chain for each in rivals):
            self._expected = None
        else:
            self._other_chain = rivals[0].chain

    def _groups_of(self, lines: list[RecordLine]) -> list[RecordGroup]:
        chain = lines[0].chain
        if all(line.chain == chain for line in lines):
            return [RecordGroup.of(lines)]
        by_chain: dict[str, list[RecordLine]] = {}
        for line in lines:
            by_chain.setdefault(line.chain, []).append(line)
        return [RecordGroup.of(each) for each in by_chain.values()]

    def _decide(self, nexts: set[str]) -> Iterator[RecordGroup]:
        """Judge the groups that wait; `nexts`: what those of the next number follow.

        Of several under one number the one counts that was written last: a store that had lost the
        others went on from there.
        """
        rivals, self._rivals = self._rivals, []
        if not rivals:
            return
        sequence = rivals[0].sequence
        if self.starts is None:
            self.starts = sequence
        self._has_forked = self._has_forked or len(rivals) > 1
        # What a store had lost, and was archived before that, hangs behind the fork; it is older.
        written_to = self._written_to
        rivals.sort(
            key=lambda each: (
                each.at_ms >= written_to,
                each.chain in nexts,
                each.at_ms,
                each.chain,
            ),
            reverse=True,
        )
        best = rivals[0]
        self._note_chains(rivals)
        is_left_over = self._has_forked and best.at_ms < self._written_to
        self._written_to = max(self._written_to, best.at_ms)
        for each in rivals:
            counts = each is best and not is_left_over
            if not counts:
                self.dropped.add((each.sequence, each.chain))
            self._check(each, counts=counts)
        is_first = self.last is None
        is_gap = self.last is not None and sequence > self.last + 1
        self.last = sequence
        self._before = frozenset(each.chain for each in rivals)
        if is_left_over:
            return
        best.begins_segment = is_first or is_gap
        self.head = RecordHead(sequence, best.chain)
        self._check_clock(best)
        yield best

    def _check(self, group: RecordGroup, *, counts: bool) -> None:
        sequence, last = group.sequence, self.last
        if last is None and sequence > 0 and self._is_from_start:
            self._report(
                "missing_range",
                group,
                f"the record begins at group {sequence}; groups 0 to {sequence - 1} are missing",
            )
        if last is not None and sequence > last + 1 and counts:
            self._report(
                "missing_range",
                group,
                f"groups {last + 1} to {sequence - 1} of the record are missing: what happened "
                "there is not judged",
            )
        if group.count < group.last_place:
            self._report(
                "missing_record",
                group,
                f"group {sequence} has {group.count} of its {group.last_place} records",
            )
        elif (computed := group.computed()) != group.chain:
            self._report(
                "changed_group",
                group,
                f"group {sequence} was written with hash {group.chain}, its records now give "
                f"{computed}",
            )
        if group.copies:
            self._report(
                "recorded_twice", group, f"group {sequence} is in the archive more than once"
            )
        if not counts:
            self._report("forked_chain", group, _of_fork(group))
        elif last == sequence - 1 and group.previous not in self._before:
            self._report(
                "broken_link",
                group,
                f"group {sequence} follows a group that ended with hash {group.previous}, which "
                "is not the one before it",
            )

    def _check_clock(self, group: RecordGroup) -> None:
        back_ms = self._clock_ms - group.at_ms
        self._clock_ms = group.at_ms
        if back_ms > MAX_CLOCK_STEP_MS:
            self._report(
                "time_went_back",
                group,
                f"group {group.sequence} was written {back_ms} ms before the one in front of it, "
                "by Redis's time: its clock was set back, or another server had taken over",
            )

    def _report(self, what: str, group: RecordGroup, detail: str) -> None:
        self._found(
            finding(
                CHAIN,
                what,
                self._partition,
                detail,
                sequence=group.sequence,
                at_ms=group.at_ms,
                broker_epoch=group.lines[0].broker_epoch,
            )
        )


def _of_fork(group: RecordGroup) -> str:
    text = f"another group under number {group.sequence} is recorded; "
    published = group.published()
    if published is None:
        return text + "the store has lost this one"
    first, stop = published
    return (
        f"{text}what this one tells was lost by the store, the messages from {first} to {stop} "
        "among it"
    )
