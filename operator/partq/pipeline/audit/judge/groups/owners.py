"""Checks that one member and one flow at a time had a partition of a group (S1)."""

from partq.pipeline.audit.judge.finding import ACKS, HANDOFFS, OWNERS, finding, of_line
from partq.pipeline.audit.judge.groups.state import GroupState
from partq.pipeline.audit.judge.lines import RecordLine


class OwnerJudge:
    """Follows the token and its holder."""

    def __init__(self, state: GroupState) -> None:
        self._state = state
        self._segment = state.segment
        self._held_by: str | None = None
        """Whom the last line that names a holder leaves the partition to, `begin` included."""
        self._raised: int | None = None
        """The highest epoch that the groups before this one drew."""
        self._raised_here: tuple[int, int] | None = None
        """Sequence and epoch of the last group that drew one."""
        self._token: tuple[int, int] | None = None
        self._flows: dict[tuple[str, str, int], None] = {}
        self._shared: RecordLine | None = None
        """The first delivery under this token to a second flow."""
        self._first = self._stop = 0

    def is_stray(self, line: RecordLine) -> bool:
        """Return whether a line of a flow is not of the claim, epoch and member that held."""
        state, claimed = self._state, self._segment.claimed
        if state.shares is not None:
            is_over = line.kind == "deliver" and state.shares.has_ended(state.holder_of(line))
            return (is_over and state.sessions is None) or (
                claimed is not None and line.broker_epoch != claimed
            )
        return (
            (claimed is not None and line.broker_epoch != claimed)
            or (state.current is not None and line.epoch != state.current)
            or (line.kind == "deliver" and state.holder is not None and line.member != state.holder)
        )

    def check_member(self, line: RecordLine) -> None:
        """Report an outcome that comes under the right token from somebody else than its holder."""
        state = self._state
        # A reader that moves the cursor is no member, and has no name.
        if line.member and state.holder is not None and line.member != state.holder:
            text = (
                f"{line.kind} of {line.first} to {line.stop - 1} was accepted from {line.member}, "
                f"while {state.holder or 'nobody'} held"
            )
            self._segment.found(of_line(ACKS, "ack_not_held", self._segment.partition, line, text))

    def begin(self, line: RecordLine) -> None:
        """Note who held the partition when the record began: that may have changed meanwhile."""
        self._held_by = line.member

    def renew(self, line: RecordLine) -> None:
        """Judge a bind, registration, commit or reset: it draws a new epoch."""
        self._end_token()
        self._check_epoch(line)
        if line.kind != "reset":
            self._check_holder(line)
        state = self._state
        state.current = line.epoch if state.current is None else max(state.current, line.epoch)
        state.note_event("renewal", line)
        state.owner_at = line.at
        if line.kind == "commit":
            state.note_event("commit", line)
        if line.kind != "reset":
            self._held_by = line.target if line.kind == "commit" else line.member
            if state.holder != self._held_by:
                state.holder = self._held_by
                state.note_holder(line)

    def check_part(self, line: RecordLine, held_by: str | None) -> None:
        """Judge a commit of a part, which `held_by` had; None: nobody knows."""
        self._check_epoch(line)
        current = self._state.current
        self._state.current = line.epoch if current is None else max(current, line.epoch)
        if held_by is not None and held_by != line.member:
            text = (
                f"attempt {line.attempt} passed part {line.number} from {line.member or 'nobody'} "
                f"to {line.target or 'nobody'}, while {held_by or 'nobody'} had it"
            )
            self._report("commit_not_held", line, text)

    def forget_epochs(self) -> None:
        """Note a claim: epochs that were drawn in the memory of the last broker are over."""
        self._raised = self._raised_here = None

    def note_flow(self, line: RecordLine) -> None:
        """Note to which flow a delivery went."""
        token = (line.broker_epoch, line.epoch)
        if token != self._token:
            self._end_token()
            self._token, self._first = token, line.first
        self._flows[line.member, line.incarnation, line.flow] = None
        if len(self._flows) == 2 and self._shared is None:
            self._shared = line
        self._first, self._stop = min(self._first, line.first), max(self._stop, line.stop)

    def finish(self) -> None:
        """Judge the last token."""
        self._end_token()

    def _end_token(self) -> None:
        shared, token = self._shared, self._token
        if shared is not None and token is not None:
            text = (
                f"{len(self._flows)} flows were delivered to under the one token "
                f"({token[0]}, {token[1]})"
            )
            self._segment.found(
                finding(
                    OWNERS,
                    "two_flows",
                    self._segment.partition,
                    text,
                    group=self._state.name,
                    sequence=shared.sequence,
                    at_ms=shared.at_ms,
                    first=self._first,
                    stop=self._stop,
                    member=min(member for member, _, _ in self._flows),
                    broker_epoch=token[0],
                    epoch=token[1],
                )
            )
        self._token = self._shared = None
        self._flows.clear()
        self._first = self._stop = 0

    def _check_epoch(self, line: RecordLine) -> None:
        # A registration with an offset is two records in one group, `register` and `reset`: one
        # epoch.
        here = self._raised_here
        if here is not None and here[0] != line.sequence:
            self._raised = here[1] if self._raised is None else max(self._raised, here[1])
            here = None
        if self._raised is not None and line.epoch <= self._raised:
            text = f"{line.kind} drew {line.epoch}, which is not above {self._raised}"
            self._report("epoch_not_raised", line, text)
        drawn = line.epoch if here is None else max(here[1], line.epoch)
        self._raised_here = (line.sequence, drawn)

    def _check_holder(self, line: RecordLine) -> None:
        held_by, member = self._held_by, line.member
        if held_by is None:
            return
        if line.kind == "register" and held_by not in ("", member):
            self._report("registered_while_held", line, f"{member} registered what {held_by} held")
        if line.kind == "bind" and held_by != member and not self._report_commit(line, held_by):
            text = f"a flow of {member} took up what {held_by or 'nobody'} held"
            self._report("bind_not_held", line, text)
        if line.kind == "commit" and held_by != member:
            text = (
                f"attempt {line.attempt} passed the partition from {member or 'nobody'} to "
                f"{line.target or 'nobody'}, while {held_by or 'nobody'} held"
            )
            self._report("commit_not_held", line, text)

    def _report_commit(self, line: RecordLine, held_by: str) -> bool:
        """Report that an attempt was drained, and a bind of another member shows its commit.

        Return whether that is so. The attempt counts as over then: what follows is judged as if
        the commit was there.
        """
        state, pause = self._state, self._state.pause
        if pause is None or pause.drained is None or not held_by:
            return False
        text = (
            f"attempt {pause.attempt} paused and drained {held_by}, and a flow of {line.member} "
            "took the partition up; the commit between is not recorded"
        )
        found = of_line(HANDOFFS, "missing_commit", self._segment.partition, line, text)
        self._segment.found(found._replace(attempt=pause.attempt, member=held_by))
        handoff = state.handoffs.get(pause.attempt)
        if handoff is not None:
            handoff.outcome, handoff.target = "not_known", line.member
        state.pause = None
        state.note_event("commit", line)
        return True

    def _report(self, what: str, line: RecordLine, text: str) -> None:
        self._segment.found(of_line(OWNERS, what, self._segment.partition, line, text))
