"""`partq chaos`: rounds of faults, and the verdict after each."""

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Final

import click
from rich.console import Console

from partq.cli.lab.scratch import scratch
from partq.cli.lab.termination import ends_in_order
from partq.embedded.runtime import EmbeddedRuntime
from partq.lab.chaos.faults import (
    BROKER_COUNT,
    CHOICES,
    GROUPS,
    LEASE_S,
    PLANS,
    ChaosGroup,
    Fault,
    Strike,
    drawn,
)
from partq.lab.chaos.report import print_round, print_rounds, report
from partq.lab.chaos.rounds import Chaos, Round
from partq.lab.demo.inspection import Inspection, compare, print_inspection
from partq.lab.demo.inspection import to_json as inspection_to_json
from partq.lab.demo.jobs import ARCHIVE_GROUP, InspectionPlan, inspect, require_engine
from partq.lab.verdict.judge import Verdict
from partq.lab.verdict.report import print_verdict
from partq.lab.verdict.totals import together
from partq.lab.workload.stage import Stage
from partq.resources import group_document, queue_document, resources_of

QUEUE: Final = "chaos"
GROUP: Final = "workers"
WORK_MS: Final = 1.0
REBALANCE: Final = {"delaySeconds": 2, "maxHandoffSeconds": 2}

TOTAL_S: Final = 540.0
"""Without `--minutes` no round begins that would end later, in seconds; a last one that hangs has a
minute left."""
MAX_MINUTES: Final = 720
MAX_ROUNDS: Final = 100
MAX_SEED: Final = 2**31


@click.command()
@click.option("--rounds", type=click.IntRange(1, MAX_ROUNDS), help="Rounds of each fault.")
@click.option(
    "--minutes",
    type=click.IntRange(1, MAX_MINUTES),
    help="A soak: rounds of one or two random faults for this many minutes.",
)
@click.option(
    "--only",
    type=click.Choice(list(CHOICES)),
    multiple=True,
    help="One kind of fault; may be repeated. Default: all.",
)
@click.option(
    "--type",
    "group_type",
    type=click.Choice(list(GROUPS)),
    default="Partitioned",
    show_default=True,
    help="Type of the group that consumes.",
)
@click.option(
    "--with-audit",
    is_flag=True,
    help="Archive the queue to Parquet at the end, and audit the brokers' record of the run.",
)
@click.option("--seed", type=click.IntRange(0, MAX_SEED), help="Repeat the choices of a run.")
@click.option(
    "--json", "json_file", type=click.File("w", lazy=False), help="Write all rounds to this file."
)
@ends_in_order
def chaos(
    *,
    rounds: int | None,
    minutes: int | None,
    only: tuple[str, ...],
    group_type: str,
    with_audit: bool,
    seed: int | None,
    json_file: IO[str] | None,
) -> None:
    """Kill and freeze Redis, brokers, consumers, producers and the coordinator under load.

    Consumers come and go, too. After each round: is anything lost or out of order, was a key at two
    consumers at a time, and has every duplicate its cause? Of the type Shared there is no order; of
    the type Session locks and states are judged, too. The default is 20 rounds of Redis and a few
    of each other fault, in ten minutes at most.

    Exit status: 0 all good; 1 a verdict is bad, something did not recover, or the rounds were not
    done in ten minutes.
    """
    if rounds is not None and minutes is not None:
        raise click.UsageError("--rounds and --minutes: expected one of them")
    if with_audit:
        require_engine("arrow")
    seed = random.randrange(MAX_SEED) if seed is None else seed  # noqa: S311  nothing secret
    draw = random.Random(seed)  # noqa: S311  nothing secret
    chosen = tuple(each for kind in only for each in CHOICES[kind]) or tuple(PLANS)
    listed = None if minutes else _each(chosen, rounds)
    total_s = TOTAL_S if minutes is None else minutes * 60.0
    run = _ChaosRun(Console(), GROUPS[group_type], with_audit=with_audit)
    with scratch("chaos") as directory:
        plan = f"{minutes} min" if listed is None else f"{len(listed)} rounds"
        run.console.print(
            f"{plan}, type {group_type}, seed {seed}, in {directory.path}", markup=False
        )
        try:
            todo = drawn(draw, chosen) if listed is None else listed
            asyncio.run(run.rounds(todo, draw, total_s, directory.path))
            if listed is not None and len(run.done) < len(listed):
                run.error = f"the time was up after {len(run.done)} of {len(listed)} rounds"
        except KeyboardInterrupt:
            run.error, run.is_interrupted = "interrupted", True
            raise
        except BaseException as error:
            run.error = str(error) or type(error).__name__
            raise
        finally:
            # What was found before an error is told, too: a soak may have run for hours.
            run.tell(seed, json_file)
            if not run.total.is_good or (run.error is not None and not run.is_interrupted):
                directory.keep()
    if not run.is_good:
        raise click.exceptions.Exit(1)


