"""A part of a partition's record without a gap: the partition's lines and its groups."""

from partq.pipeline.audit.judge.finding import LOSS, OWNERS, of_line
from partq.pipeline.audit.judge.groups.group import GroupJudge
from partq.pipeline.audit.judge.groups.state import SegmentState, event_of
from partq.pipeline.audit.judge.lines import RecordLine
from partq.pipeline.audit.judge.outcome import DeliveryStall, GroupTotals, Handoff, OwnedRange
from partq.pipeline.audit.judge.sink import JudgeSink
from partq.wire.audit import SESSIONS, SHARED, TURNS

_BY_OTHERS = frozenset({"claim", "begin", "end", "deliver", "ack", "nack", "release"})
"""Kinds that draw a broker epoch, or are judged by their whole token."""
_FIRST_MEMBER = frozenset({"commit", "commit_part", "register"})
"""Kinds that show that a group has a member, as does a bind of a whole partition."""
_OF_FLOWS = frozenset({"bind", "unbind", "deliver", "ack", "nack", "release", "lock", "unlock"})


class SegmentJudge:
    """Judges the lines of one segment, in order."""

    def __init__(self, partition: str, number: int, sink: JudgeSink, *, is_late: bool) -> None:
        self.state = SegmentState(partition, number, is_late, sink)
        self._groups: dict[str, GroupJudge] = {}
        self._born: dict[str, int | None] = {}
        """Group that was removed → epoch that one of its name began with; None: none has begun."""
        self._without_member: set[str] = set()
        """Of those that have begun again: in which no member has anything yet."""
        self.is_of_removed = False
        """Whether the last line was of a group that had been removed: it says nothing."""
        self._raised: int | None = None
        """The highest broker epoch that was claimed."""
        self._base: int | None = None
        """From here on, the record has each publishing."""
        self._published_to: int | None = None
        self._early: RecordLine | None = None
        """The delivery that came furthest before anything told how long the log was."""
        self.handoffs: list[Handoff] = []
        self.owned: list[OwnedRange] = []
        self.stalls: list[DeliveryStall] = []
        self.totals: dict[str, GroupTotals] = {}
        """Groups that were not removed → what they have done."""

    def judge(self, line: RecordLine) -> bool:
        """Judge a line; return whether it is one of a token that did not hold."""
        state = self.state
        self.is_of_removed = False
        state.last_ms, state.last_sequence = line.at_ms, line.sequence
        if (
            line.kind not in _BY_OTHERS
            and state.claimed is not None
            and line.broker_epoch != state.claimed
        ):
            text = (
                f"{line.kind} by broker {line.broker} under broker epoch {line.broker_epoch}, "
                f"after {state.claimed} had been claimed"
            )
            state.found(of_line(OWNERS, "two_brokers", state.partition, line, text))
        if line.group:
            return self._judge_of_group(line)
        match line.kind:
            case "claim":
                self._claim(line)
            case "begin":
                self._shows_end(line.stop)
                self._note_published(line.stop)
            case "publish":
                self._shows_end(line.first)
                self._note_published(line.stop)
                state.published.set(line.first, line.stop, True)
                state.slots.add(line.first, line.slots)
                for group in self._groups.values():
                    group.publish(line)
            case "trim":
                for group in self._groups.values():
                    group.free(line)
        return False

    def finish(self, *, is_last: bool) -> None:
        """Judge what is left open; `is_last`: no other segment follows."""
        for group in self._groups.values():
            self._finish(group, is_over=False, is_last=is_last)
        self._groups = {}

    def area(self) -> tuple[int, int] | None:
        """Return between which offsets it has each publishing; None: nothing tells it."""
        base, stop = self._base, self._published_to
        return None if base is None else (base, max(base, stop or 0))

    def _judge_of_group(self, line: RecordLine) -> bool:
        if line.kind == "deliver":
            self._check_published(line)
        group = self._groups.get(line.group)
        if line.kind == "end":
            self._born[line.group] = None
            if group is not None:
                del self._groups[line.group]
                self._finish(group, is_over=True, is_last=True)
            return False
        self.is_of_removed = line.group in self._born and self._is_of_removed(line)
        if self.is_of_removed:
            return False
        if group is None:
            group = self._groups[line.group] = GroupJudge(self.state, line.group)
        return group.judge(line)

    def _is_of_removed(self, line: RecordLine) -> bool:
        """Return whether a line is of a removed group: a broker notices its end a moment later."""
        name, kind = line.group, line.kind
        if kind == "begin":
            self._born[name] = line.epoch
            self._without_member.add(name)
        born = self._born[name]
        if kind in _FIRST_MEMBER or (kind in ("bind", "lock") and _shows_member(line, born)):
            self._without_member.discard(name)
        # Flows of shared partitions have epochs of the broker's memory, maybe above the birth. But
        # no flow has anything of a group before a member of it is recorded.
        is_older = name in self._without_member and kind in _OF_FLOWS and bool(line.member)
        return is_older or born is None or 0 <= line.epoch < born

    def _finish(self, group: GroupJudge, *, is_over: bool, is_last: bool) -> None:
        group.finish(is_over=is_over, is_last=is_last)
        self.handoffs += group.state.handoffs.values()
        self.owned += group.state.owned_ranges()
        if group.totals is not None:
            self.totals[group.state.name] = group.totals
        if group.stall is not None:
            self.stalls.append(group.stall)

    def _claim(self, line: RecordLine) -> None:
        state = self.state
        if self._raised is not None and line.broker_epoch <= self._raised:
            text = f"claim drew {line.broker_epoch}, which is not above {self._raised}"
            state.found(of_line(OWNERS, "epoch_not_raised", state.partition, line, text))
        self._raised = max(self._raised or 0, line.broker_epoch)
        state.claimed, state.claim = line.broker_epoch, event_of(line)
        self._shows_end(line.stop)
        state.log_end = max(state.log_end, line.stop)
        for group in self._groups.values():
            group.claim(line)

    def _shows_end(self, offset: int) -> None:
        """Note that the log ended here, or a batch begins here."""
        is_first = self._base is None
        self._base = offset if self._base is None else min(self._base, offset)
        early, self._early = self._early, None
        if is_first and early is not None and early.stop > self._base:
            self._report_unpublished(early, self._base)

    def _note_published(self, stop: int) -> None:
        self._published_to = stop if self._published_to is None else max(self._published_to, stop)
        self.state.log_end = max(self.state.log_end, stop)

    def _check_published(self, line: RecordLine) -> None:
        """Report a delivery of what was not published yet, as far as the record tells."""
        if self._base is None:
            if self._early is None or line.stop > self._early.stop:
                self._early = line
        elif line.stop > max(self._base, self._published_to or 0):
            self._report_unpublished(line, self._published_to or self._base)

    def _report_unpublished(self, line: RecordLine, stop: int) -> None:
        text = f"offsets {line.first} to {line.stop - 1} were delivered; published was up to {stop}"
        self.state.found(of_line(LOSS, "delivered_unpublished", self.state.partition, line, text))


def _shows_member(line: RecordLine, born: int | None) -> bool:
    """Return whether a bind shows that a group which began again has a member.

    No coordinator gives out what all members of a group of type Shared or Session have: there the
    first bind, or lock, above the birth of the group does.
    """
    if line.flags in (TURNS, SESSIONS):
        return born is not None and line.epoch > born
    return line.flags != SHARED
