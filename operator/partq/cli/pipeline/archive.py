"""`partq pipeline archive`: write a queue to Parquet, each message once."""

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from partq.cli.errors import JsonCommand
from partq.cli.pipeline.access import access_of
from partq.cli.pipeline.engine import EngineChoice, engine_options
from partq.cli.pipeline.running import json_option, run_job, run_local_job
from partq.cli.quantity import Quantity
from partq.cli.queues.connection import Connect, connection_options
from partq.errors import SettingsError

if TYPE_CHECKING:
    from partq.pipeline.archive.archiver import Archived
    from partq.pipeline.archive.engine import ArchiveEngine
    from partq.pipeline.job import Job
    from partq.pipeline.storage.files import Files
    from partq.pipeline.watch import JobWatch

_HELP = """Write a queue to Parquet under ROOT: a path, or a URL that Spark can write.

Each message is written once, also when the command is killed and run again. The cursors of --group
move when their messages are durable; the group is the archive's alone, no member may be in it. The
archive begins at its cursors. The audit record, where the queue has one, is archived too, and what
is archived of it is trimmed.

\b
  partq pipeline archive /data/orders --group archive
  partq pipeline archive s3a://lake/orders --group archive --follow --every 60
"""


@click.command(cls=JsonCommand, help=_HELP)
@click.argument("root")
@connection_options
@click.option(
    "--group", envvar="PARTQ_GROUP", show_envvar=True, help="Consumer group of the archive alone."
)
@click.option(
    "--once/--follow",
    default=True,
    show_default=True,
    help="End with what is there now, or continue until SIGTERM or Ctrl-C.",
)
@click.option(
    "--every",
    "every_s",
    type=Quantity(0.1, 86_400),
    default=30.0,
    show_default=True,
    help="With --follow: seconds between two looks for more.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(1, 1_000_000_000),
    default=1_000_000,
    show_default=True,
    help="Messages of one step: what counts together, and what a crash costs at most.",
)
@click.option(
    "--audit/--no-audit",
    default=None,
    help="Archive the audit record, too. Default: if the queue keeps one.",
)
@click.option(
    "--take-over-audit",
    is_flag=True,
    help="Continue an audit record that another archive has a part of; it gets no more of it.",
)
@click.option(
    "--skip-lost",
    is_flag=True,
    help="Note messages that are no longer stored as a gap, and continue.",
)
@click.option(
    "--skip-undecodable",
    is_flag=True,
    help="Keep the stored bytes of undecodable messages, note their offsets, and continue.",
)
@engine_options
@json_option
def archive(
    *,
    root: str,
    connect: Connect,
    group: str | None,
    once: bool,
    every_s: float,
    max_rows: int,
    audit: bool | None,
    take_over_audit: bool,
    skip_lost: bool,
    skip_undecodable: bool,
    engine: EngineChoice,
    as_json: bool,
) -> None:
    """Archive, and say what is durable."""
    if not group:
        raise SettingsError(
            "--group is not given (PARTQ_GROUP); name a consumer group that is the archive's alone"
        )
    # Only here: `--help` needs neither Spark nor Arrow.
    from partq.pipeline.archive.archiver import Archiver, ArchiveSettings
    from partq.pipeline.archive.audit_feed import AuditFeed
    from partq.pipeline.archive.feeds import Feed, MessageFeed
    from partq.pipeline.archive_log import ArchiveLog
    from partq.pipeline.storage.files import open_files, open_local_files

    access = access_of(connect("consume" if audit is False else "admin"))
    record = AuditFeed(access)
    # Before Spark starts: a token that is not enough is said at once.
    has_record = record.has_record() if audit is None else audit
    messages = MessageFeed(access, group)
    feeds: list[Feed] = [record, messages] if has_record else [messages]
    settings = ArchiveSettings(
        every_s=None if once else every_s,
        max_rows=max_rows,
        skips_lost=skip_lost,
        takes_over_audit=take_over_audit,
        skips_undecodable=skip_undecodable,
    )

    def run(runner: "ArchiveEngine", watch: "JobWatch", files: "Files") -> "Archived":
        log = ArchiveLog.open_for(files, access.identity())
        return Archiver(
            runner, watch, log, feeds, settings, now_ms=lambda: time.time_ns() // 1_000_000
        ).run()

    def with_arrow(watch: "JobWatch") -> "Archived":
        from partq.pipeline.archive.arrow_engine import ArrowEngine

        files = open_local_files(root)
        return run(ArrowEngine(watch, files), watch, files)

    def with_spark(job: "Job") -> "Archived":
        from partq.pipeline.archive.spark_engine import SparkEngine

        return run(SparkEngine(job.spark), job.watch, open_files(job.spark, root))

    if engine.engine(root, messages.waiting) == "arrow":
        done, number = run_local_job("archive", with_arrow)
    else:
        done, number = run_job("archive", engine.spark, with_spark)
    click.echo(json.dumps(asdict(done)) if as_json else as_text(done))
    if number and not done.is_complete:
        raise click.exceptions.Exit(128 + number)


def as_text(done: "Archived") -> str:
    """Return what was done, for people."""
    counts = ", ".join(f"{count:,} rows of {stream}" for stream, count in done.rows.items())
    text = f"archived {counts or 'nothing'}, {done.files:,} files, {done.bytes:,} bytes"
    if not done.is_complete:
        text += "; stopped before the end, run it again for the rest"
    return text
