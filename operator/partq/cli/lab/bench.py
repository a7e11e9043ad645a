"""`partq bench`: a separate queue on this machine, measured and taken down again."""

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from partq.cli.lab.bench_codecs import codecs
from partq.cli.lab.bench_handoff import handoff
from partq.cli.lab.bench_loops import loops
from partq.cli.lab.bench_options import count_option, reports, show_report
from partq.cli.lab.bench_rescale import rescale
from partq.cli.lab.bench_retry import retry
from partq.cli.lab.bench_spark import spark
from partq.cli.lab.bench_types import types
from partq.client.produce.batching import CODECS
from partq.core.slot_table import MAX_PARTITIONS
from partq.embedded.runtime import EmbeddedRuntime
from partq.lab.bench import redis_baseline
from partq.lab.bench.measure import READERS, BenchLoad, Measured, measure
from partq.lab.bench.partq_side import Queue
from partq.lab.bench.processes import pids_of
from partq.lab.bench.redis_baseline import Plain
from partq.lab.bench.report import render, report
from partq.lab.bench.workload import MIN_VALUE_BYTES
from partq.lab.workload.events import text_of
from partq.resources import group_document, queue_document, resources_of

_QUEUE, _GROUP = "bench", "readers"

_HELP = """Measure throughput and latency beside what the same Redis could do at most.

Starts a separate Redis, brokers and a coordinator in a temporary directory, publishes from one
process and consumes in two, and in turn moves the same messages through plain Redis streams. What
each side does is in docs/benchmark.md.

\b
  partq bench
  partq bench --messages 200000 --size 1000 --json bench.json
  partq bench --size 1000 --input events.ndjson --compression auto
  partq bench handoff
  partq bench rescale
  partq bench retry
  partq bench codecs
  partq bench loops
  partq bench spark
  partq bench types

Exit status 1 when a message was lost or out of order.
"""


@click.group(help=_HELP, invoke_without_command=True)
@count_option("--partitions", 16, within=(READERS, MAX_PARTITIONS))
@count_option("--keys", 10_000, within=(1, 1_000_000))
@count_option(
    "--size", 100, within=(MIN_VALUE_BYTES, 1024 * 1024), about="Bytes of a message's value."
)
@count_option(
    "--messages",
    1_000_000,
    within=(1000, 100_000_000),
    about="Of each run; all of them have to fit into memory, twice.",
)
@count_option("--consumers", 4, within=(READERS, 64), about=f"In {READERS} processes.")
@count_option("--brokers", 1, within=(1, 64))
@click.option(
    "--compression",
    type=click.Choice(sorted(CODECS)),
    default="none",
    show_default=True,
    help="Of the batches, on both sides.",
)
@click.option(
    "--input",
    "input_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="NDJSON file, gzipped or not: its lines are the values' text, cut or joined to --size "
    "bytes. Default: zeros.",
)
@click.option("--audit", is_flag=True, help="The queue keeps an audit record; nobody archives it.")
@reports
@click.pass_context
def bench(
    context: click.Context,
    *,
    partitions: int,
    keys: int,
    size: int,
    messages: int,
    consumers: int,
    brokers: int,
    compression: str,
    input_file: Path | None,
    audit: bool,
    json_file: Path | None,
) -> None:
    """Measure, report, judge."""
    if context.invoked_subcommand is not None:
        return
    if consumers > partitions:
        raise click.UsageError("--consumers: more than --partitions; some would have nothing to do")
    load = BenchLoad(
        partitions, keys, size, messages, consumers, compression, str(input_file or "")
    )
    text = b"" if input_file is None else text_of(input_file)
    with TemporaryDirectory(prefix="partq-bench-") as directory:
        found, measured = asyncio.run(_run(load, text, brokers, Path(directory), audit=audit))
    result = report(load, brokers, found["appendfsync"], os.cpu_count() or 1, measured)
    is_good = not result["lost"] and not result["out_of_order"]
    show_report(result, render(result), json_file, is_good=is_good)


bench.add_command(handoff)
bench.add_command(rescale)
bench.add_command(retry)
bench.add_command(codecs)
bench.add_command(loops)
bench.add_command(spark)
bench.add_command(types)


async def _run(
    load: BenchLoad, text: bytes, brokers: int, directory: Path, *, audit: bool
) -> tuple[dict[str, str], Measured]:
    """Return the settings of Redis and the measurement."""
    resources = resources_of(
        queue_document(_QUEUE, partitions=load.partitions, audit=audit),
        group_document(_GROUP, _QUEUE),
    )
    async with EmbeddedRuntime(
        resources, directory, broker_count=brokers, log_level="warning"
    ) as runtime:
        running = runtime.queue(_QUEUE)
        queue = Queue(running.url, _QUEUE, _GROUP, running.tokens.produce, running.tokens.consume)
        plain = Plain.of(runtime.redis_url, load.partitions)
        found = await asyncio.to_thread(redis_baseline.settings, plain)
        measured = await asyncio.to_thread(
            measure,
            load,
            text,
            queue,
            plain,
            pids_of(runtime),
            lambda line: click.echo(line, err=True),
        )
        return found, measured
