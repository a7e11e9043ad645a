"""`partq pipeline audit`: check what the brokers recorded, with the archive."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from partq.cli.errors import JsonCommand
from partq.cli.pipeline.engine import EngineChoice, engine_options
from partq.cli.pipeline.running import json_option, run_job, run_local_job
from partq.errors import SettingsError

if TYPE_CHECKING:
    from partq.pipeline.audit.engines.port import AuditEngine
    from partq.pipeline.audit.job import AuditReport
    from partq.pipeline.audit.verdict import AuditVerdict
    from partq.pipeline.job import Job
    from partq.pipeline.storage.files import Files
    from partq.pipeline.watch import JobWatch

MAX_NAMED = 10
"""Partitions that a note names."""

_HELP = """Check the audit record in an archive, and the archived messages against it.

Order per key, one owner at a time, nothing lost, a cause for each duplicate; pause, drain and
commit of every handoff; and that the record itself is whole and was not changed. Prints a verdict,
and writes a report: all findings as Parquet, and a page to read (report.html). Nothing in the
archive is changed.

Exit status: 0 clean; 1 faults were found, or something could not be judged.

\b
  partq pipeline audit /data/orders
  partq pipeline audit s3a://lake/orders --report s3a://lake/orders-audit --json
"""


@click.command(cls=JsonCommand, help=_HELP)
@click.argument("root")
@click.option(
    "--report",
    default="audit-report",
    show_default=True,
    metavar="DIR",
    help="Where the report goes: a path, or a URL that Spark can write. An older one is replaced.",
)
@click.option(
    "--messages/--no-messages",
    "with_messages",
    default=True,
    show_default=True,
    help="Check the archived messages, too.",
)
@click.option(
    "--partial",
    is_flag=True,
    help="The record may begin late: that groups before its first one are missing is no fault.",
)
@click.option(
    "--expect",
    "expected",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The verdict.json of an earlier audit, kept elsewhere: what the archive had then of the "
    "record and of the messages must be there still.",
)
@engine_options
@json_option
def audit(
    *,
    root: str,
    report: str,
    with_messages: bool,
    partial: bool,
    expected: Path | None,
    engine: EngineChoice,
    as_json: bool,
) -> None:
    """Check, report, and tell by the exit status."""
    # Only here: `--help` needs neither Spark nor Arrow.
    from partq.pipeline.audit.content.entries import read_log
    from partq.pipeline.audit.content.heads import read_earlier
    from partq.pipeline.storage.files import open_files, open_local_files

    if expected is not None and expected.resolve().is_relative_to(Path(report).resolve()):
        raise SettingsError(
            f"--expect {expected}: lies in the report's folder, {report}, which this audit "
            "replaces: the next one would expect what this one found; copy the file elsewhere"
        )
    earlier = None if expected is None else read_earlier(expected)

    def run(
        reader: "AuditEngine", watch: "JobWatch", archived: "Files", reported: "Files"
    ) -> "AuditReport":
        from partq.pipeline.audit.job import run_audit

        return run_audit(
            reader,
            archived,
            reported,
            watch,
            with_messages=with_messages,
            is_from_start=not partial,
            expected=earlier,
        )

    def with_arrow(watch: "JobWatch") -> "AuditReport":
        from partq.pipeline.audit.engines.arrow import ArrowAuditEngine

        files = open_local_files(root)
        return run(ArrowAuditEngine(files.root, watch), watch, files, open_local_files(report))

    def with_spark(job: "Job") -> "AuditReport":
        from partq.pipeline.audit.engines.spark import SparkAuditEngine

        files = open_files(job.spark, root)
        reader = SparkAuditEngine(job.spark, files, job.watch)
        return run(reader, job.watch, files, open_files(job.spark, report))

    def count() -> int:
        files = read_log(open_local_files(root)).state.files.values()
        return sum(each.rows for each in files if each.stream == "messages")

    if engine.engine(root, count) == "arrow":
        result, _ = run_local_job("audit", with_arrow)
    else:
        result, _ = run_job("audit", engine.spark, with_spark)
    verdict = result.verdict
    if as_json:
        click.echo(json.dumps({**verdict.to_json(), "report": result.page}))
    else:
        _show(Console(highlight=False), verdict)
        click.echo(f"report: {result.page}")
        if expected is None:
            click.echo(
                "keep its verdict.json where nobody can change it: with --expect FILE the next "
                "audit finds a record that was cut off"
            )
    if not verdict.is_clean:
        raise click.exceptions.Exit(1)


def _show(console: Console, verdict: "AuditVerdict") -> None:
    from partq.pipeline.audit.verdict import EVENTS

    totals = verdict.totals
    console.print(verdict.text, style="bold green" if verdict.is_clean else "bold red")
    archived = "" if totals.archived is None else f", {totals.archived:,} archived"
    console.print(
        f"{totals.records:,} records of {totals.partitions:,} partitions: "
        f"{totals.published:,} messages published{archived}"
    )
    if totals.compared is not None:
        console.print(f"{totals.compared:,} of the archived messages compared with what was stored")
    if verdict.groups:
        columns = ("published", "acknowledged", "otherwise done", "done before", "not known", "lag")
        table = _table("groups", right=columns)
        for name, done in verdict.groups.items():
            table.add_row(name, *(f"{each:,}" for each in asdict(done).values()))
        console.print(table)
    if verdict.not_expected:
        named = ", ".join(verdict.not_expected[:MAX_NAMED])
        more = len(verdict.not_expected) - MAX_NAMED
        console.print(
            f"--expect has no head of {len(verdict.not_expected):,} partitions, so a cut-off end "
            f"of their record is not found: {named}" + (f" and {more:,} more" if more > 0 else "")
        )
    if verdict.found:
        table = _table("findings", "check", "severity", right=("count",))
        for each in verdict.found:
            table.add_row(each.what, each.check, each.severity, f"{each.count:,}")
        console.print(table)
    if verdict.duplicates:
        table = _table("duplicates", "cause", "what had happened", right=("events", "messages"))
        for again in verdict.duplicates:
            table.add_row(
                again.group,
                again.cause,
                EVENTS.get(again.event, again.event),
                f"{again.events:,}",
                f"{again.messages:,}",
            )
        console.print(table)
    else:
        console.print("no message was delivered to a group a second time")
    if verdict.handoffs:
        table = _table(
            "handoffs",
            "end",
            right=("count", "median ms", "longest ms", "messages cut", "keys on both sides"),
        )
        for each_end in verdict.handoffs:
            table.add_row(
                each_end.group,
                each_end.text,
                *map(
                    _number,
                    (
                        each_end.count,
                        each_end.median_pause_ms,
                        each_end.longest_pause_ms,
                        each_end.messages_cut,
                        each_end.keys_continued,
                    ),
                ),
            )
        console.print(table)
    if verdict.stalls:
        longest = verdict.stalls[0]
        console.print(
            f"longest time without a delivery while there was lag: {longest.length_ms:,} ms, "
            f"partition {longest.partition} of {longest.group}"
        )


def _table(*names: str, right: tuple[str, ...]) -> Table:
    table = Table(*names, box=None, pad_edge=False)
    for name in right:
        table.add_column(name, justify="right")
    return table


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
