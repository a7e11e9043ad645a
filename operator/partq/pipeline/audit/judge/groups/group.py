"""One group in one partition: its holder and token, and where its lines are judged."""

from collections.abc import Callable

from partq.pipeline.audit.judge.finding import ACKS, OWNERS, of_line
from partq.pipeline.audit.judge.groups.deliveries import DeliveryJudge
from partq.pipeline.audit.judge.groups.handoffs import HandoffJudge
from partq.pipeline.audit.judge.groups.owners import OwnerJudge
from partq.pipeline.audit.judge.groups.settlements import SettlementJudge
from partq.pipeline.audit.judge.groups.stalls import StallJudge
from partq.pipeline.audit.judge.groups.state import GroupState, SegmentState
from partq.pipeline.audit.judge.lines import RecordLine
from partq.pipeline.audit.judge.outcome import DeliveryStall, GroupTotals

_OUTCOMES = ("ack", "nack", "release")
_BY_MEMBERS = frozenset({*_OUTCOMES, "bind", "register", "drained"})
"""Kinds that a member causes, unless a broker does, after a time: that is their cause then."""
_TIMES = ("ack_timeout", "drain_timeout")


class GroupJudge:
    """Judges the lines of a group, from its first one in a segment of the record."""

    def __init__(self, segment: SegmentState, name: str) -> None:
        self._segment = segment
        self.state = GroupState(segment, name)
        self.state.owner_at = 0 if segment.claim is None else segment.claim.at
        self._owners = OwnerJudge(self.state)
        self._handoffs = HandoffJudge(self.state)
        self._deliveries = DeliveryJudge(self.state)
        self._settlements = SettlementJudge(self.state)
        self._stalls = StallJudge(self.state)
        self.stall: DeliveryStall | None = None
        """The longest time without a delivery; known in the end."""
        self.totals: GroupTotals | None = None
        """What became of the messages, in the end; None: the group was removed."""
        settle = self._settlements
        self._kinds: dict[str, Callable[[RecordLine], None]] = {
            "begin": self._begin,
            "deliver": self._deliver,
            "ack": settle.ack,
            "nack": settle.nack,
            "release": settle.release,
            "expired": settle.expire,
            "dead_letter": settle.dead_letter,
            "pause": self._handoffs.pause,
            "drained": self._handoffs.drained,
            "cancel": self._handoffs.end,
            "lapse": self._handoffs.end,
            "commit": self._commit,
            "bind": self._owners.renew,
            "register": self._owners.renew,
            "reset": self._reset,
        }

    def judge(self, line: RecordLine) -> bool:
        """Judge a line; return whether it is one of a token that did not hold."""
        state = self.state
        is_stray = (line.kind == "deliver" or line.kind in _OUTCOMES) and self._owners.is_stray(
            line
        )
        if is_stray:
            self._report_stray(line)
        elif (judge := self._kinds.get(line.kind)) is not None:
            if line.kind in _OUTCOMES:
                self._owners.check_member(line)
            judge(line)
        if not is_stray:
            self._stalls.note(line)
            if line.kind in _BY_MEMBERS and line.cause not in _TIMES:
                state.note_life(line)
        if line.kind == "nack":
            state.note_event("nack", line)
        if line.kind == "deliver":
            state.delivered_at = line.at
        return is_stray

    def claim(self, at: int) -> None:
        """Note that a broker has claimed the partition, in this line: it remembers no pause."""
        self.state.pause = None
        self.state.owner_at = at

    def publish(self, line: RecordLine) -> None:
        """Note that the log has grown."""
        self._stalls.follow(line.at_ms)

    def free(self, line: RecordLine) -> None:
        """Note that the log's messages of a line were freed."""
        self._settlements.free(line)
        self._stalls.free(line)

    def finish(self, *, is_over: bool, is_last: bool) -> None:
        """Judge what is left open when the segment ends.

        `is_over`: the group was removed. `is_last`: no other segment of the record follows.
        """
        self._owners.finish()
        self._settlements.finish(is_over=is_over)
        self.state.flush_repeats()
        self._handoffs.finish(is_over=is_over, is_last=is_last)
        self.stall = self._stalls.finish()
        self.totals = None if is_over else self._settlements.totals(is_last=is_last)

    def _begin(self, line: RecordLine) -> None:
        self._owners.begin(line)
        self._settlements.begin(line)
        self._stalls.begin(line)

    def _deliver(self, line: RecordLine) -> None:
        self._owners.note_flow(line)
        self._handoffs.deliver(line)
        self._deliveries.deliver(line)

    def _commit(self, line: RecordLine) -> None:
        self._handoffs.commit(line)
        self._owners.renew(line)

    def _reset(self, line: RecordLine) -> None:
        state = self.state
        state.pause = None
        self._settlements.reset(line)
        self._owners.renew(line)
        state.note_event("reset", line)
        state.era += 1
        state.high = None
        if state.lanes is not None:
            state.lanes.forget_back()

    def _report_stray(self, line: RecordLine) -> None:
        state, segment = self.state, self._segment
        under = f"({line.broker_epoch}, {line.epoch})"
        held = f"({_shown(segment.claimed)}, {_shown(state.current)})"
        if line.kind == "deliver":
            text = (
                f"{line.first} to {line.stop - 1} were delivered to {line.member} under {under}, "
                f"while {held} held, of {_shown(state.holder)}"
            )
            segment.found(of_line(OWNERS, "two_owners", segment.partition, line, text))
        else:
            text = (
                f"{line.kind} of {line.first} to {line.stop - 1} by {line.member} was accepted "
                f"under {under}, while {held} held"
            )
            segment.found(of_line(ACKS, "stale_ack", segment.partition, line, text))


def _shown(value: int | str | None) -> str:
    return "?" if value is None else str(value)
