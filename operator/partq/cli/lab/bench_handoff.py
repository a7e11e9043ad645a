"""`partq bench handoff`: moves on real processes under load, measured and judged."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from partq.cli.lab.bench_options import count_option, reports, show_report
from partq.cli.lab.scratch import scratch
from partq.lab.bench.handoff.drive import FEW, LEASE_S, MANY, HandoffLoad, Strike, phase
from partq.lab.bench.handoff.report import HandoffMeasurements, render, report
from partq.lab.bench.loaded_queue import BROKERS

DELAY_S: Final = 5.0
"""The rebalance delay that queues have unless told otherwise, in seconds."""

_HELP = f"""Measure how long partitions stand still when consumers and brokers change.

Starts separate queues in a temporary directory, with {BROKERS} brokers and a steady load, and
doubles, halves, kills and freezes. What each figure means is in docs/benchmark.md.

\b
  partq bench handoff
  partq bench handoff --rounds 20 --json handoff.json

Exit status 1 when a message was lost or out of order, or a duplicate has no cause.
"""


@click.command(help=_HELP)
@count_option("--partitions", 16, within=(MANY, 256))
@count_option("--per-s", 1600, within=(100, 100_000), about="Messages per second in all.")
@count_option(
    "--rounds", 10, within=(1, 1000), about=f"Changes from {FEW} to {MANY} consumers and back."
)
@count_option(
    "--kills",
    5,
    within=(0, 1000),
    about="Consumers killed with -9, with the default rebalance delay and with 0.",
)
@count_option("--freezes", 3, within=(0, 1000), about="Consumers and brokers frozen.")
@click.option(
    "--standby",
    is_flag=True,
    help="Also kill masters of a Failover group, whose other member stands by.",
)
@reports
def handoff(
    *,
    partitions: int,
    per_s: int,
    rounds: int,
    kills: int,
    freezes: int,
    standby: bool,
    json_file: Path | None,
) -> None:
    """Measure, report, judge."""
    load = HandoffLoad(partitions=partitions, per_s=per_s)
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console
    )
    steps = bar.add_task(
        "handoffs under load", total=2 * (rounds + kills + freezes) + kills * standby
    )
    with scratch("bench-handoff") as directory:
        with bar:
            found = asyncio.run(
                _run(
                    load,
                    directory.path,
                    rounds,
                    kills,
                    freezes,
                    lambda: bar.advance(steps),
                    has_standby=standby,
                )
            )
        result = report(load, found, lease_s=LEASE_S, delay_s=DELAY_S)
        if not result["is_good"]:
            directory.keep()
    show_report(result, render(result), json_file, is_good=result["is_good"])


async def _run(
    load: HandoffLoad,
    directory: Path,
    rounds: int,
    kills: int,
    freezes: int,
    say: Callable[[], None],
    *,
    has_standby: bool,
) -> HandoffMeasurements:
    async with phase(directory / "waiting", load, DELAY_S, say) as waiting:
        changes = await waiting.scale(rounds)
        scaled_ns = time.monotonic_ns()
        killed = await waiting.kill(kills)
    async with phase(directory / "at-once", load, 0.0, say) as at_once:
        killed_at_once = await at_once.kill(kills)
        consumers_frozen = await at_once.freeze_consumer(freezes)
        brokers_frozen = await at_once.freeze_broker(freezes)
    verdicts = [waiting.verdict, at_once.verdict]
    killed_standby: list[Strike] = []
    if has_standby:
        ranked = phase(directory / "standby", load, DELAY_S, say, group_type="Failover")
        async with ranked as failover:
            killed_standby = await failover.kill(kills)
        verdicts.append(failover.verdict)
    return HandoffMeasurements(
        rows=waiting.deliveries,
        changes=changes,
        scaled_ns=scaled_ns,
        killed=killed,
        killed_at_once=killed_at_once,
        killed_standby=killed_standby,
        consumers_frozen=consumers_frozen,
        brokers_frozen=brokers_frozen,
        verdicts=[each for each in verdicts if each is not None],
    )
