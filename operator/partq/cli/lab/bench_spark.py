"""`partq bench spark`: how fast Spark writes, reads, archives and audits a queue."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

import click

from partq.cli.lab.bench_options import count_option, input_option, reports, show_report
from partq.cli.pipeline.display import PlainLines
from partq.client.consumer import Consumer
from partq.core.slot_table import MAX_PARTITIONS
from partq.embedded.runtime import EmbeddedRuntime, RunningQueue
from partq.errors import InternalError
from partq.lab.bench.measure import Pids
from partq.lab.bench.processes import cpu_s, family_of_this_process, pids_of
from partq.lab.bench.spark_figures import SIDES, WITHOUT_QUEUE, SparkMeasurements, Turn, render
from partq.lab.workload.events import default_input
from partq.pipeline.watch import JobWatch
from partq.resources import group_document, queue_document, resources_of

if TYPE_CHECKING:
    from partq.pipeline.audit.verdict import AuditVerdict
    from partq.pipeline.job import Job

T = TypeVar("T")

_QUEUE, _GROUP, _ARCHIVE = "bench", "readers", "archive"
_MEMORY = {"spark.driver.memory": "2g", "spark.sql.adaptive.enabled": "false"}

_HELP = """Measure Spark on a queue: writing, reading, archiving and auditing it.

Starts a separate Redis and brokers in a temporary directory, and Spark in this process. Makes
Parquet files of real events, repeated; Spark writes them to a queue that keeps an audit record.
Then the same rows are read in turns by Spark from the queue and by Spark from Parquet, after a
first turn that does not count: Java compiles in it what is read with. The Python
client's consumer consumes them in one process; then the queue and its record are archived, and
the archive is audited: once each, as they change what is stored. A rate per core is rows per
second of CPU time, of all who take part.

\b
  partq bench spark
  partq bench spark --rows 500000 --json spark.json

