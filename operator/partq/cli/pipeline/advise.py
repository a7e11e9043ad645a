"""`partq pipeline advise`: how many partitions and consumers a queue needs."""

import json
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from partq.cli.errors import JsonCommand
from partq.cli.pipeline.running import SparkChoice, json_option, run_job, spark_options
from partq.excerpts import counted

if TYPE_CHECKING:
    from partq.pipeline.advise.advice import Candidate
    from partq.pipeline.advise.job import Advised
    from partq.pipeline.job import Job

SHOWN_KEYS = 10

_HELP = """Suggest numbers of partitions and consumers, tried on the keys of an archive.

Shows how messages spread over keys and partitions, the busiest keys, and with the archived audit
record how far consumers were behind. Each number of partitions is tried on the real keys: the
fewest are suggested at which the busiest partition fits into one consumer, and the fewest
consumers of which none gets too much, with the reasons. Nothing is changed.

How fast a consumer is comes from --consumer-rate, else from the audit record: what consumers did
while work was waiting.

It runs on Spark.

\b
  partq pipeline advise /data/orders --consumer-rate 250
  partq pipeline advise /data/orders --group workers --growth 3 --json
"""


@click.command(cls=JsonCommand, help=_HELP)
@click.argument("root")
@click.option(
    "--consumer-rate",
    type=float,
    help="Messages per second that one consumer processes. Default: from the audit record.",
)
@click.option(
    "--utilization",
    type=float,
    default=0.7,
    show_default=True,
    help="How busy a consumer may be at the peak.",
)
@click.option(
    "--growth",
    type=float,
    default=1.5,
    show_default=True,
    help="How many times the load of the archive has to fit.",
)
@click.option("--group", help="Take the rate of this group's consumers. Default: the slowest's.")
@click.option(
    "--time",
    "time_of",
    type=click.Choice(["publish", "event"]),
    default="publish",
    show_default=True,
    help="Which time of a message counts; event where the archive was filled by a replay.",
)
@click.option("--window", "window_s", type=int, help="Seconds that rates are taken over.")
@spark_options
@json_option
def advise(
    *,
    root: str,
    consumer_rate: float | None,
    utilization: float,
    growth: float,
    group: str | None,
    time_of: str,
    window_s: int | None,
    spark: SparkChoice,
    as_json: bool,
) -> None:
    """Read, try, suggest."""

    def work(job: "Job") -> "Advised":
        from partq.pipeline.advise.advice import Needs
        from partq.pipeline.advise.archived_table import archived_table
        from partq.pipeline.advise.job import run_advise
        from partq.pipeline.archive_files import read_archive, read_audit
        from partq.pipeline.archive_log import ArchiveLog
        from partq.pipeline.storage.files import open_files

        audit = read_audit(job.spark, root)
        return run_advise(
            read_archive(job.spark, root),
            None if audit.isEmpty() else audit,
            Needs(consumer_rate, utilization, growth),
            job.watch,
            table=archived_table(ArchiveLog.open(open_files(job.spark, root)).load()),
            time=f"{time_of}_time",
            window_s=window_s,
            group=group,
        )

    advised, _ = run_job("advise", spark, work)
    if as_json:
        click.echo(json.dumps(advised.to_json()))
        return
    console = Console(highlight=False)
    _show_load(console, advised)
    _show_candidates(console, advised)
    _show_advice(console, advised)


def _show_load(console: Console, advised: "Advised") -> None:
    loads, keys = advised.loads, advised.loads.keys
    span_s = loads.keyless.size * loads.window_s
    console.print(
        f"{loads.messages:,} messages in {span_s:,} s, at most {loads.peak_per_s:,.1f}/s over "
        f"{loads.window_s} s; {keys.count:,} keys, half of them with {keys.median_messages:,} "
        f"messages or fewer"
    )
    table = Table("busiest keys", title_justify="left")
    for name in ("messages", "share", "peak/s"):
        table.add_column(name, justify="right")
    for key in keys.hot[:SHOWN_KEYS]:
        peak = f"{key.peak_per_s:,.1f}"
        table.add_row(_short(key.key), f"{key.messages:,}", f"{key.share:.1%}", peak)
    if keys.hot:
        console.print(table)
    for lag in advised.lags:
        speed = "unknown" if lag.consumer_per_s is None else f"{lag.consumer_per_s:,.1f}/s"
        console.print(
            f"group {lag.group}: at most {lag.most_messages:,} messages behind, behind for "
            f"{lag.behind_s:,} s in all, {lag.last_messages:,} at the end; a consumer did {speed}",
            markup=False,
        )


def _show_candidates(console: Console, advised: "Advised") -> None:
    table = Table("partitions")
    for name in ("busiest has", "busy at once", "peak/s", "consumers"):
        table.add_column(name, justify="right")
    for each in _worth_showing(advised):
        marks = [
            mark
            for mark, number in (
                ("now", advised.partition_count),
                ("suggested", advised.advice.partitions),
            )
            if each.partitions == number
        ]
        table.add_row(
            " ".join([str(each.partitions), *marks]),
            f"{each.hottest_share:.1%}",
            f"{each.parallelism:.1f}",
            f"{each.peak_per_s:,.1f}",
            "-" if each.consumers is None else str(each.consumers),
        )
    console.print(table)


def _worth_showing(advised: "Advised") -> list["Candidate"]:
    """Return the numbers around what the queue has and what is suggested."""
    most = 4 * max(advised.partition_count, advised.advice.partitions)
    return [each for each in advised.advice.candidates if each.partitions <= most]


def _show_advice(console: Console, advised: "Advised") -> None:
    advice = advised.advice
    consumers = "" if advice.consumers is None else f", {counted(advice.consumers, 'consumer')}"
    console.print(f"suggested: {counted(advice.partitions, 'partition')}{consumers}", style="bold")
    for reason in advice.reasons:
        console.print(f"  because {reason}", markup=False, soft_wrap=True)
    for warning in advice.warnings:
        console.print(f"  mind: {warning}", markup=False, soft_wrap=True)


def _short(key: str) -> str:
    text = key if len(key) <= 60 else f"{key[:57]}..."
    return text.replace("[", r"\[")
