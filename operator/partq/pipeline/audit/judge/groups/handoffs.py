"""Checks handoffs: a pause, a drain and a commit, with no delivery between; each one ends."""

from partq.pipeline.audit.judge.finding import HANDOFFS, finding, of_line
from partq.pipeline.audit.judge.groups.islands import Islands
from partq.pipeline.audit.judge.groups.state import GroupState, PauseInForce
from partq.pipeline.audit.judge.lines import RecordLine
from partq.pipeline.audit.judge.outcome import Handoff

OPEN_MS = 600_000
"""A handoff may be under way for this long when the record ends: ten minutes."""


class HandoffJudge:
    """Follows the attempts to hand a partition of a group over."""

    def __init__(self, state: GroupState) -> None:
        self._state = state
        self._segment = state.segment
        self._last_attempt = -1

    def pause(self, line: RecordLine) -> None:
        """Note that an attempt has stopped the deliveries."""
        self._state.pause = PauseInForce(line.attempt, line.epoch, line.at)
        self._last_attempt = line.attempt
        handoff = self._handoff(line)
        if handoff.paused_at is None:
            handoff.paused_at, handoff.paused_ms = line.at, line.at_ms
            handoff.source = line.member if handoff.source is None else handoff.source

    def drained(self, line: RecordLine) -> None:
        """Note that a drain is over."""
        handoff = self._handoff(line)
        if handoff.drained_ms is None:
            handoff.drained_ms, handoff.drain_cause = line.at_ms, line.cause
        pause = self._state.pause
        if pause is not None and pause.attempt == line.attempt:
            pause.drained = line

    def deliver(self, line: RecordLine) -> None:
        """Report what goes out while a pause is in force."""
        pause = self._state.pause
        if pause is None:
            return
        text = (
            f"offsets {line.first} to {line.stop - 1} were delivered to {line.member} while "
            f"attempt {pause.attempt} had the partition paused"
        )
        found = of_line(HANDOFFS, "delivered_while_paused", self._segment.partition, line, text)
        self._segment.found(found._replace(attempt=pause.attempt))

    def end(self, line: RecordLine) -> None:
        """Note that an attempt is over, without a commit."""
        self._end(line)
        pause = self._state.pause
        if pause is not None and pause.attempt == line.attempt:
            self._state.pause = None

    def commit(self, line: RecordLine) -> None:
        """Judge how an attempt came to its commit, and note that."""
        state, pause = self._state, self._state.pause
        if pause is not None and pause.attempt != line.attempt:
            pause = None
        # Of a pause before the record began nothing is known.
        if not line.cause and line.member and state.current is not None:
            self._check_steps(line, pause)
        if pause is not None and pause.drained is not None and not pause.drained.cause:
            self._check_drain(pause, pause.drained)
        self._last_attempt = line.attempt
        handoff = self._handoff(line)
        handoff.source = line.member if handoff.source is None else handoff.source
        if handoff.target is None:
            handoff.target, handoff.epoch, handoff.cause = line.target, line.epoch, line.cause
        self._end(line)
        state.pause = None

    def finish(self, *, is_over: bool, is_last: bool) -> None:
        """Judge the attempts that are open."""
        for handoff in self._state.handoffs.values():
            if not handoff.outcome:
                handoff.outcome = self._outcome(handoff, is_over=is_over, is_last=is_last)
                self._report_open(handoff)

    def _check_steps(self, line: RecordLine, pause: PauseInForce | None) -> None:
        passed = (
            f"attempt {line.attempt} passed the partition from {line.member} to "
            f"{line.target or 'nobody'} without a cause"
        )
        if pause is None:
            text = f"{passed}, and no pause of it was in force"
            self._report("commit_without_pause", line, text)
        elif pause.drained is None:
            text = f"{passed}, and no end of its drain is recorded"
            self._report("commit_without_drain", line, text)

    def _check_drain(self, pause: PauseInForce, drained: RecordLine) -> None:
        """Report what was in flight when a drain was recorded as over.

        Acks may be recorded after the drain's end, but before the commit. What lies behind `stop`
        was taken back with its flow: nothing of it was in flight.
        """
        held: Islands[str] = Islands()
        pieces = self._state.pieces.parts(max(0, drained.first), max(0, drained.stop))
        for first, stop, piece in pieces:
            if (
                piece is not None
                and piece.is_held
                and piece.epoch == pause.epoch
                and piece.at < drained.at
            ):
                held.add("", first, stop)
        for _, first, stop in held:
            text = (
                f"the drain of attempt {pause.attempt} ended, and offsets {first} to {stop - 1} "
                f"were in flight at {drained.member}"
            )
            self._segment.found(
                of_line(
                    HANDOFFS, "drain_not_clean", self._segment.partition, drained, text, first, stop
                )
            )

    def _handoff(self, line: RecordLine) -> Handoff:
        handoffs = self._state.handoffs
        handoff = handoffs.get(line.attempt)
        if handoff is None:
            handoff = Handoff(self._segment.partition, self._state.name, line.attempt)
            if line.attempt > 0:
                handoffs[line.attempt] = handoff
        handoff.sequence = line.sequence
        return handoff

    def _end(self, line: RecordLine) -> None:
        handoff = self._handoff(line)
        if not handoff.outcome:
            handoff.outcome = line.kind
            handoff.ended_ms, handoff.ended_at = line.at_ms, line.at

    def _outcome(self, handoff: Handoff, *, is_over: bool, is_last: bool) -> str:
        state, segment, paused_at = self._state, self._segment, handoff.paused_at
        if paused_at is None:
            return "not_known"
        if segment.claim is not None and segment.claim.at > paused_at:
            return "broker_change"
        if is_over:
            return "gone"
        if not is_last:
            return "not_known"
        is_later = (
            state.delivered_at > paused_at
            or self._last_attempt > handoff.attempt
            or segment.last_ms - (handoff.paused_ms or 0) > OPEN_MS
        )
        return "no_end" if is_later else "under_way"

    def _report_open(self, handoff: Handoff) -> None:
        texts = {
            "no_end": (
                "handoff_without_end",
                f"attempt {handoff.attempt} paused {handoff.source} and was neither committed nor "
                "cancelled, nor did it lapse",
            ),
            "under_way": (
                "handoff_under_way",
                f"attempt {handoff.attempt} was under way when the record ended",
            ),
        }
        if handoff.outcome not in texts:
            return
        what, text = texts[handoff.outcome]
        self._segment.found(
            finding(
                HANDOFFS,
                what,
                self._segment.partition,
                text,
                group=handoff.group,
                sequence=handoff.sequence,
                at_ms=handoff.paused_ms,
                member=handoff.source,
                attempt=handoff.attempt,
            )
        )

    def _report(self, what: str, line: RecordLine, text: str) -> None:
        self._segment.found(of_line(HANDOFFS, what, self._segment.partition, line, text))
