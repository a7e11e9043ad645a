"""One group in one partition: its holder and token, and where its lines are judged."""

from collections.abc import Callable
from functools import partial

from partq.core.ranges import Ranges
from partq.pipeline.audit.judge.finding import ACKS, OWNERS, of_line
from partq.pipeline.audit.judge.groups.back import BackMessages
from partq.pipeline.audit.judge.groups.deliveries import DeliveryJudge
from partq.pipeline.audit.judge.groups.handoffs import HandoffJudge
from partq.pipeline.audit.judge.groups.history import DONE, LATER, OPEN, FlowName
from partq.pipeline.audit.judge.groups.lanes import LaneHighs
from partq.pipeline.audit.judge.groups.owners import OwnerJudge
from partq.pipeline.audit.judge.groups.session_holders import SessionHolders
from partq.pipeline.audit.judge.groups.session_lanes import KeyedLanes, SessionLanes
from partq.pipeline.audit.judge.groups.settlements import SettlementJudge
from partq.pipeline.audit.judge.groups.shares import Alone, SharedSlot, Shares
from partq.pipeline.audit.judge.groups.stalls import StallJudge
from partq.pipeline.audit.judge.groups.state import GroupState, SegmentState, event_of
from partq.pipeline.audit.judge.lines import RecordLine
from partq.pipeline.audit.judge.outcome import DeliveryStall, GroupTotals
from partq.wire.audit import OF_MANY, SESSIONS, TURNS

