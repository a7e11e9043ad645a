"""The job: reads an archive, checks it, and writes the report.

    findings/     Parquet: every finding
    duplicates/   Parquet: redelivered messages, by cause and event
    handoffs/     Parquet: every attempt, how long it took and what it cut
    verdict.json  the counts
    report.html   for people

What a report of an earlier run left under these names is replaced.
"""

import json
from dataclasses import dataclass
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from partq.errors import SettingsError
from partq.pipeline.archive_files import read_archive, read_audit, read_state
from partq.pipeline.archive_log import ArchiveLog
from partq.pipeline.audit.checks import AuditEvidence, Reach, checks_of, gather
from partq.pipeline.audit.figures import draw_figures
from partq.pipeline.audit.findings import with_keys
from partq.pipeline.audit.report.page import render
from partq.pipeline.audit.schema import FINDINGS as FINDING_COLUMNS
from partq.pipeline.audit.summary import summarize
from partq.pipeline.audit.verdict import AuditVerdict
from partq.pipeline.storage.files import Files, open_files
from partq.pipeline.watch import JobProgress, JobWatch

FINDINGS, DUPLICATES, HANDOFFS = "findings", "duplicates", "handoffs"
VERDICT, PAGE = "verdict.json", "report.html"
_WORK = "_work"
_PLAN_CHARS = "20000"


@dataclass(frozen=True, slots=True)
class Report:
    """A verdict, and where the rest of the report is."""

    verdict: AuditVerdict
    page: str


def run_audit(
    spark: SparkSession,
    root: str,
    report: str,
    watch: JobWatch,
    *,
    with_messages: bool = True,
    is_from_start: bool = True,
) -> Report:
    """Check the archive under `root` and write the report under `report`.

    Args:
        spark: to run on.
        root: of the archive.
        report: where to write: a path or a URL that this Spark can write.
        watch: is told how far it is; a stop is noticed between two steps.
        with_messages: compare the record with the archived messages, too.
        is_from_start: what the record lacks before its first line is a fault.

    Raises:
        SettingsError: there is no archive, no record in it, or the report cannot be written.
        StoppedError: the job was told to end; no report is there then.
    """
    spark.conf.set("spark.sql.maxPlanStringLength", _PLAN_CHARS)  # else these plans fill the heap
    record = read_audit(spark, root)
    row_count = record.count()
    if not row_count:
        raise SettingsError(
            f"ROOT {root}: holds no audit record; set `audit: true` in the queue's spec, and "
            "archive it again"
        )
    messages = read_archive(spark, root) if with_messages else None
    state = read_state(spark, root)
    reach = Reach.of(spark, state.positions, state.gaps)
    files = open_files(spark, report)
    for name in (FINDINGS, DUPLICATES, HANDOFFS, VERDICT, PAGE):
        files.remove(name)
    work = f"{_WORK}/{uuid4().hex}"
    try:
        queue = str(ArchiveLog.open(open_files(spark, root)).identity)
        return _run(
            queue, spark, record, row_count, messages, reach, files, work, watch, is_from_start
        )
    finally:
        files.remove(_WORK)


def _run(
    queue: str,
    spark: SparkSession,
    record: DataFrame,
    row_count: int,
    messages: DataFrame | None,
    reach: Reach,
    files: Files,
    work: str,
    watch: JobWatch,
    is_from_start: bool,
) -> Report:
    # With the columns told, no Spark job has to look for them in the files.
    def keep(name: str, frame: DataFrame) -> DataFrame:
        path = files.url(f"{work}/{name}")
        frame.write.parquet(path)
        return spark.read.schema(frame.schema).parquet(path)

    evidence: AuditEvidence | None = None
    for step in gather(record, messages, keep):
        if isinstance(step, AuditEvidence):
            evidence = step
        else:
            _tell(watch, 0, row_count, step)
    assert evidence is not None  # noqa: S101  gather ends with it
    found = files.url(f"{work}/{FINDINGS}")
    checks = checks_of(evidence, reach, is_from_start=is_from_start)
    for at, (name, check) in enumerate(checks.items()):
        _tell(watch, row_count * at // len(checks), row_count, f"checking: {name}")
        check().write.mode("append").parquet(found)
    findings = spark.read.schema(FINDING_COLUMNS).parquet(found)
    if messages is not None:
        findings = with_keys(findings, messages)
    _tell(watch, row_count, row_count, "writing the report")
    for name, frame in (
        (FINDINGS, findings),
        (DUPLICATES, evidence.duplicates),
        (HANDOFFS, evidence.handoffs),
    ):
        frame.coalesce(1).write.parquet(files.url(name))
    findings = spark.read.schema(FINDING_COLUMNS).parquet(files.url(FINDINGS))
    verdict = summarize(evidence, findings)
    figures = draw_figures(evidence, findings, verdict.totals)
    files.create(VERDICT, json.dumps(verdict.to_json(), indent=2).encode())
    files.create(PAGE, render(queue, verdict, figures).encode())
    return Report(verdict, files.url(PAGE))


def _tell(watch: JobWatch, done: int, total: int, what: str) -> None:
    watch.check()
    watch.show(JobProgress(done, total, what))
