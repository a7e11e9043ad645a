"""Checks what became of deliveries: acknowledged once by their member, and nothing lost (S2)."""

from collections import Counter

from partq.pipeline.audit.judge.finding import ACKS, LOSS, ORDER, finding, of_line
from partq.pipeline.audit.judge.groups.history import (
    ACKED,
    BEFORE,
    DONE,
    FREED,
    KNOWN_BEFORE,
    LATER,
    LOST,
    OPEN,
    PASSED,
    UNTOUCHED,
    OffsetHistory,
)
from partq.pipeline.audit.judge.groups.islands import Islands
from partq.pipeline.audit.judge.groups.lanes import KEYED, LaneHighs
from partq.pipeline.audit.judge.groups.state import GroupState
from partq.pipeline.audit.judge.intervals import IntervalMap
from partq.pipeline.audit.judge.lines import PLACE_BITS, RecordLine
from partq.pipeline.audit.judge.outcome import GroupTotals

_UNDECODABLE = "undecodable"
"""Cause of a nack of what nobody can decode: nothing waits for it."""
_CURSOR = "cursor"
"""Flag of an ack by a reader without a membership, to whom nothing is delivered."""


class SettlementJudge:
    """Judges acks and follows everything else that ends a delivery."""

    def __init__(self, state: GroupState) -> None:
        self._state = state
        self._segment = state.segment
        self._counts: Counter[int] = Counter()
        """What became of messages → how many of those that were freed."""

    def begin(self, line: RecordLine) -> None:
        """Note what the group was done with when the record began."""
        self._state.pieces.set(line.first, line.stop, KNOWN_BEFORE)

    def ack(self, line: RecordLine) -> None:
        """Judge an ack part by part, and note it."""
        state = self._state
        twice: Islands[str] = Islands()
        other_token: Islands[int] = Islands()
        other_flow: Islands[str] = Islands()
        flow = state.holder_of(line) if state.shares is not None else None
        is_known = self._is_known(line)

        def change(first: int, stop: int, old: OffsetHistory | None) -> OffsetHistory:
            piece = UNTOUCHED if old is None else old
            if piece.done == ACKED and piece.era == state.era:
                twice.add("", first, stop)
            elif piece.done == BEFORE and piece.at < 0:
                return piece
            elif piece.at < 0:
                if is_known:
                    state.early_acks.set(first, stop, line)
            elif flow is not None:
                if is_known and piece.flow is not None and piece.flow != flow:
                    other_flow.add(piece.flow[0], first, stop)
            elif is_known and not piece.is_taken_back and piece.epoch != line.epoch:
                other_token.add(piece.epoch, first, stop)
            at = -1 if piece.at < 0 else state.token_at(piece.at)
            return OffsetHistory(at, 0, piece.epoch, False, False, False, ACKED, state.era)

        state.pieces.update(line.first, line.stop, change)
        self._end_waits(line.first, line.stop)
        self._find_early(line)
        event = state.events.get("commit")
        owned = state.owned.setdefault(-1 if event is None else event.at, IntervalMap())
        owned.set(line.first, line.stop, True)
        for _, first, stop in twice:
            text = f"offsets {first} to {stop - 1} were acknowledged before"
            self._report("acked_twice", line, first, stop, text)
        for epoch, first, stop in other_token:
            text = (
                f"offsets {first} to {stop - 1} were delivered under epoch {epoch} and "
                f"acknowledged under {line.epoch}"
            )
            self._report("ack_of_other_token", line, first, stop, text)
        for member, first, stop in other_flow:
            text = (
                f"offsets {first} to {stop - 1} were delivered to a flow of {member} and "
                f"acknowledged by one of {line.member}, which had not got them"
            )
            self._report("ack_not_held", line, first, stop, text)

    def _is_known(self, line: RecordLine) -> bool:
        """Return whether the record has all that was delivered to the flow of an ack."""
        state = self._state
        if state.shares is not None and (state.sessions is not None or not state.has_order):
            return state.shares.has_begun(state.holder_of(line))
        return state.current is not None and line.flags != _CURSOR

    def nack(self, line: RecordLine) -> None:
        """Note what was taken back from a member that may have begun it."""
        back = self._open_parts(line)
        self.reopen(line.first, line.stop)
        if self._state.lanes is not None and line.cause != _UNDECODABLE:
            self._find_early(line)
            for first, stop in back:
                self._state.lanes.note_back(first, stop)

    def _open_parts(self, line: RecordLine) -> list[tuple[int, int]]:
        """Return what of a line the group is not done with.

        A dead letter may be recorded before the nack that has made it one.
        """
        return [
            (first, stop)
            for first, stop, piece in self._state.pieces.parts(line.first, line.stop)
            if piece is None or piece.is_held or piece.done == OPEN
        ]

    def reopen(self, first: int, stop: int) -> None:
        """Note what a member does not have any more, and may have begun."""

        def change(first: int, stop: int, old: OffsetHistory | None) -> OffsetHistory | None:
            if old is None or old.at < 0:
                return old
            return old._replace(is_held=False, is_taken_back=True)

        self._state.pieces.update(first, stop, change)

    def release(self, line: RecordLine) -> None:
        """Note what was taken back from a member that had not begun it, up to the last one."""

        def change(first: int, stop: int, old: OffsetHistory | None) -> OffsetHistory | None:
            if old is None or old.at < 0 or not (old.is_held or old.done == OPEN):
                return old
            return old._replace(is_held=False, is_released=True)

        back = self._open_parts(line)
        stop = line.stop if line.flags == KEYED else max(line.stop, self._state.high or 0)
        self._state.pieces.update(line.first, stop, change)
        if self._state.back is not None:
            for first, stop in back:
                self._state.back.note(first, stop, (line.sequence, line.at_ms))
        if self._state.lanes is not None and line.flags == KEYED:
            self._state.lanes.early(line.first, line.stop)
            for first, stop in back:
                self._state.lanes.note_back(first, stop)

    def expire(self, line: RecordLine) -> None:
        """Note what is done with as its time was over."""
        self._end(line.first, line.stop)

    def dead_letter(self, line: RecordLine) -> None:
        """Note a dead letter, or what became of it."""
        if line.flags == LOST:
            self._state.dropped.set(line.first, line.stop, (line.sequence, line.at_ms))
        elif line.flags not in LATER:
            self._end(line.first, line.stop)

    def reset(self, line: RecordLine) -> None:
        """Note what a moved cursor passes over; a claim did not choose, so there it is lost."""
        if line.number < line.first and line.cause != "not_in_log":
            self._end(max(0, line.number), line.first)

    def free(self, line: RecordLine) -> None:
        """Note that messages left the log: those that the group is done with are forgotten."""
        state = self._state

        def change(first: int, stop: int, old: OffsetHistory | None) -> OffsetHistory | None:
            if old is not None and old.done != OPEN:
                if old != FREED:
                    self._count(old.done, first, stop)
                return FREED
            for low, high, is_published in self._segment.published.parts(first, stop):
                if is_published:
                    state.freed.set(low, high, (line.sequence, line.at_ms))
            return old

        state.pieces.update(line.first, line.stop, change)

    def totals(self, *, is_last: bool) -> GroupTotals:
        """Return what the group has done; `is_last`: no other segment of the record follows."""
        for first, stop, _ in self._segment.published:
            for low, high, piece in self._state.pieces.parts(first, stop):
                if piece != FREED:
                    self._counts[OPEN if piece is None else piece.done] += high - low
        lag = self._counts[OPEN]
        return GroupTotals(
            published=self._counts.total(),
            acknowledged=self._counts[ACKED],
            otherwise_done=self._counts[DONE],
            done_before=self._counts[BEFORE],
            not_known=0 if is_last else lag,
            lag=lag if is_last else 0,
        )

    def _count(self, done: int, first: int, stop: int) -> None:
        """Count messages that are forgotten from now on."""
        for low, high, is_published in self._segment.published.parts(first, stop):
            if is_published:
                self._counts[done] += high - low

    def finish(self, *, is_over: bool) -> None:
        """Judge what stays open; of a group that was removed nothing is lost."""
        for first, stop, line in self._state.early_acks:
            text = f"offsets {first} to {stop - 1} were acknowledged and never delivered"
            self._report("ack_not_delivered", line, first, stop, text)
        if not is_over:
            for first, stop, _ in self._segment.published:
                self._find_lost(first, stop)

    def _end(self, first: int, stop: int) -> None:
        """Note that the group is done with offsets, otherwise than by an ack."""
        state = self._state

        def change(first: int, stop: int, old: OffsetHistory | None) -> OffsetHistory:
            if old is None or old.at < 0:
                return PASSED if old is None or old.done == OPEN else old
            at = state.token_at(old.at)
            done = DONE if old.done == OPEN else old.done
            return OffsetHistory(at, 0, old.epoch, False, False, False, done, old.era)

        state.pieces.update(first, stop, change)
        self._end_waits(first, stop)

    def _find_early(self, line: RecordLine) -> None:
        """Report what the member had before a lower message of its key that was given back."""
        lanes, partition = self._state.lanes, self._segment.partition
        for offset, lower, delivery in lanes.early(line.first, line.stop) if lanes else ():
            text = f"offset {offset} was delivered before {lower} of its slot, which was given back"
            self._segment.found(
                of_line(ORDER, "out_of_order", partition, delivery, text, offset, offset + 1)
            )

    def _end_waits(self, first: int, stop: int) -> None:
        if self._state.lanes is not None:
            self._state.lanes.end(first, stop)
        if self._state.back is not None:
            self._state.back.end(first, stop)
        if len(self._state.skipped):
            self._state.skipped.set(first, stop, None)

    def _find_lost(self, first: int, stop: int) -> None:
        """Report what of published offsets nobody is done with, and nobody will be sent."""
        state = self._state
        lost: Islands[str] = Islands()
        for begin, end, piece in state.pieces.parts(first, stop):
            for low, high, dropped in state.dropped.parts(begin, end):
                if dropped is not None:
                    lost.add(_DROPPED, low, high)
                elif (piece is None or piece.done == OPEN) and state.lanes is not None:
                    self._find_behind(lost, low, high, piece or UNTOUCHED, state.lanes)
                elif piece is None or piece.done == OPEN:
                    self._find_open(lost, low, high, piece or UNTOUCHED)
        for text, low, high in lost:
            sequence, at_ms = self._place(text, low)
            self._segment.found(
                finding(
                    LOSS,
                    "lost",
                    self._segment.partition,
                    f"offsets {low} to {high - 1} {text}",
                    group=state.name,
                    sequence=sequence,
                    at_ms=at_ms,
                    first=low,
                    stop=high,
                )
            )

    def _find_behind(
        self, lost: Islands[str], first: int, stop: int, piece: OffsetHistory, lanes: LaneHighs
    ) -> None:
        """Find what is freed; a key may wait while others are sent, so else what it has passed."""
        for low, high, freed in self._state.freed.parts(first, stop):
            if freed is not None:
                lost.add(_FREED, low, high)
                continue
            for offset in lanes.behind(low, high, self._state.era):
                self._find_open(lost, offset, offset + 1, piece)

    def _find_open(self, lost: Islands[str], first: int, stop: int, piece: OffsetHistory) -> None:
        state = self._state
        for low, high, freed in state.freed.parts(first, stop):
            if freed is not None:
                lost.add(_FREED, low, high)
            elif piece.at < 0:
                lost.add(_SKIPPED, low, min(high, state.reached or 0))
            elif state.back is not None:
                for begin, end, _ in state.back.lost(low, high):
                    lost.add(_NOT_AGAIN, begin, end)
            elif state.shares is not None:
                pass  # another flow may have it; what waits for it of its slot is judged there
            elif state.last_token is not None and not piece.is_taken_back:
                epoch, reached = state.last_token
                if piece.epoch < epoch:
                    lost.add(_LEFT_BEHIND, low, min(high, reached))

    def _place(self, text: str, offset: int) -> tuple[int, int]:
        """Return sequence and time of the record that shows a loss best."""
        state, segment = self._state, self._segment
        if text == _LEFT_BEHIND and (piece := state.pieces.get(offset)) is not None:
            return piece.at >> PLACE_BITS, piece.at_ms
        if text == _NOT_AGAIN and state.back is not None:
            ((_, _, found),) = state.back.lost(offset, offset + 1)
            return found
        maps = {_DROPPED: state.dropped, _FREED: state.freed, _SKIPPED: state.skipped}
        place = maps[text].get(offset) if text in maps else None
        return place or (segment.last_sequence, segment.last_ms)

    def _report(self, what: str, line: RecordLine, first: int, stop: int, text: str) -> None:
        partition = self._segment.partition
        self._segment.found(of_line(ACKS, what, partition, line, text, first, stop))


_DROPPED = "were dead letters that the log did not hold any more"
_FREED = "were freed before the group was done with them"
_SKIPPED = "were never delivered; later ones were"
_NOT_AGAIN = "were taken back and not sent again; new messages were"
_LEFT_BEHIND = (
    "were delivered to an earlier owner alone; its successor was sent later ones without them"
)
