"""`partq bench`: a separate queue on this machine, measured and taken down again."""

import asyncio
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from partq.cli.lab.bench_codecs import codecs
from partq.cli.lab.bench_handoff import handoff
from partq.cli.lab.bench_loops import loops
from partq.cli.lab.bench_spark import spark
from partq.cli.lab.termination import ends_in_order
from partq.client.producer import CODECS
from partq.embedded.runtime import EmbeddedRuntime
from partq.lab.bench import redis_baseline
from partq.lab.bench.measure import READERS, BenchLoad, Measured, measure
from partq.lab.bench.partq_side import Queue
from partq.lab.bench.processes import pids_of
from partq.lab.bench.redis_baseline import Plain
from partq.lab.bench.report import render, report
from partq.lab.bench.resources import resources_of
from partq.lab.bench.workload import MIN_VALUE_BYTES

_QUEUE, _GROUP = "bench", "readers"

_HELP = """Measure throughput and latency beside what the same Redis could do at most.

Starts Redis, brokers and a coordinator of its own in a temporary directory, publishes from one
process and consumes in two, and in turn moves the same messages through plain Redis streams. What
each side does is in docs/benchmark.md.

\b
  partq bench
  partq bench --messages 200000 --size 1000 --json bench.json
  partq bench handoff
  partq bench codecs
  partq bench loops
  partq bench spark

Exit status 1 when a message was lost or out of order.
"""


@click.group(help=_HELP, invoke_without_command=True)
@click.option("--partitions", type=click.IntRange(READERS, 4096), default=16, show_default=True)
@click.option("--keys", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True)
@click.option(
    "--size",
    type=click.IntRange(MIN_VALUE_BYTES, 1024 * 1024),
    default=100,
    show_default=True,
    help="Bytes of a message's value.",
)
@click.option(
    "--messages",
    type=click.IntRange(1000, 100_000_000),
    default=1_000_000,
    show_default=True,
    help="Of each run; all of them have to fit into memory, twice.",
)
@click.option(
    "--consumers",
    type=click.IntRange(READERS, 64),
    default=4,
    show_default=True,
    help=f"In {READERS} processes.",
)
@click.option("--brokers", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option(
    "--compression",
    type=click.Choice(sorted(CODECS)),
    default="none",
    show_default=True,
    help="Of the batches, on both sides.",
)
@click.option("--audit", is_flag=True, help="The queue keeps an audit record; nobody archives it.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the report to this file, too.",
)
@click.pass_context
@ends_in_order
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
    audit: bool,
    json_file: Path | None,
) -> None:
    """Measure, report, judge."""
    if context.invoked_subcommand is not None:
        return
    if consumers > partitions:
        raise click.UsageError("--consumers: more than --partitions; some would have nothing to do")
    load = BenchLoad(partitions, keys, size, messages, consumers, compression)
    with TemporaryDirectory(prefix="partq-bench-") as directory:
        found, measured = asyncio.run(_run(load, brokers, Path(directory), audit=audit))
    result = report(load, brokers, found["appendfsync"], os.cpu_count() or 1, measured)
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    click.echo(render(result))
    if result["lost"] or result["out_of_order"]:
        raise click.exceptions.Exit(1)


bench.add_command(handoff)
bench.add_command(codecs)
bench.add_command(loops)
bench.add_command(spark)


async def _run(
    load: BenchLoad, brokers: int, directory: Path, *, audit: bool
) -> tuple[dict[str, str], Measured]:
    """Return the settings of Redis and the measurement."""
    spec = {"partitions": load.partitions, "audit": audit}
    resources = resources_of(_QUEUE, spec, _GROUP)
    async with EmbeddedRuntime(
        resources, directory, broker_count=brokers, log_level="warning"
    ) as runtime:
        running = runtime.queue(_QUEUE)
        queue = Queue(running.url, _QUEUE, _GROUP, running.tokens.produce, running.tokens.consume)
        plain = Plain.of(runtime.redis_url, load.partitions)
        found = await asyncio.to_thread(redis_baseline.settings, plain)
        measured = await asyncio.to_thread(
            measure, load, queue, plain, pids_of(runtime), lambda line: click.echo(line, err=True)
        )
        return found, measured
