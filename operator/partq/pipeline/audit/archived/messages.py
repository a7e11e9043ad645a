"""The judge of one partition's archived messages, beside what its record says of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from partq.pipeline.audit.archived.keys import ContinuedKeys
from partq.pipeline.audit.archived.log import ArchivedRuns, MessageReach, check_log
from partq.pipeline.audit.content.rows import CONTENT_COLUMNS, ContentCheck
from partq.pipeline.audit.judge.finding import AuditFinding
from partq.pipeline.audit.judge.outcome import Handoff, RecordedLog


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    """What the messages of a partition come to."""

    findings: Sequence[AuditFinding]
    count: int
    compared: int
    """Of how many the content is that which was stored."""
    continued: Mapping[tuple[str, int], int]
    """Group and line of a commit → keys with messages on both sides of it."""

    def note_continued(self, handoffs: Sequence[Handoff]) -> None:
        """Note in each handoff how many keys it left in the middle."""
        for each in handoffs:
            if each.ended_at is not None:
                each.keys_continued = self.continued.get((each.group, each.ended_at))


class MessageJudge:
    """Judges the archived messages of a partition, in the order of their offsets.

    Args:
        log: what the record says of the log.
        reach: how far the archive says that it is.
    """

    def __init__(self, log: RecordedLog, reach: MessageReach) -> None:
        self._log = log
        self._reach = reach
        self._runs = ArchivedRuns()
        self._keys = ContinuedKeys(log.owned)
        self._content = ContentCheck(log.partition, reach.queue, log.batches)

    @property
    def columns(self) -> list[str]:
        """The columns of the messages that it looks at."""
        return list(CONTENT_COLUMNS)

    def judge(self, batch: pa.RecordBatch) -> None:
        """Judge messages."""
        self._runs.add(batch)
        self._content.check(batch)
        if self._keys.wants_keys:
            self._keys.add(batch)

    def finish(self) -> MessageOutcome:
        """Return what was found."""
        findings = check_log(self._log, self._runs, self._reach)
        findings += self._content.finish()
        return MessageOutcome(
            findings, self._runs.count, self._content.verified, self._keys.finish()
        )
