"""`partq pipeline replay`: publish an archive again, in the order of each key."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from partq.cli.errors import JsonCommand
from partq.cli.formatting import full_name, milliseconds
from partq.cli.pipeline.access import access_of
from partq.cli.pipeline.running import SparkChoice, json_option, run_job, spark_options
from partq.cli.quantity import Quantity
from partq.cli.queues.connection import Connect, connection_options
from partq.core.model import PartitionId
from partq.errors import SettingsError

if TYPE_CHECKING:
    from partq.pipeline.job import Job
    from partq.pipeline.replay import Preview, Replayed

_HELP = """Publish the archive in ROOT to a queue, or a part of it, in the order of each key.

A replay that was killed or failed continues when the same command is run again, and stores each
message once. It sends what the archive has when it begins; what is archived later is another
replay's. The queue may be another one, and have another number of partitions.

It runs on Spark.

\b
  partq pipeline replay /data/orders --queue orders-copy --rate 1000
  partq pipeline replay /data/orders --from 2026-11-20T08:00:00+00:00 --key customer-7 --dry-run
"""


@click.command(cls=JsonCommand, help=_HELP)
@click.argument("root")
@connection_options
@click.option(
    "--rate",
    type=Quantity(1, 10_000_000),
    help="Messages per second at most, over steps of two seconds. Default: as fast as it goes.",
)
@click.option(
    "--id", "replay_id", help="Name of the replay. Default: made of what is sent and where to."
)
@click.option("--from", "since", metavar="TIME", help="Only what was stored then or later.")
@click.option("--until", metavar="TIME", help="Only what was stored before.")
@click.option(
    "--partition", "names", multiple=True, help="Only messages of this partition; may be repeated."
)
@click.option("--key", "keys", multiple=True, help="Only messages of this key; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@spark_options
@json_option
def replay(
    *,
    root: str,
    connect: Connect,
    rate: float | None,
    replay_id: str | None,
    since: str | None,
    until: str | None,
    names: tuple[str, ...],
    keys: tuple[str, ...],
    dry_run: bool,
    spark: SparkChoice,
    as_json: bool,
) -> None:
    """Send, and say how much."""
    chosen: dict[str, Any] = {
        "from_ms": None if since is None else milliseconds(since, "--from"),
        "until_ms": None if until is None else milliseconds(until, "--until"),
        "partitions": _partitions(names) or None,
        "keys": keys or None,
    }
    if dry_run:
        shown, _ = run_job("replay", spark, lambda job: _preview(job, root, chosen))
        click.echo(json.dumps(asdict(shown)) if as_json else preview_text(shown))
        return
    connection = connect("produce")

    def work(job: "Job") -> "Replayed":
        from partq.pipeline import replay as replaying
        from partq.pipeline.archive_log import ArchiveLog
        from partq.pipeline.replay_plan import ReplayFilter
        from partq.pipeline.storage.files import open_files

        return replaying.replay(
            job,
            ArchiveLog.open(open_files(job.spark, root)),
            access_of(connection),
            ReplayFilter(**chosen),
            replay_id=replay_id,
            rate=rate,
        )

    done, number = run_job("replay", spark, work)
    click.echo(json.dumps(asdict(done)) if as_json else as_text(done))
    if number and not done.is_complete:
        raise click.exceptions.Exit(128 + number)


def _preview(job: "Job", root: str, chosen: dict[str, Any]) -> "Preview":
    from partq.pipeline import replay as replaying
    from partq.pipeline.archive_log import ArchiveLog
    from partq.pipeline.replay_plan import ReplayFilter
    from partq.pipeline.storage.files import open_files

    archive = ArchiveLog.open(open_files(job.spark, root))
    return replaying.preview(job, archive, ReplayFilter(**chosen))


def _partitions(names: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(sorted({str(PartitionId.parse(full_name(name))) for name in names}))
    except ValueError as error:
        raise SettingsError(f"--partition: {error}") from error


def preview_text(shown: "Preview") -> str:
    """Return what would be sent, for people."""
    if shown.first_ms is None or shown.last_ms is None:
        return "nothing would be sent: the archive has no such messages"
    first, last = (datetime.fromtimestamp(at / 1000, UTC) for at in (shown.first_ms, shown.last_ms))
    lines = [
        f"{shown.messages:,} messages of {shown.keys:,} keys would be sent, stored from "
        f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC"
    ]
    lines += [f"  partition {name}: {count:,}" for name, count in shown.partitions.items()]
    if shown.undecodable:
        lines.append(_undecodable_text(shown.undecodable))
    return "\n".join(lines)


def _undecodable_text(count: int) -> str:
    return (
        f"{count:,} undecodable messages of these partitions are not sent: the archive has no rows "
        "of them; their stored batches are in ROOT/_partq/undecodable"
    )


def as_text(done: "Replayed") -> str:
    """Return what was done, for people."""
    text = f"replay {done.replay}: covered {done.sent:,} archived messages in {done.steps:,} steps"
    if done.skipped:
        text += f"; {done.skipped:,} were done before"
    if not done.steps and done.is_complete:
        text += "; it is complete, give another --id to send the same again"
    if not done.is_complete:
        text += "; stopped before the end, run it again for the rest"
    if done.undecodable:
        text += "\n" + _undecodable_text(done.undecodable)
    return text
