"""The job: reads an archive, has it judged, and writes the report.

    findings/     Parquet: every finding
    duplicates/   Parquet: redelivered messages, by cause and event
    handoffs/     Parquet: every attempt, how long it took and what it cut
    verdict.json  the counts
    report.html   for people

They are written into the folder `_partq_new` of the report, and put in place at the end: they
replace an earlier report, never files of others. A run that was stopped leaves the earlier report;
one that was killed while it put its own in place leaves no `verdict.json`. The file `_partq_report`
marks the folder as a report's, also after a crash.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import islice

import pyarrow as pa
from pyarrow import parquet

from partq.errors import SettingsError
from partq.pipeline.audit.content.entries import AuditedLog, read_log
from partq.pipeline.audit.content.extent import check_extent
from partq.pipeline.audit.content.files import check_files
from partq.pipeline.audit.content.heads import EarlierAudit
from partq.pipeline.audit.engines.port import AuditEngine, AuditScope, JudgedPartition
from partq.pipeline.audit.judge.changes.lineage import LineageJudge
from partq.pipeline.audit.judge.finding import AuditFinding
from partq.pipeline.audit.judge.outcome import Handoff, Redelivered
from partq.pipeline.audit.report.page import render
from partq.pipeline.audit.schema import DUPLICATES as DUPLICATE_COLUMNS
from partq.pipeline.audit.schema import FINDINGS as FINDING_COLUMNS
from partq.pipeline.audit.schema import HANDOFFS as HANDOFF_COLUMNS
from partq.pipeline.audit.tally import AuditTally
from partq.pipeline.audit.verdict import AuditVerdict
from partq.pipeline.storage.files import Files
from partq.pipeline.watch import JobWatch

FINDINGS, DUPLICATES, HANDOFFS = "findings", "duplicates", "handoffs"
VERDICT, PAGE = "verdict.json", "report.html"
MARKER = "_partq_report"
NEW = "_partq_new"
NAMES = (VERDICT, PAGE, FINDINGS, DUPLICATES, HANDOFFS)
"""`verdict.json` goes first and comes last: where it is, the rest is."""
MAX_BUFFERED = 100_000
"""From so many rows on a Parquet file of the report is written."""
MAX_TOGETHER = 64
"""Partitions whose findings are completed together: with Spark each look is one job."""
MAX_ROWS_TOGETHER = 10_000
"""Rows of partitions that wait for that; those of one partition may be more."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """A verdict, and where the rest of the report is."""

    verdict: AuditVerdict
    page: str


def run_audit(
    engine: AuditEngine,
    archive: Files,
    report: Files,
    watch: JobWatch,
    *,
    with_messages: bool = True,
    is_from_start: bool = True,
    expected: EarlierAudit | None = None,
) -> AuditReport:
    """Check an archive and write a report.

    Args:
        engine: reads the archive.
        archive: its files.
        report: where to write.
        watch: a stop is noticed between two steps.
        with_messages: compare the record with the archived messages, too.
        is_from_start: what the record lacks before its first line is a fault.
        expected: what an earlier audit ended with, which must be there still.

    Raises:
        SettingsError: there is no record in the archive, or the report cannot be written, or files
            of somebody else are in its place.
        StoppedError: the job was told to end; an earlier report stays.
        InternalError: a file of the archive cannot be read.
    """
    log = read_log(archive)
    queue = None if log.identity is None else log.identity.queue
    earlier = expected or EarlierAudit({})
    heads = None if expected is None else expected.heads
    scope = AuditScope(queue, log.state, with_messages, is_from_start, heads)
    if not log.findings and not scope.has_record:
        raise SettingsError(
            f"ROOT {archive.root}: holds no audit record; set `audit: true` in the queue's "
            "spec, and archive it again"
        )
    _check_place(report)
    is_first = report.create(MARKER, b"")
    report.remove(NEW)
    try:
        verdict, page = _judge(engine, archive, log, scope, earlier, report, watch)
        report.create(f"{NEW}/{VERDICT}", json.dumps(verdict.to_json(), indent=2).encode())
        report.create(f"{NEW}/{PAGE}", page.encode())
        watch.check()
    except BaseException:
        report.remove(NEW)
        if is_first:
            report.remove(MARKER)
        raise
    for name in NAMES:
        report.remove(name)
    for name in reversed(NAMES):
        report.move(f"{NEW}/{name}", name)
    report.remove(NEW)
    return AuditReport(verdict, report.url(PAGE))


def _check_place(report: Files) -> None:
    """See that only a report is replaced.

    Raises:
        SettingsError: there is something under the names of a report, and no report.
    """
    there = report.names("")
    taken = [name for name in NAMES if name in there]
    if not taken or MARKER in there:
        return
    try:
        body = json.loads(report.read(VERDICT) or b"null")
    except ValueError:
        body = None
    # Reports of earlier versions have no marker.
    if not (isinstance(body, dict) and {"verdict", "totals"} <= body.keys()):
        raise SettingsError(
            f"--report {report.root}: has {taken[0]}, and no report of partq; a new report would "
            "replace that; expected an empty folder, or an earlier report"
        )


def _judge(
    engine: AuditEngine,
    archive: Files,
    log: AuditedLog,
    scope: AuditScope,
    earlier: EarlierAudit,
    report: Files,
    watch: JobWatch,
) -> tuple[AuditVerdict, str]:
    tally = AuditTally()
    findings = _TableWriter(report, FINDINGS, FINDING_COLUMNS)
    duplicates = _TableWriter(report, DUPLICATES, DUPLICATE_COLUMNS)
    handoffs = _TableWriter(report, HANDOFFS, HANDOFF_COLUMNS)
    watch.check()
    checked = check_files(archive, scope.state, scope.streams, watch)
    extent = check_extent(scope.state, log.identity, earlier.archived)
    of_archive = [*log.findings, *extent, *checked.findings]
    tally.add_findings(of_archive)
    findings.add(of_archive)
    scope = scope.without(checked.unreadable)
    lineage = LineageJudge()
    for together in _together(engine.judge(scope), watch):
        lacking = [finding for judged in together for finding in judged.findings]
        completed = iter(_completed(engine, scope, lacking))
        for judged in together:
            judged.findings = list(islice(completed, len(judged.findings)))
            tally.add(judged)
            findings.add(judged.findings)
            duplicates.add(judged.repeats)
            handoffs.add(judged.outcome.handoffs)
            if judged.outcome.changes is not None:
                lineage.add(judged.outcome.changes)
    across = _completed(engine, scope, list(lineage.findings()))
    tally.add_findings(across)
    findings.add(across)
    for rows in (findings, duplicates, handoffs):
        rows.finish()
    positions = scope.state.positions.get("messages", {}) if scope.with_messages else {}
    verdict = replace(
        tally.verdict(),
        not_expected=scope.not_expected(),
        archived={partition: each.offset for partition, each in positions.items()},
    )
    title = f"{archive.root}, queue not known" if log.identity is None else str(log.identity)
    return verdict, render(title, verdict, tally.figures())


def _together(
    judged: Iterable[JudgedPartition], watch: JobWatch
) -> Iterator[list[JudgedPartition]]:
    """Yield partitions in their order, several at a time: at most `MAX_TOGETHER` of them."""
    waiting: list[JudgedPartition] = []
    row_count = 0
    for each in judged:
        watch.check()
        waiting.append(each)
        row_count += len(each.findings) + len(each.repeats) + len(each.outcome.handoffs)
        if len(waiting) >= MAX_TOGETHER or row_count >= MAX_ROWS_TOGETHER:
            yield waiting
            waiting, row_count = [], 0
    if waiting:
        yield waiting


def _completed(
    engine: AuditEngine, scope: AuditScope, findings: list[AuditFinding]
) -> list[AuditFinding]:
    """Fill in the keys of messages, and the records of their publishing."""
    lacks_key = {
        (each.partition, each.first)
        for each in findings
        if each.first is not None and each.first >= 0 and each.key is None
    }
    lacks_record = {
        (each.partition, each.first)
        for each in findings
        if each.first is not None and each.sequence is None
    }
    keys = engine.keys(scope, lacks_key) if scope.with_messages and lacks_key else {}
    records = engine.published_at(scope, lacks_record) if lacks_record else {}
    completed = []
    for each in findings:
        if each.first is not None:
            place = (each.partition, each.first)
            if each.key is None:
                each = each._replace(key=keys.get(place))
            if each.sequence is None and place in records:
                sequence, at_ms = records[place]
                each = each._replace(sequence=sequence, at_ms=at_ms)
        completed.append(each)
    return completed


class _TableWriter:
    """Rows of one table of the report, written as they come."""

    def __init__(self, report: Files, folder: str, schema: pa.Schema) -> None:
        self._report = report
        self._folder = folder
        self._schema = schema
        self._waiting: list[AuditFinding | Redelivered | Handoff] = []
        self._count = 0

    def add(self, rows: Iterable[AuditFinding | Redelivered | Handoff]) -> None:
        """Add rows."""
        self._waiting += rows
        if len(self._waiting) >= MAX_BUFFERED:
            self._write()

    def finish(self) -> None:
        """Write what is left; a table without rows has one file, too."""
        if self._waiting or not self._count:
            self._write()

    def _write(self) -> None:
        columns = {
            name: [getattr(row, name) for row in self._waiting] for name in self._schema.names
        }
        data = BytesIO()
        parquet.write_table(pa.Table.from_pydict(columns, self._schema), data)
        self._report.create(f"{NEW}/{self._folder}/part-{self._count:05d}.parquet", data.getvalue())
        self._waiting = []
        self._count += 1
