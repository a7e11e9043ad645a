"""The books of a long run: what was found of each part, without the rows of every part."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from partq.lab.verdict.journal import in_order
from partq.lab.verdict.journal_rows import DeliveredRow
from partq.lab.verdict.judge import (
    MAX_FINDINGS,
    UNKNOWN_CAUSE,
    Verdict,
    cause_of,
    judge,
    token_of,
    unexplained,
)
from partq.lab.verdict.progress import RunProgress
from partq.lab.verdict.sessions import find_session_faults

KEEP_PARTS: Final = 5
"""How many of the last parts keep their rows: a repeat may come after its part was judged."""


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the sum of verdicts over messages of which no two have one in common."""
    parts = list(verdicts)
    duplicates: Counter[str] = Counter()
    for each in parts:
        duplicates.update(each.duplicates)
    findings = [finding for each in parts for finding in each.findings]
    return Verdict(
        published=sum(each.published for each in parts),
        delivered=sum(each.delivered for each in parts),
        lost=sum(each.lost for each in parts),
        foreign=sum(each.foreign for each in parts),
        out_of_order=sum(each.out_of_order for each in parts),
        duplicates=dict(sorted(duplicates.items())),
        overlapping=sum(each.overlapping for each in parts),
        session_faults=sum(each.session_faults for each in parts),
        findings=tuple(findings[:MAX_FINDINGS]),
    )


class RunTotals:
    """Judges the parts of a run, and all of them together.

    A part is the messages whose keys begin with its prefix; no prefix may begin another. The rows
    of a part leave `progress` when `keep_parts` later ones were judged. What comes of it after that
    can only be a repeat; it is judged by the token and the cause that it carries. `has_order`: see
    `judge`.
    """

    def __init__(
        self, progress: RunProgress, *, keep_parts: int = KEEP_PARTS, has_order: bool = True
    ) -> None:
        self._progress = progress
        self._has_order = has_order
        self._keep_parts = keep_parts
        self._begun: list[str] = []
        """The part whose rows are still coming, if any."""
        self._open: deque[str] = deque()
        self._closed: Verdict = together(())
        self._last_tokens: dict[str, tuple[int, int]] = {}
        """The highest token of each key of the parts that are closed."""

    def begin(self, prefix: str) -> None:
        """Expect the rows of a part; `total` leaves them out until it was judged."""
        self._begun = [prefix]

    def judge_part(self) -> Verdict:
        """Judge the part that was begun by the rows that have come, and close the oldest part."""
        prefix = self._begun.pop()
        verdict = self._judge(prefix)
        self._open.append(prefix)
        while len(self._open) > self._keep_parts:
            self._close(self._open.popleft())
        return verdict

    def total(self) -> Verdict:
        """Judge all parts once more, by everything that has come of them.

        What belongs to no part counts as foreign.
        """
        known = (*self._begun, *self._open)
        rest = [row for row in self._progress.deliveries if not row.key.startswith(known)]
        late = [row for row in rest if row.key in self._last_tokens]
        strays = [row for row in rest if row.key not in self._last_tokens]
        return together(
            [
                self._closed,
                *map(self._judge, self._open),
                self._judge_late(in_order(late)),
                judge((), in_order(strays)),
            ]
        )

    def _judge(self, prefix: str) -> Verdict:
        progress = self._progress
        deliveries = in_order(row for row in progress.deliveries if row.key.startswith(prefix))
        verdict = judge(
            [row for row in progress.published if row.key.startswith(prefix)],
            deliveries,
            has_order=self._has_order,
        )
        of_sessions = [row for row in progress.of_sessions if row.session.startswith(prefix)]
        if not of_sessions:
            return verdict
        faults = find_session_faults(in_order([*of_sessions, *deliveries]))
        return replace(
            verdict,
            session_faults=len(faults),
            findings=(*verdict.findings, *faults)[:MAX_FINDINGS],
        )

    def _close(self, prefix: str) -> None:
        self._closed = together([self._closed, self._judge(prefix)])
        for row in self._progress.forget(prefix):
            before = self._last_tokens.get(row.key, (0, 0))
            self._last_tokens[row.key] = max(before, token_of(row))

    def _judge_late(self, rows: Iterable[DeliveredRow]) -> Verdict:
        last = dict(self._last_tokens)
        duplicates: Counter[str] = Counter()
        findings: list[str] = []
        for row in rows:
            is_later = token_of(row) > last[row.key] or not self._has_order
            cause = cause_of(row) if is_later else UNKNOWN_CAUSE
            last[row.key] = max(last[row.key], token_of(row))
            duplicates[cause] += 1
            if cause == UNKNOWN_CAUSE:
                findings.append(unexplained(row))
        return Verdict(
            published=0,
            delivered=0,
            lost=0,
            foreign=0,
            out_of_order=0,
            duplicates=dict(duplicates),
            findings=tuple(findings[:MAX_FINDINGS]),
        )
