"""`partq pipeline compact`: merge the small files of an archive."""

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from partq.cli.errors import JsonCommand
from partq.cli.pipeline.running import SparkChoice, json_option, run_job, spark_options
from partq.cli.quantity import Quantity

if TYPE_CHECKING:
    from partq.pipeline.compaction import Compaction
    from partq.pipeline.job import Job

MIB = 1024 * 1024

_HELP = """Merge the small files of an archive, per date and partition.

It may run while the archive is written and read: readers see each row once at any time. Merged
files stay for --keep seconds, for readers that began before; a later run deletes them, and what
jobs that were killed have left. After a crash run it again.

It runs on Spark.

\b
  partq pipeline compact /data/orders
  partq pipeline compact s3a://lake/orders --target-mib 256 --json
"""


@click.command(cls=JsonCommand, help=_HELP)
@click.argument("root")
@click.option(
    "--target-mib",
    type=click.IntRange(1, 10_240),
    default=128,
    show_default=True,
    help="Files of this size are left alone.",
)
@click.option(
    "--keep",
    "keep_s",
    type=Quantity(0, 366 * 86_400),
    default=86_400.0,
    show_default=True,
    help="Seconds for which merged files stay.",
)
@spark_options
@json_option
def compact(
    *, root: str, target_mib: int, keep_s: float, spark: SparkChoice, as_json: bool
) -> None:
    """Merge until nothing is left to merge."""

    def work(job: "Job") -> "Compaction":
        from partq.pipeline import compaction
        from partq.pipeline.archive_log import ArchiveLog
        from partq.pipeline.storage.files import open_files

        return compaction.compact(
            job,
            ArchiveLog.open(open_files(job.spark, root)),
            now_ms=lambda: time.time_ns() // 1_000_000,
            target_bytes=target_mib * MIB,
            keep_ms=round(keep_s * 1000),
        )

    done, number = run_job("compact", spark, work)
    if as_json:
        click.echo(json.dumps(asdict(done)))
    else:
        click.echo(
            f"{done.files_before:,} files, now {done.files_after:,}; merged {done.merged:,} with "
            f"{done.rows:,} rows, deleted {done.deleted:,}"
            + ("" if done.is_complete else "; stopped before the end, run it again for the rest")
        )
    if number and not done.is_complete:
        raise click.exceptions.Exit(128 + number)
