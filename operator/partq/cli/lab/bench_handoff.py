"""`partq bench handoff`: moves on real processes under load, measured and judged."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from partq.cli.lab.scratch import scratch
from partq.cli.lab.termination import ends_in_order
from partq.lab.bench.handoff.drive import BROKERS, FEW, LEASE_S, MANY, HandoffLoad, phase
from partq.lab.bench.handoff.report import HandoffMeasurements, render, report

DELAY_S: Final = 5.0
"""The rebalance delay that queues have unless told otherwise, in seconds."""

_HELP = f"""Measure how long partitions stand still when consumers and brokers change.

Starts queues of its own in a temporary directory, with {BROKERS} brokers and a steady load, and
doubles, halves, kills and freezes. What each figure means is in docs/benchmark.md.

\b
  partq bench handoff
  partq bench handoff --rounds 20 --json handoff.json

Exit status 1 when a message was lost or out of order, or a duplicate has no cause.
"""


@click.command(help=_HELP)
@click.option("--partitions", type=click.IntRange(MANY, 256), default=16, show_default=True)
@click.option(
    "--per-s",
    type=click.IntRange(100, 100_000),
    default=1600,
    show_default=True,
    help="Messages per second in all.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help=f"Changes from {FEW} to {MANY} consumers and back.",
)
@click.option(
    "--kills",
    type=click.IntRange(0, 1000),
    default=5,
    show_default=True,
    help="Consumers killed with -9, with the default rebalance delay and with 0.",
)
@click.option(
    "--freezes",
    type=click.IntRange(0, 1000),
    default=3,
    show_default=True,
    help="Consumers and brokers frozen.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the report to this file, too.",
)
@ends_in_order
def handoff(
    *,
    partitions: int,
    per_s: int,
    rounds: int,
    kills: int,
    freezes: int,
    json_file: Path | None,
) -> None:
    """Measure, report, judge."""
    load = HandoffLoad(partitions=partitions, per_s=per_s)
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console
    )
    steps = bar.add_task("handoffs under load", total=2 * (rounds + kills + freezes))
    with scratch("bench-handoff") as directory:
        with bar:
            found = asyncio.run(
                _run(load, directory.path, rounds, kills, freezes, lambda: bar.advance(steps))
            )
        result = report(load, found, lease_s=LEASE_S, delay_s=DELAY_S)
        if not result["is_good"]:
            directory.keep()
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    click.echo(render(result))
    if not result["is_good"]:
        raise click.exceptions.Exit(1)


async def _run(
    load: HandoffLoad,
    directory: Path,
    rounds: int,
    kills: int,
    freezes: int,
    say: Callable[[], None],
) -> HandoffMeasurements:
    async with phase(directory / "waiting", load, DELAY_S, say) as waiting:
        changes = await waiting.scale(rounds)
        scaled_ns = time.monotonic_ns()
        killed = await waiting.kill(kills)
    async with phase(directory / "at-once", load, 0.0, say) as at_once:
        killed_at_once = await at_once.kill(kills)
        consumers_frozen = await at_once.freeze_consumer(freezes)
        brokers_frozen = await at_once.freeze_broker(freezes)
    return HandoffMeasurements(
        rows=waiting.rows,
        changes=changes,
        scaled_ns=scaled_ns,
        killed=killed,
        killed_at_once=killed_at_once,
        consumers_frozen=consumers_frozen,
        brokers_frozen=brokers_frozen,
        verdicts=[each for each in (waiting.verdict, at_once.verdict) if each is not None],
    )
