"""Measures how long a group with lag was sent nothing."""

from partq.core.ranges import Ranges
from partq.pipeline.audit.judge.groups.history import LATER
from partq.pipeline.audit.judge.groups.state import GroupState
from partq.pipeline.audit.judge.lines import RecordLine
from partq.pipeline.audit.judge.outcome import DeliveryStall


class StallJudge:
    """Follows the lag of a group from the first time on that a member holds the partition.

    Lag are the messages that are published and that the group is not done with, whether they are in
    flight or not: those of a member that was killed are.
    """

    def __init__(self, state: GroupState) -> None:
        self._state = state
        self._segment = state.segment
        self._done = Ranges()
        self._is_known = False
        """Where the group's lag begins: at a `begin`, else at its first delivery or ack."""
        self._was_held = False
        self._since_ms: int | None = None
        """Since when nothing is delivered while there is lag."""
        self._holder = ""
        self._acknowledged = 0
        self.longest: DeliveryStall | None = None

    def begin(self, line: RecordLine) -> None:
        """Note what the group was done with before."""
        self._is_known = True
        self._was_held = self._was_held or bool(line.member)
        self._done.add(line.first, line.stop)

    def note(self, line: RecordLine) -> None:
        """Note a line of the group, which has been judged."""
        kind = line.kind
        if kind in ("deliver", "ack"):
            self._know(line.first)
        if kind == "deliver":
            self._was_held = True
            self._end(line.at_ms, line.member)
        elif kind == "ack":
            if self._since_ms is not None:
                self._acknowledged += line.stop - line.first
            self._done.add(line.first, line.stop)
        elif kind == "expired" or (kind == "dead_letter" and line.flags not in LATER):
            self._done.add(line.first, line.stop)
        elif kind == "reset":
            self._is_known = True
            self._done = Ranges([(0, line.first)])
        elif kind not in ("bind", "register", "commit"):
            return
        self.follow(line.at_ms)

    def free(self, line: RecordLine) -> None:
        """Note that the log's messages of a line were freed."""
        self._done.add(0, line.stop)
        self.follow(line.at_ms)

    def follow(self, at_ms: int) -> None:
        """Begin or end to wait, as the lag is now."""
        if not self._is_known or self._done.end_of_run(0) >= self._segment.log_end:
            self._end(at_ms, "")
        elif self._since_ms is None:
            self._was_held = self._was_held or bool(self._state.holder)
            if self._was_held:
                self._since_ms, self._holder = at_ms, self._state.holder or ""

    def finish(self) -> DeliveryStall | None:
        """Return the longest one; the record, or this part of it, ends."""
        self._end(self._segment.last_ms, "", is_open=True)
        return self.longest

    def _know(self, first: int) -> None:
        if not self._is_known:
            self._is_known = True
            self._done.add(0, first)

    def _end(self, at_ms: int, successor: str, *, is_open: bool = False) -> None:
        since_ms, self._since_ms = self._since_ms, None
        acknowledged, self._acknowledged = self._acknowledged, 0
        if since_ms is None or at_ms <= since_ms:
            return
        if self.longest is None or at_ms - since_ms > self.longest.length_ms:
            self.longest = DeliveryStall(
                self._segment.partition,
                self._state.name,
                since_ms,
                at_ms,
                self._holder,
                successor,
                acknowledged,
                is_open,
            )
