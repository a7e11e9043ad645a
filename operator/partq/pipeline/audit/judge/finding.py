"""A finding as a value, and where findings go."""

from collections.abc import Callable
from typing import NamedTuple

from partq.errors import InternalError
from partq.pipeline.audit.judge.lines import RecordLine
from partq.pipeline.audit.schema import KINDS

ACKS = "acks"
CHAIN = "chain"
CONTENT = "content"
DUPLICATES = "duplicates"
EXTENT = "extent"
FILES = "files"
GATE = "gate"
HANDOFFS = "handoffs"
LINEAGE = "lineage"
LOG = "log"
LOSS = "loss"
ORDER = "order"
OWNERS = "owners"
PRODUCERS = "producers"
SEAL = "seal"
"""Names of the checks."""


class AuditFinding(NamedTuple):
    """What is wrong in one place: the columns of `schema.FINDINGS`."""

    check: str
    what: str
    severity: str
    partition: str
    group: str | None = None
    sequence: int | None = None
    at_ms: int | None = None
    first: int | None = None
    stop: int | None = None
    key: str | None = None
    member: str | None = None
    broker_epoch: int | None = None
    epoch: int | None = None
    attempt: int | None = None
    detail: str = ""


Found = Callable[[AuditFinding], None]
"""Takes a finding."""


def finding(
    check: str, what: str, partition: str, detail: str, **places: int | str | None
) -> AuditFinding:
    """Return a finding; `places` are others of its columns.

    Raises:
        InternalError: there is no such kind.
    """
    severity = KINDS.get(what)
    if severity is None:
        raise InternalError(f"finding {what}: expected one of KINDS; add it there")
    return AuditFinding(check, what, severity, partition, detail=detail, **places)  # type: ignore[arg-type]  # columns of a finding


def of_line(
    check: str,
    what: str,
    partition: str,
    line: RecordLine,
    detail: str,
    first: int | None = None,
    stop: int | None = None,
) -> AuditFinding:
    """Return a finding that a line shows; `first` and `stop`: of which of its offsets."""
    return finding(
        check,
        what,
        partition,
        detail,
        group=line.group or None,
        sequence=line.sequence,
        at_ms=line.at_ms,
        first=_or_none(line.first) if first is None else first,
        stop=_or_none(line.stop) if stop is None else stop,
        member=line.member or None,
        broker_epoch=line.broker_epoch,
        epoch=_or_none(line.epoch),
        attempt=_or_none(line.attempt),
    )


def _or_none(number: int) -> int | None:
    return None if number < 0 else number
