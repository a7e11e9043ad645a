"""`partq bench retry`: what keys that fail take from the others, in a group of order Key."""

import asyncio
from pathlib import Path

import click

from partq.cli.lab.bench_options import count_option, reports, show_report
from partq.cli.lab.scratch import scratch
from partq.errors import SettingsError
from partq.lab.bench.retry import MAX_SPAN, RetryLoad, measure_retries, render, report

_HELP = """Measure how fast other keys are consumed while some keys fail again and again.

Starts a separate queue in a temporary directory, with a group of order Key. One consumer processes
the same load in turn while all keys succeed, and while --poison-keys of them are given back until
the others are done. What each figure means is in docs/benchmark.md.

\b
  partq bench retry
  partq bench retry --poison-keys 20 --delay-ms 50 --json retry.json

Exit status 1 when a message was lost or out of order.
"""


@click.command(help=_HELP)
@count_option("--partitions", 1, within=(1, 256))
@count_option("--keys", 1000, within=(2, 1_000_000))
@count_option("--poison-keys", 1, within=(1, 1000), about="How many of the keys fail.")
@count_option(
    "--delay-ms", 50, within=(0, 60_000), about="How long a message that has failed waits."
)
@count_option(
    "--messages", 50_000, within=(1000, MAX_SPAN), about="Of each of the two phases of a round."
)
@count_option("--concurrency", 16, within=(2, 1000), about="Calls of the consumer at once.")
@count_option(
    "--credit",
    1000,
    within=(10, 100_000),
    about="Messages that the consumer holds ready; a redelivered one is behind them.",
)
@count_option("--rounds", 5, within=(1, 1000), about="After one that only warms up.")
@reports
def retry(
    *,
    partitions: int,
    keys: int,
    poison_keys: int,
    delay_ms: int,
    messages: int,
    concurrency: int,
    credit: int,
    rounds: int,
    json_file: Path | None,
) -> None:
    """Measure, report, judge."""
    if poison_keys >= keys:
        raise SettingsError(
            f"--poison-keys: got {poison_keys}, expected fewer than --keys has, {keys}"
        )
    load = RetryLoad(
        partitions=partitions,
        keys=keys,
        poison_keys=poison_keys,
        delay_ms=delay_ms,
        messages=messages,
        concurrency=concurrency,
        credit=credit,
        rounds=rounds,
    )
    with scratch("bench-retry") as directory:
        found = asyncio.run(
            measure_retries(load, directory.path, lambda line: click.echo(line, err=True))
        )
        if not found.is_good:
            directory.keep()
    show_report(report(load, found), render(load, found), json_file, is_good=found.is_good)
