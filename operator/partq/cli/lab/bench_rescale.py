"""`partq bench rescale`: changes of the partition count under load, measured and judged."""

import asyncio
from pathlib import Path

import click

from partq.cli.lab.bench_options import count_option, reports, show_report
from partq.cli.lab.scratch import scratch
from partq.errors import InternalError, SettingsError
from partq.lab.bench.loaded_queue import BROKERS
from partq.lab.bench.rescale.drive import RescaleLoad, rescale_run
from partq.lab.bench.rescale.figures import RescaleFigures, figures_of, render

_HELP = f"""Measure how long publishes wait when the partition count changes.

Starts a separate queue in a temporary directory, with {BROKERS} brokers and a steady load, and
changes its number of partitions to another one and back. Keys that move are told apart from those
that stay. What each figure means is in docs/benchmark.md.

\b
  partq bench rescale
  partq bench rescale --partitions 16 --other 10 --rounds 10 --json rescale.json

Exit status 1 when a message was lost or out of order, or a duplicate has no cause.
"""


@click.command(help=_HELP)
@count_option("--partitions", 16, within=(1, 256))
@count_option("--other", 24, within=(1, 256), about="The number that it is changed to, and back.")
@count_option("--per-s", 1600, within=(100, 100_000), about="Messages per second in all.")
@count_option("--rounds", 5, within=(1, 1000), about="Changes to the other number and back.")
@reports
def rescale(
    *, partitions: int, other: int, per_s: int, rounds: int, json_file: Path | None
) -> None:
    """Measure, report, judge."""
    if other == partitions:
        raise SettingsError(f"--other: got {other}, expected another number than --partitions has")
    load = RescaleLoad(partitions=partitions, other=other, per_s=per_s)
    with scratch("bench-rescale") as directory:
        result = asyncio.run(_run(load, directory.path, rounds))
        if not result.verdict.is_good:
            directory.keep()
    show_report(result.to_json(), render(result), json_file, is_good=result.verdict.is_good)


async def _run(load: RescaleLoad, directory: Path, rounds: int) -> RescaleFigures:
    done = iter(range(1, 2 * rounds + 1))
    async with rescale_run(
        directory, load, lambda: click.echo(f"change {next(done)} of {2 * rounds}", err=True)
    ) as running:
        changes = await running.change(load, rounds)
    if running.verdict is None:
        raise InternalError("the run has ended without a verdict")
    return figures_of(load, changes, running.published, running.verdict)