def _each(chosen: Sequence[Fault], rounds: int | None) -> list[Strike]:
    return [
        ((fault,), number + 1)
        for fault in chosen
        for number in range(rounds or PLANS[fault].rounds)
    ]


class _ChaosRun:
    """Rounds against a separate queue, and what was found so far."""

    def __init__(self, console: Console, group: ChaosGroup, *, with_audit: bool) -> None:
        self.console = console
        self.group = group
        self.with_audit = with_audit
        self.inspection: Inspection | None = None
        """What the brokers' record says of the run, if it was asked for."""
        self.done: list[Round] = []
        self.total: Verdict = together(())
        self.error: str | None = None
        """Why the run ended early."""
        self.is_interrupted = False
        """Whether somebody has ended it: then the end says nothing of what was looked at."""

    @property
    def is_good(self) -> bool:
        return self.error is None and self.total.is_good

    async def rounds(
        self,
        todo: Iterable[Strike],
        draw: random.Random,
        total_s: float,
        directory: Path,
    ) -> None:
        """Run the rounds until all are done or the next one may not end in time."""
        end = time.monotonic() + total_s
        group = self.group
        resources = resources_of(
            queue_document(
                QUEUE, partitions=group.partitions, rebalance=REBALANCE, audit=self.with_audit
            ),
            group_document(GROUP, QUEUE, **group.fields),
            *([group_document(ARCHIVE_GROUP, QUEUE)] if self.with_audit else []),
        )
        async with (
            EmbeddedRuntime(
                resources,
                directory / "data",
                broker_count=BROKER_COUNT,
                lease_ttl_s=LEASE_S,
            ) as runtime,
            Stage(
                runtime.queue(QUEUE),
                group=GROUP,
                partition_count=group.partitions,
                directory=directory,
                work_ms=WORK_MS,
                parts=group.parts,
                group_type=group.group_type,
            ) as stage,
        ):
            chaos = Chaos(runtime, stage, draw, group)
            await chaos.begin()
            try:
                longest_s = 0.0
                for faults, number in todo:
                    if time.monotonic() + longest_s > end:
                        break
                    each = await chaos.round(faults, number)
                    self.done.append(each)
                    longest_s = max(longest_s, each.duration_s)
                    print_round(self.console, each)
                await chaos.end()
            finally:
                # Only now: a duplicate may come after its round was judged.
                self.total = chaos.total()
            if self.with_audit:
                self.inspection = await inspect(
                    runtime.queue(QUEUE),
                    stage.progress.deliveries,
                    group=GROUP,
                    directory=directory,
                    plan=InspectionPlan(
                        engine="arrow", report=Path(tempfile.mkdtemp(prefix="partq-chaos-report-"))
                    ),
                    note=lambda line: self.console.print(line, markup=False, soft_wrap=True),
                )
                differences = compare(self.total, self.inspection, GROUP)
                self.error = "; ".join(differences) or None

    def tell(self, seed: int, json_file: IO[str] | None) -> None:
        """Print what was found, and write it to the file."""
        print_rounds(self.console, self.done)
        print_verdict(self.console, self.total)
        if self.inspection is not None:
            print_inspection(self.console, self.total, self.inspection, GROUP)
        if self.error is not None:
            self.console.print(self.error, style="red", markup=False, soft_wrap=True)
        if json_file is not None:
            told = report(seed, self.done, self.total, self.error)
            if self.inspection is not None:
                told["inspection"] = inspection_to_json(self.inspection)
            json.dump(told, json_file, indent=2)
            json_file.write("\n")
            json_file.flush()
