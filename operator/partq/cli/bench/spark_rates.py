"""`partq bench spark`: how fast Spark reads and writes a queue, beside Parquet and the client."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from partq.cli.bench.processes import cpu_s, family_of_this_process, pids_of
from partq.cli.bench.resources import resources_of
from partq.cli.workload.events import default_input
from partq.client.consumer import Consumer
from partq.embedded.runtime import EmbeddedRuntime, RunningQueue
from partq.errors import InternalError

if TYPE_CHECKING:
    from partq.spark.pipeline.job import Job

_QUEUE, _GROUP = "bench", "readers"
_MEMORY = {"spark.driver.memory": "2g", "spark.sql.adaptive.enabled": "false"}

_HELP = """Measure Spark on a queue: writing it, and reading it.

Starts Redis and brokers of its own in a temporary directory, and Spark in this process. Makes
Parquet files of real events, repeated; Spark writes them to the queue. Then the same rows are read
in turns by Spark from the queue, by Spark from Parquet, and by the Python client's consumer in one
process. A rate per core is rows per second of CPU time, of the readers or writers and of those who
serve them.

\b
  partq bench spark
  partq bench spark --rows 500000 --json spark.json

Exit status 1 when a row was lost or doubled.
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """One side, one time."""

    seconds: float
    cpu_s: Mapping[str, float]
    """Of Spark or the client (`client`), of the brokers and of Redis."""


@dataclass(slots=True)
class Found:
    """What was measured."""

    rows: int
    turns: dict[str, list[Turn]] = field(default_factory=dict)

    def rates(self) -> dict[str, dict[str, Any]]:
        """Return what each side did: medians over its turns."""
        return {
            name: {
                "rows_per_s": round(self.rows / median(turn.seconds for turn in turns)),
                "rows_per_cpu_s": round(
                    self.rows / median(max(0.01, sum(turn.cpu_s.values())) for turn in turns)
                ),
                "cpu_s_per_million": {
                    part: round(1e6 * median(turn.cpu_s[part] for turn in turns) / self.rows, 2)
                    for part in turns[0].cpu_s
                },
                "turns": [asdict(turn) for turn in turns],
            }
            for name, turns in self.turns.items()
        }