Exit status 1 when a row was lost or doubled, or the audit's verdict is not clean.
"""


@click.command(help=_HELP)
@count_option("--rows", 5_000_000, within=(1000, 50_000_000))
@count_option("--partitions", 16, within=(1, MAX_PARTITIONS))
@count_option("--brokers", 1, within=(1, 64))
@count_option(
    "--turns",
    3,
    within=(1, 100),
    about="How often Spark reads the queue, and Parquet. The other sides run once.",
)
@input_option
@reports
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
    from partq.pipeline.failures import spark_failures
    from partq.pipeline.job import Job

    events = (input_file or default_input()).resolve()
    with TemporaryDirectory(prefix="partq-bench-") as directory, spark_failures():
        job = Job.open("partq bench spark", JobWatch(), master=None, settings=_MEMORY)
        try:
            found, verdict = asyncio.run(
                _run(job, Path(directory), events, rows, partitions, brokers, turns)
            )
        finally:
            job.spark.stop()
    report = {
        "rows": found.rows,
        "records": found.records,
        "partitions": partitions,
        "brokers": brokers,
        "cpu_count": os.cpu_count() or 1,
        "tasks": found.tasks,
        "verdict": verdict.text,
        **found.rates(),
    }
    show_report(report, render(report), json_file)
    require_clean(verdict, found.rows)


async def _run(
    job: "Job",
    directory: Path,
    events: Path,
    row_count: int,
    partitions: int,
    brokers: int,
    turns: int,
) -> "tuple[SparkMeasurements, AuditVerdict]":
    from partq.lab.bench import spark_jobs
    from partq.pipeline.access import QueueAccess

    session = job.spark
    folder, archive = directory / "rows", directory / "archive"
    _tell("making the rows")
    rows = await asyncio.to_thread(
        spark_jobs.make_rows, session, events, row_count, partitions, folder
    )
    found = SparkMeasurements(rows)
    resources = resources_of(
        queue_document(_QUEUE, partitions=partitions, audit=True),
        group_document(_GROUP, _QUEUE),
        # It keeps what the readers are done with, until it is archived.
        group_document(_ARCHIVE, _QUEUE),
    )
    async with EmbeddedRuntime(
        resources, directory / "runtime", broker_count=brokers, log_level="warning"
    ) as runtime:
        queue = runtime.queue(_QUEUE)
        sides = _Sides(job, found, pids_of(runtime))
        options = {"url": queue.url, "queue": _QUEUE}
        write = {**options, "token": queue.tokens.produce}
        read = {**options, "token": queue.tokens.consume}
        access = QueueAccess(queue.url, _QUEUE, queue.namespace, queue.tokens.admin)

        await sides.measure("spark_write", lambda _: spark_jobs.write_queue(session, folder, write))
        stored = await asyncio.to_thread(spark_jobs.count_queue, session, read)
        if stored != rows:
            raise InternalError(f"bench: {rows:,} rows were written, and {stored:,} are stored")
        found.tasks = await asyncio.to_thread(spark_jobs.count_tasks, session, read, folder)
        _tell("warming up")
        await asyncio.to_thread(spark_jobs.read_queue, session, read)
        await asyncio.to_thread(spark_jobs.read_parquet, session, folder)
        for _ in range(turns):
            await sides.measure("spark_read", lambda _: spark_jobs.read_queue(session, read))
            await sides.measure("parquet_read", lambda _: spark_jobs.read_parquet(session, folder))
        with sides.measured("client_read"):
            await _consume(queue, rows)
        found.records = await sides.measure(
            "archive",
            lambda job: spark_jobs.archive_queue(job, access, _ARCHIVE, archive, now_ms=_now_ms),
        )
        verdict = await sides.measure(
            "audit", lambda job: spark_jobs.audit_archive(job, archive, directory / "report")
        )
    return found, verdict


class _Sides:
    """Measures one side after the other."""

    def __init__(self, job: "Job", found: SparkMeasurements, servers: Pids) -> None:
        self._job = job
        self._found = found
        self._servers = servers
        self._serving = [pid for pids in servers.values() for pid in pids]

    async def measure(self, name: str, work: Callable[["Job"], T]) -> T:
        """Measure what a job does, and return what it returns."""
        lines = PlainLines(SIDES[name])

        def in_thread() -> T:
            self._job.enter_thread()
            return work(replace(self._job, watch=JobWatch(lines.show, lines.tell)))

        with self.measured(name):
            return await asyncio.to_thread(in_thread)

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Note what is used up to the end of the `with`."""
        _tell(f"{SIDES[name]} ...")
        before, began = self._used(name), time.monotonic()
        yield
        seconds = time.monotonic() - began
        spent = {part: max(0.0, after - before[part]) for part, after in self._used(name).items()}
        self._found.turns.setdefault(name, []).append(Turn(seconds, spent))
        _tell(f"{SIDES[name]}: {self._found.rows / seconds:,.0f} rows/s")

    def _used(self, name: str) -> dict[str, float]:
        serving = () if name in WITHOUT_QUEUE else ("brokers", "redis")
        parts = {part: cpu_s(self._servers[part]) for part in serving}
        return {"client": cpu_s(family_of_this_process(self._serving)), **parts}


async def _consume(queue: RunningQueue, row_count: int) -> None:
    """Consume all there is with the client's consumer, and wait until every ack is stored."""
    taken = 0
    async with Consumer(
        queue.url, queue=_QUEUE, group=_GROUP, token=queue.tokens.consume
    ) as consumer:
        async for batch in consumer.batches():
            taken += len(batch.messages)
            consumer.ack_nowait(batch)
            if taken >= row_count:
                break
    if taken != row_count:
        raise InternalError(f"bench: the consumer got {taken:,} of {row_count:,} messages")


def require_clean(verdict: "AuditVerdict", row_count: int) -> None:
    """See that the audit has seen every row, and found nothing.

    Raises:
        InternalError: it has not.
    """
    if not verdict.is_clean:
        kinds = ", ".join(f"{what} {count:,}" for what, count in verdict.faults().items())
        raise InternalError(f"bench: the audit's verdict is {verdict.text}: {kinds}")
    totals = verdict.totals
    seen = {
        name: getattr(totals, name)
        for name in ("published", "delivered", "acknowledged", "archived")
    }
    if set(seen.values()) != {row_count}:
        raise InternalError(f"bench: the audit counted {seen}, expected {row_count:,} of each")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _tell(line: str) -> None:
    click.echo(line, err=True)
