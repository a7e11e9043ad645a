"""`partq bench types`: what the type of a group costs, beside the type Partitioned."""

import asyncio
from pathlib import Path

import click

from partq.cli.lab.bench_options import count_option, reports, show_report
from partq.cli.lab.scratch import scratch
from partq.core.slot_table import MAX_PARTITIONS
from partq.lab.bench.group_types import (
    BASELINE,
    TYPES,
    TypesLoad,
    measure_types,
    render,
    report,
)
from partq.lab.bench.measure import READERS
from partq.lab.bench.workload import MIN_VALUE_BYTES

_HELP = f"""Measure groups of other types beside one of the type {BASELINE}.

Starts a queue for each type in a temporary directory, and moves the same load through them in turn:
rates as ratios, the bytes that brokers send to consumers, and the record of a partition after many
sparse acks. What each figure means is in docs/benchmark.md.

\b
  partq bench types
  partq bench types --partitions 4 --consumers 16 --json types.json

Exit status 1 when a message was lost or out of order.
"""


@click.command(help=_HELP)
@click.option(
    "--type",
    "types",
    type=click.Choice(TYPES),
    multiple=True,
    default=TYPES,
    show_default=True,
    help=f"A type beside {BASELINE}; may be repeated.",
)
@count_option("--partitions", 16, within=(READERS, MAX_PARTITIONS))
@count_option("--keys", 10_000, within=(1, 1_000_000))
@count_option(
    "--size", 100, within=(MIN_VALUE_BYTES, 1024 * 1024), about="Bytes of a message's value."
)
@count_option("--messages", 300_000, within=(1000, 100_000_000), about="Of each run.")
@count_option(
    "--consumers",
    8,
    within=(READERS, 64),
    about=f"In {READERS} processes; of the type {BASELINE} at most one per partition.",
)
@count_option("--rounds", 5, within=(1, 1000), about="After one that only warms up.")
@reports
def types(
    *,
    types: tuple[str, ...],
    partitions: int,
    keys: int,
    size: int,
    messages: int,
    consumers: int,
    rounds: int,
    json_file: Path | None,
) -> None:
    """Measure, report, judge."""
    load = TypesLoad(
        types=tuple(dict.fromkeys(types)),
        partitions=partitions,
        keys=keys,
        size=size,
        messages=messages,
        consumers=consumers,
        rounds=rounds,
    )
    with scratch("bench-types") as directory:
        figures = asyncio.run(
            measure_types(load, directory.path, lambda line: click.echo(line, err=True))
        )
        is_good = all(each.is_good for each in figures.values())
        if not is_good:
            directory.keep()
    show_report(report(load, figures), render(load, figures), json_file, is_good=is_good)
