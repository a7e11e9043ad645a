"""Where what a judge says goes."""

from typing import Protocol

from partq.pipeline.audit.judge.finding import AuditFinding
from partq.pipeline.audit.judge.outcome import HolderChange, Redelivered


class JudgeSink(Protocol):
    """Takes what is found in a partition, as it is found."""

    def found(self, finding: AuditFinding, /) -> None:
        """Take a finding."""

    def repeated(self, row: Redelivered, /) -> None:
        """Take messages that were delivered again."""

    def changed(self, group: str, change: HolderChange, /) -> None:
        """Take who holds the partition from now on."""
