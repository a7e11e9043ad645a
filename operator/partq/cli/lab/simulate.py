"""`partq simulate`: the protocol under faults, in simulated time; a seed is a whole history."""

import json
import os
import statistics
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import asdict, replace
from typing import IO, Final, Literal

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table

from partq.cli.lab.termination import ends_in_order
from partq.lab.simulate.parallel import Result, SeedOptions, memories, run_many
from partq.lab.simulate.rollout import CASES, cost
from partq.lab.simulate.trial import DEFAULT_EVENTS, run_schedule

MAX_SEED: Final = 2**53
MAX_SEEDS: Final = 10_000_000
MAX_EVENTS: Final = 10_000
MAX_WORKERS: Final = 256
MAX_SECONDS: Final = 7 * 24 * 3600
MAX_FAILURES: Final = 20
"""A run ends early when so many seeds have failed: one of them is enough to work on."""


@click.command()
@click.option("--seed", type=click.IntRange(0, MAX_SEED), default=0, help="The (first) seed.")
@click.option("--seeds", "count", type=click.IntRange(1, MAX_SEEDS), default=1, help="How many.")
@click.option(
    "--events",
    type=click.IntRange(1, MAX_EVENTS),
    default=DEFAULT_EVENTS,
    show_default=True,
    help="Number of events in one seed.",
)
@click.option(
    "--long-events",
    type=click.IntRange(1, MAX_EVENTS),
    help="Number of events in every tenth seed (9, 19, ...). Default: as in all others.",
)
@click.option(
    "--assignment",
    type=click.Choice(["Server", "Client"]),
    help="Assignment of the group in every seed; with Client its type is Partitioned. Default: "
    "drawn, Client in two of fifteen seeds.",
)
@click.option(
    "--rescale",
    "is_rescaled",
    is_flag=True,
    help="Change the partition count in every seed, beside its events. Default: in every eighth.",
)
@click.option(
    "--key-shared",
    "is_key_shared",
    is_flag=True,
    help="Give the group the type KeyShared in every seed; --assignment says nothing then. "
    "Default: in some.",
)
@click.option(
    "--shared",
    "is_shared",
    is_flag=True,
    help="The same with the type Shared, in some by default; --key-shared goes before it.",
)
@click.option(
    "--session",
    "is_session",
    is_flag=True,
    help="The same with the type Session, in some by default; --key-shared goes before it.",
)
@click.option(
    "--workers", type=click.IntRange(1, MAX_WORKERS), help="Processes. Default: one per CPU."
)
@click.option(
    "--rollout",
    is_flag=True,
    help="Show instead what rolling updates cost, beside a simple sticky and modulo.",
)
@click.option(
    "--real-redis",
    is_flag=True,
    help="Ask a redis-server whatever the simulated one is asked; both must answer alike.",
)
@click.option(
    "--max-seconds",
    type=click.IntRange(1, MAX_SECONDS),
    help="End after this time; the last line says how many seeds were not run. Default: no limit.",
)
@click.option(
    "--json", "json_file", type=click.File("w", lazy=False), help="Write every result to this file."
)
@ends_in_order
def simulate(
    *,
    seed: int,
    count: int,
    events: int,
    long_events: int | None,
    assignment: Literal["Server", "Client"] | None,
    is_rescaled: bool,
    is_key_shared: bool,
    is_shared: bool,
    is_session: bool,
    workers: int | None,
    rollout: bool,
    real_redis: bool,
    max_seconds: int | None,
    json_file: IO[str] | None,
) -> None:
    """Run the real broker, coordinator, client and scripts against simulated faults.

    A seed decides everything: run it again with as many --events, the same --assignment,
    --rescale, --key-shared, --shared and --session, and the same happens. The schedule of the first
    seed that fails is printed, with what happened.

    Exit status: 0 every invariant held, in every seed that was run; 1 one did not.
    """
    console = Console()
    if rollout:
        _show_rollouts(console, seed, json_file)
        return
    seeds = range(seed, seed + count)
    workers = workers or min(count, os.cpu_count() or 1)
    began = time.monotonic()
    options = SeedOptions(events, long_events, assignment, is_rescaled, is_key_shared)
    options = replace(options, is_shared=is_shared, is_session=is_session)
    results = _run(
        console, run_many(seeds, options, workers, is_compared=real_redis), count, max_seconds
    )
    lasted_s = time.monotonic() - began
    failed = [result for result in results if result.failure]
    forced = f" --assignment {assignment}" if assignment else ""
    forced += " --rescale" if is_rescaled else ""
    forced += " --key-shared" if is_key_shared else ""
    forced += " --shared" if is_shared else ""
    forced += " --session" if is_session else ""
    for result in failed[1:]:
        text = f"seed {result.seed} --events {result.events}{forced}: {result.failure}"
        console.print(text, markup=False, soft_wrap=True)
    if failed:
        with memories(is_compared=real_redis) as make_memory:
            outcome = run_schedule(options.schedule(failed[0].seed), make_memory)
        console.print("\n".join(outcome.lines()), markup=False, soft_wrap=True, highlight=False)
        again = f"partq simulate --seed {failed[0].seed} --events {failed[0].events}{forced}"
        again += " --real-redis" if real_redis else ""
        console.print(f"again: {again}", markup=False, highlight=False)
    kind = "" if long_events is None else f", each tenth of {long_events},"
    kind += f"{'' if kind else ','} assignment {assignment}," if assignment else ""
    kind += f"{'' if kind else ','} with changes of the partition count," if is_rescaled else ""
    kind += f"{'' if kind else ','} type KeyShared," if is_key_shared else ""
    kind += f"{'' if kind else ','} type Shared," if is_shared else ""
    kind += f"{'' if kind else ','} type Session," if is_session else ""
    console.print(
        f"{len(results)} of {count} seeds of {events} events{kind} in {lasted_s:.0f} s, "
        f"{len(failed)} failed; "
        f"{sum(result.commits for result in results)} handoffs, "
        f"{sum(result.handed for result in results)} messages handed out, "
        f"{sum(result.duplicates for result in results)} of them again; longest recovery "
        f"{max((result.recovery_s for result in results), default=0.0):.1f} s",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if json_file is not None:
        said = {"events": events, "long_events": long_events, "assignment": assignment}
        said |= {"is_rescaled": is_rescaled, "is_key_shared": is_key_shared}
        said |= {"is_shared": is_shared}
        said |= {"is_session": is_session}
        json.dump(said | {"seeds": [asdict(each) for each in results]}, json_file)
        json_file.write("\n")
    if max_seconds is not None and len(results) < count and len(failed) < MAX_FAILURES:
        console.print(
            f"CUT OFF by --max-seconds {max_seconds}: {count - len(results)} of {count} seeds "
            "were not run",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    if failed:
        raise click.exceptions.Exit(1)


def _show_rollouts(console: Console, seed: int, json_file: IO[str] | None) -> None:
    """Print what each rollout costs: moves, and in brackets those of the partition moved most."""
    table = Table(
        "partitions", "pods", "style", "partq", "sticky", "modulo", "pause p50", "longest"
    )
    costs = []
    for case in CASES:
        found = cost(case, seed)
        costs.append(found)
        moves = [
            f"{each.count:.0f} ({each.most})" for each in (found.partq, found.sticky, found.modulo)
        ]
        pauses = [statistics.median(found.pauses_ms), max(found.pauses_ms)]
        table.add_row(
            str(case.partition_count),
            str(case.pod_count),
            "surge" if case.is_surge else "no surge",
            *moves,
            *(f"{pause_ms:.1f} ms" for pause_ms in pauses),
        )
    console.print(table)
    if json_file is not None:
        json.dump({"rollouts": [asdict(each) for each in costs]}, json_file)
        json_file.write("\n")


def _run(
    console: Console, stream: Generator[Result, None, None], count: int, max_seconds: int | None
) -> list[Result]:
    results: list[Result] = []
    failed = 0
    ends_at = None if max_seconds is None else time.monotonic() + max_seconds
    with (
        closing(stream),
        Progress(
            "seeds",
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            "{task.fields[failed]} failed",
            console=console,
            disable=count == 1,
        ) as progress,
    ):
        task = progress.add_task("", total=count, failed=0)
        for result in stream:
            results.append(result)
            failed += bool(result.failure)
            progress.update(task, advance=1, failed=failed)
            is_late = ends_at is not None and time.monotonic() >= ends_at
            if failed >= MAX_FAILURES or is_late:
                break
    return sorted(results, key=lambda result: result.seed)
