"""`partq chaos`: rounds of faults, and the verdict after each."""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

import click
from rich.console import Console

from partq.cli.chaos.faults import BROKER_COUNT, CHOICES, LEASE_S, PLANS, Fault
from partq.cli.chaos.rounds import Chaos, Round
from partq.cli.verdict.journal import in_order
from partq.cli.verdict.judge import Verdict, judge
from partq.cli.verdict.report import one_line, print_verdict, to_json
from partq.cli.workload.scratch import scratch
from partq.cli.workload.stage import Stage
from partq.embedded.runtime import EmbeddedRuntime
from partq.resources import parse_resources

QUEUE: Final = "chaos"
GROUP: Final = "workers"
PARTITION_COUNT: Final = 8
WORK_MS: Final = 1.0
RESOURCES: Final = f"""
apiVersion: partq.dev/v1alpha1
kind: PartitionedQueue
metadata: {{name: {QUEUE}}}
spec: {{partitions: {PARTITION_COUNT}, rebalance: {{delaySeconds: 2, maxHandoffSeconds: 2}}}}
---
apiVersion: partq.dev/v1alpha1
kind: ConsumerGroup
metadata: {{name: {GROUP}}}
spec: {{queue: {QUEUE}}}
"""

TOTAL_S: Final = 540.0
"""No round begins that would end later, in seconds; a last one that hangs has a minute left."""
MAX_ROUNDS: Final = 100
MAX_SEED: Final = 2**31


@click.command()
@click.option("--rounds", type=click.IntRange(1, MAX_ROUNDS), help="Rounds of each fault.")
@click.option("--only", type=click.Choice(list(CHOICES)), help="One kind of fault. Default: all.")
@click.option("--seed", type=click.IntRange(0, MAX_SEED), help="Repeat the choices of a run.")
@click.option(
    "--json", "json_file", type=click.File("w", lazy=False), help="Write all rounds to this file."
)
def chaos(
    *, rounds: int | None, only: str | None, seed: int | None, json_file: IO[str] | None
) -> None:
    """Kill and freeze Redis, brokers, consumers, producers and the coordinator under load.

    After each round: is anything lost or out of order, and has every duplicate its cause? Takes at
    most ten minutes. The default is 20 rounds of Redis and a few of each other fault.

    Exit status: 0 all good; 1 a verdict is bad, something did not recover, or the time was up.
    """
    console = Console()
    seed = random.randrange(MAX_SEED) if seed is None else seed  # noqa: S311  nothing secret
    chosen = CHOICES[only] if only else tuple(PLANS)
    todo = [
        (fault, number + 1) for fault in chosen for number in range(rounds or PLANS[fault].rounds)
    ]
    draw = random.Random(seed)  # noqa: S311  nothing secret
    with scratch("chaos") as directory:
        console.print(f"{len(todo)} rounds, seed {seed}, in {directory.path}", markup=False)
        done, total = asyncio.run(_run(console, todo, draw, directory.path))
        is_good = total.is_good and len(done) == len(todo)
        if not is_good:
            directory.keep()
    print_verdict(console, total)
    if json_file is not None:
        json.dump(_to_json(seed, done, total), json_file, indent=2)
        json_file.write("\n")
    if not is_good:
        raise click.exceptions.Exit(1)


async def _run(
    console: Console,
    todo: Sequence[tuple[Fault, int]],
    draw: random.Random,
    directory: Path,
) -> tuple[list[Round], Verdict]:
    """Run the rounds until all are done or the time is up; return them and the verdict over all."""
    end = time.monotonic() + TOTAL_S
    done: list[Round] = []
    async with (
        EmbeddedRuntime(
            parse_resources(RESOURCES),
            directory / "data",
            broker_count=BROKER_COUNT,
            lease_ttl_s=LEASE_S,
        ) as runtime,
        Stage(
            runtime.queue(QUEUE),
            group=GROUP,
            partition_count=PARTITION_COUNT,
            directory=directory,
            work_ms=WORK_MS,
        ) as stage,
    ):
        rounds = Chaos(runtime, stage, draw)
        await rounds.begin()
        longest_s = 0.0
        for fault, number in todo:
            if time.monotonic() + longest_s > end:
                console.print(
                    f"the time is up after {len(done)} of {len(todo)} rounds", style="red"
                )
                break
            each = await rounds.round(fault, number)
            done.append(each)
            longest_s = max(longest_s, each.duration_s)
            _print_round(console, each)
        # Only now: a duplicate may come after its round was judged.
        await rounds.end()
        progress = stage.progress
        return done, judge(progress.published, in_order(progress.deliveries))


def _print_round(console: Console, each: Round) -> None:
    title = f"{each.fault.value} {each.number} ({each.struck}), {each.duration_s:.1f} s: "
    if each.verdict.is_good:
        console.print(title + one_line(each.verdict), markup=False, soft_wrap=True)
    else:
        console.print(title, style="red", markup=False)
        print_verdict(console, each.verdict)


def _to_json(seed: int, rounds: Sequence[Round], total: Verdict) -> dict[str, Any]:
    return {
        "seed": seed,
        **to_json(total),
        "rounds": [
            {
                "fault": each.fault.value,
                "round": each.number,
                "struck": each.struck,
                "duration_ms": int(each.duration_s * 1000),
                **to_json(each.verdict),
            }
            for each in rounds
        ],
    }
