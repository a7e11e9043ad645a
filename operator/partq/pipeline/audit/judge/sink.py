"""Where what a judge says goes."""

from typing import Protocol

from partq.pipeline.audit.judge.finding import AuditFinding
from partq.pipeline.audit.judge.outcome import HolderSpell, Redelivered


class JudgeSink(Protocol):
    """Takes what is found in a partition, as it is found."""

    def found(self, finding: AuditFinding, /) -> None:
        """Take a finding."""

    def repeated(self, row: Redelivered, /) -> None:
        """Take messages that were delivered again."""

    def changed(self, group: str, member: str, at_ms: int, /) -> HolderSpell:
        """Return where to note the signs of life of the member that holds it from now on."""