_OUTCOMES = ("ack", "nack", "release")
_BY_MEMBERS = frozenset({*_OUTCOMES, "bind", "register", "drained"})
"""Kinds that a member causes, unless a broker does, after a time: that is their cause then."""
_TIMES = ("ack_timeout", "drain_timeout")
_OF_SHARES = ("commit_part", "unbind")
"""Kinds of groups whose members share partitions alone."""


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
        self._holders: SessionHolders | None = None
        """Where members lock sessions: which of them has which."""
        settle = self._settlements
        self._kinds: dict[str, Callable[[RecordLine], None]] = {
            "begin": self._begin,
            "deliver": self._deliver,
            "ack": partial(self._end, settle.ack),
            "nack": partial(self._end, settle.nack),
            "release": partial(self._end, settle.release),
            "expired": partial(self._end, settle.expire),
            "dead_letter": partial(self._end, settle.dead_letter),
            "pause": self._handoffs.pause,
            "drained": self._handoffs.drained,
            "cancel": self._handoffs.end,
            "lapse": self._handoffs.end,
            "commit": self._commit,
            "bind": self._bind,
            "register": self._owners.renew,
            "reset": self._reset,
            "commit_part": self._pass_part,
            "unbind": self._unbind,
            "lock": self._lock,
            "unlock": self._unlock,
        }

    def judge(self, line: RecordLine) -> bool:
        """Judge a line; return whether it is one of a token that did not hold."""
        state = self.state
        if state.shares is None and (line.kind in _OF_SHARES or line.flags in OF_MANY):
            self._share_out(line)
        for each in state.shares.note_flush(line) if state.shares is not None else ():
            self._report_shared(each)
        if state.back is not None and line.kind in _OUTCOMES:
            state.back.note_flush(line.sequence)
        is_stray = (line.kind == "deliver" or line.kind in _OUTCOMES) and self._owners.is_stray(
            line
        )
        is_outside = line.kind == "deliver" and not is_stray and self._is_outside(line)
        if is_stray:
            self._report_stray(line)
        elif is_outside:
            is_stray = True
        elif (judge := self._kinds.get(line.kind)) is not None:
            if line.kind in _OUTCOMES:
                self._owners.check_member(line)
            judge(line)
        if not is_stray:
            self._stalls.note(line)
            if line.kind in _BY_MEMBERS and line.cause not in _TIMES:
                state.note_life(line)
        if line.kind == "nack":
            state.note_event("forced" if line.cause == "drain_timeout" else "nack", line)
        if line.kind == "deliver":
            state.delivered_at = line.at
        return is_stray

    def _share_out(self, line: RecordLine) -> None:
        """Note from now on what each of several members has."""
        state = self.state
        state.holder = None
        if line.flags == TURNS:
            state.shares, state.back = Shares(Alone()), BackMessages()
        elif line.flags == SESSIONS:
            state.sessions = SessionLanes()
            state.shares = Shares(state.sessions)
            state.lanes = LaneHighs(KeyedLanes(state.sessions))
            self._holders = SessionHolders(state, state.sessions)
        else:
            state.shares = Shares(self._segment.slots)

    def _is_outside(self, line: RecordLine) -> bool:
        """Report a delivery that is under no lock, where members lock sessions; return if it is."""
        if self._holders is None or self._holders.holds(line, self.state.holder_of(line)):
            return False
        self._holders.report_outside(line)
        return True

    def claim(self, line: RecordLine) -> None:
        """Note that a broker has claimed the partition, in this line: it remembers no pause."""
        state = self.state
        state.pause = None
        state.owner_at = line.at
        if state.shares is not None:
            self._note_back(state.shares.forget(), line)
            self._owners.forget_epochs()
        if self._holders is not None:
            self._holders.claim()
        if state.back is not None:  # of what waited for a time, the next broker knows nothing
            for first, stop, piece in list(state.pieces):
                if piece.at >= 0 and piece.done == OPEN:
                    state.back.note(first, stop, (line.sequence, line.at_ms))

    def publish(self, line: RecordLine) -> None:
        """Note that the log has grown."""
        self._stalls.follow(line.at_ms)

    def free(self, line: RecordLine) -> None:
        """Note that the log's messages of a line were freed."""
        self._settlements.free(line)
        self._stalls.free(line)
        sessions, lanes = self.state.sessions, self.state.lanes
        if sessions is not None and lanes is not None:
            lanes.forget(sessions.free(line.stop))

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
        if self._holders is not None:
            self._holders.deliver(line, self.state.holder_of(line))
        if self.state.shares is None:
            self._owners.note_flow(line)
        else:
            self._share(line, self.state.shares)
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
        if state.shares is not None:
            state.shares.forget()
        if state.back is not None:
            state.back.forget()

    def _bind(self, line: RecordLine) -> None:
        shares = self.state.shares
        if shares is None:
            self._owners.renew(line)
        else:  # several have it, and the epochs of these binds are of the broker's memory
            shares.begin(self.state.holder_of(line))

    def _pass_part(self, line: RecordLine) -> None:
        state, shares = self.state, self.state.shares
        if shares is None:
            return
        self._owners.check_part(line, shares.pass_part(line))
        state.note_event("commit", line)

    def _unbind(self, line: RecordLine) -> None:
        holder = self.state.holder_of(line)
        if self._holders is not None:
            self._holders.unbind(holder)
        self._end_share(holder, line)

    def _lock(self, line: RecordLine) -> None:
        if self._holders is not None and self.state.shares is not None:
            holder = self.state.holder_of(line)
            self._holders.lock(line, holder)
            self.state.shares.begin(holder)

    def _unlock(self, line: RecordLine) -> None:
        holder = None if self._holders is None else self._holders.unlock(line)
        if holder is not None:
            self._end_share(holder, line)

    def _end_share(self, holder: FlowName, line: RecordLine) -> None:
        if self.state.shares is not None:
            self._note_back(self.state.shares.end(holder, event_of(line)), line)

    def _note_back(self, offsets: list[int], line: RecordLine) -> None:
        """Note what flows had that have ended: later ones of their slots wait for it."""
        state = self.state
        for first, stop in Ranges((each, each + 1) for each in offsets).pairs():
            self._settlements.reopen(first, stop)
            if state.lanes is not None:
                state.lanes.note_back(first, stop)
            if state.back is not None:
                state.back.note(first, stop, (line.sequence, line.at_ms))

    def _share(self, line: RecordLine, shares: Shares) -> None:
        state = self.state
        for offset, (member, _, _) in shares.deliver(line, state.holder_of(line), self._is_done):
            text = f"offset {offset} was delivered to {line.member} while {member} had it"
            what = "slot_shared" if state.has_order else "message_shared"
            what = what if state.sessions is None else "session_shared"
            self._found_shared(what, line, offset, text)

    def _is_done(self, offset: int) -> bool:
        """Whether the group has done with a message otherwise than by an ack."""
        piece = self.state.pieces.get(offset)
        return piece is not None and piece.done == DONE

    def _end(self, settle: Callable[[RecordLine], None], line: RecordLine) -> None:
        """Have a line judged that says what became of messages, and note that nobody has them."""
        shares = self.state.shares
        if shares is not None and line.flags not in LATER:
            for each in shares.finished(line) if line.kind in ("ack", "nack") else ():
                self._report_shared(each)
            shares.clear(line.first, line.stop)
        settle(line)

    def _report_shared(self, each: SharedSlot) -> None:
        other, sessions = min(each.others), self.state.sessions
        lane, what = f"slot {each.slot}", "slot_shared"
        if sessions is not None:
            lane, what = f"session {sessions.session(each.offset)}", "session_shared"
        text = (
            f"offset {each.offset} was delivered to {each.line.member} while "
            f"{each.others[other][0]} had {other} of its {lane}"
        )
        self._found_shared(what, each.line, each.offset, text)

    def _found_shared(self, what: str, line: RecordLine, offset: int, text: str) -> None:
        partition = self._segment.partition
        self._segment.found(of_line(OWNERS, what, partition, line, text, offset, offset + 1))

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