@click.command(help=_HELP)
@click.option("--rows", type=click.IntRange(1000, 50_000_000), default=5_000_000, show_default=True)
@click.option("--partitions", type=click.IntRange(1, 4096), default=16, show_default=True)
@click.option("--brokers", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("--turns", type=click.IntRange(1, 100), default=3, show_default=True)
@click.option(
    "--input",
    "input_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="NDJSON file, gzipped or not. Default: the demo's events.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the report to this file, too.",
)
def spark(
    *,
    rows: int,
    partitions: int,
    brokers: int,
    turns: int,
    input_file: Path | None,
    json_file: Path | None,
) -> None:
    """Measure, report, judge."""
    # Only here: `--help` needs no Spark.
    from partq.spark.pipeline.failures import spark_failures
    from partq.spark.pipeline.job import Job
    from partq.spark.pipeline.watch import Watch

    events = (input_file or default_input()).resolve()
    with TemporaryDirectory(prefix="partq-bench-") as directory, spark_failures():
        job = Job.open("partq bench spark", Watch(), master=None, settings=_MEMORY)
        try:
            found = asyncio.run(
                _run(job, Path(directory), events, rows, partitions, brokers, turns)
            )
        finally:
            job.spark.stop()
    report = {
        "rows": found.rows,
        "partitions": partitions,
        "brokers": brokers,
        "cpu_count": os.cpu_count() or 1,
        **found.rates(),
    }
    if json_file is not None:
        json_file.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    click.echo(render(report))


async def _run(
    job: "Job",
    directory: Path,
    events: Path,
    row_count: int,
    partitions: int,
    brokers: int,
    turns: int,
) -> Found:
    from partq.spark import rates

    session = job.spark
    folder = directory / "rows"
    _tell("making the rows")
    rows = await asyncio.to_thread(rates.make_rows, session, events, row_count, partitions, folder)
    found = Found(rows)
    resources = resources_of(_QUEUE, {"partitions": partitions}, _GROUP)
    async with EmbeddedRuntime(
        resources, directory / "runtime", broker_count=brokers, log_level="warning"
    ) as runtime:
        queue = runtime.queue(_QUEUE)
        servers = pids_of(runtime)

        def in_thread(work: Callable[[], Any]) -> None:
            job.enter_thread()
            work()

        async def take(name: str, work: Callable[[], Any]) -> None:
            with _measured(found, name, servers):
                await asyncio.to_thread(in_thread, work)
            last = found.turns[name][-1]
            _tell(f"{name}: {rows / last.seconds:,.0f} rows/s")

        options = {"url": queue.url, "queue": _QUEUE}
        write = {**options, "token": queue.tokens.produce}
        read = {**options, "token": queue.tokens.consume}
        await take("spark_write", partial(rates.write_queue, session, folder, write))
        stored = await asyncio.to_thread(rates.count_queue, session, read)
        if stored != rows:
            raise InternalError(f"bench: {rows:,} rows were written, and {stored:,} are stored")
        for _ in range(turns):
            await take("spark_read", partial(rates.read_queue, session, read))
            await take("parquet_read", partial(rates.read_parquet, session, folder))
        with _measured(found, "client_read", servers):
            await _consume(queue, rows)
    return found


async def _consume(queue: RunningQueue, row_count: int) -> None:
    """Read all there is with the client's consumer, each message as an object."""
    taken = 0
    async with Consumer(
        queue.url, queue=_QUEUE, group=_GROUP, token=queue.tokens.consume, auto_ack=True
    ) as consumer:
        async for batch in consumer.batches():
            taken += len(batch.messages)
            if taken >= row_count:
                break
    if taken != row_count:
        raise InternalError(f"bench: the consumer got {taken:,} of {row_count:,} messages")


@contextmanager
def _measured(found: Found, name: str, servers: Mapping[str, Any]) -> Iterator[None]:
    serving = [pid for pids in servers.values() for pid in pids]

    def used() -> dict[str, float]:
        parts = {part: cpu_s(servers[part]) for part in ("brokers", "redis")}
        return {"client": cpu_s(family_of_this_process(serving)), **parts}

    before, began = used(), monotonic()
    yield
    seconds = monotonic() - began
    spent = {part: max(0.0, after - before[part]) for part, after in used().items()}
    found.turns.setdefault(name, []).append(Turn(seconds, spent))


def _tell(line: str) -> None:
    click.echo(line, err=True)


_NAMES = {
    "spark_write": "Spark writes the queue",
    "spark_read": "Spark reads the queue",
    "parquet_read": "Spark reads Parquet",
    "client_read": "the client consumes",
}


def render(report: Mapping[str, Any]) -> str:
    """Return a page for people."""
    lines = [
        f"{report['rows']:,} rows, {report['partitions']} partitions, {report['brokers']} brokers, "
        f"{report['cpu_count']} CPUs",
        "",
        f"{'':24}{'rows/s':>12}{'per core':>12}   CPU s per million rows",
    ]
    for name, title in _NAMES.items():
        side = report[name]
        parts = "  ".join(
            f"{'Spark' if part == 'client' and name != 'client_read' else part} {spent:.2f}"
            for part, spent in side["cpu_s_per_million"].items()
        )
        lines.append(f"{title:24}{side['rows_per_s']:>12,}{side['rows_per_cpu_s']:>12,}   {parts}")
    read = report["spark_read"]["rows_per_s"]
    lines += [
        "",
        f"Spark reads the queue at {read / report['parquet_read']['rows_per_s']:.2f} of Parquet's "
        f"rate, and {read / report['client_read']['rows_per_s']:.2f} of the consumer's",
    ]
    return "\n".join(lines)
