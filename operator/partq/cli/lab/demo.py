"""`partq demo`: run the scenario, print the verdict."""

import asyncio
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import IO, Final, Literal

import click
from rich.console import Console

from partq.cli.lab.scratch import scratch
from partq.cli.lab.termination import ends_in_order
from partq.cli.quantity import Quantity
from partq.errors import BadRequestError
from partq.lab.demo.inspection import print_inspection
from partq.lab.demo.inspection import to_json as inspection_to_json
from partq.lab.demo.jobs import InspectionPlan, require_engine
from partq.lab.demo.outcome import DemoOutcome
from partq.lab.demo.run import GROUP, run
from partq.lab.verdict.report import (
    print_rebalances,
    print_rescales,
    print_verdict,
    rebalance_to_json,
    to_json,
)
from partq.lab.workload.events import default_input, disordered, load

DEFAULT_DURATION_S: Final = 75.0
MIN_DURATION_S: Final = 30.0
MAX_DURATION_S: Final = 3600.0


@click.command()
@click.option(
    "--input",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="NDJSON, also gzipped, with a `key` per line. Default: 99,515 real file changes.",
)
@click.option(
    "--duration",
    "duration_s",
    type=Quantity(MIN_DURATION_S, MAX_DURATION_S),
    default=DEFAULT_DURATION_S,
    show_default=True,
    help="Seconds over which the events are published, evenly.",
)
@click.option(
    "--redis",
    "redis_url",
    metavar="URL",
    help="Use this Redis, or Redis Cluster, instead of a separate one; nothing is left there.",
)
@click.option(
    "--with-audit",
    is_flag=True,
    help="Archive the queue to Parquet at the end, and audit the brokers' record of the run.",
)
@click.option("--with-spark", is_flag=True, help="As --with-audit, with jobs on Spark.")
@click.option(
    "--rescale",
    "is_rescaled",
    is_flag=True,
    help="Change the partition count more often, 16 -> 24 -> 10 -> 16, while processes are killed.",
)
@click.option(
    "--report",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the report of the audit, which stays. Default: a new one.",
)
@click.option(
    "--json", "json_file", type=click.File("w", lazy=False), help="Write the verdict to this file."
)
@ends_in_order
def demo(
    *,
    source: Path | None,
    duration_s: float,
    redis_url: str | None,
    with_audit: bool,
    with_spark: bool,
    is_rescaled: bool,
    report: Path | None,
    json_file: IO[str] | None,
) -> None:
    """Publish real events while everything changes, and judge what the consumers saw.

    Consumers go 2 -> 4 -> 6 -> 3, partitions 16 -> 24, a consumer is killed, one restarts, a broker
    is killed: all of it under traffic. With --rescale the partition count changes up and down while
    processes are killed. Then the consumers' journals say what was lost, repeated or out of order.
    With --with-audit the brokers' own record is asked, too, and must agree with them.

    Exit status: 0 good; 1 lost, out of order, a duplicate without a cause, a change that did
    not hit live traffic, or a record that disagrees; 2 wrong input.
    """
    console = Console()
    plan = _inspection_plan(report, with_audit=with_audit, with_spark=with_spark)
    source = source or default_input()
    events = load(source)
    if count := disordered(events):
        console.print(
            f"{source}: {count:,} events do not follow their key's predecessor in the input; "
            "they will count as out_of_order",
            style="yellow",
            markup=False,
        )
    event_count = len(events)
    del events
    with scratch("demo") as directory:
        outcome = asyncio.run(
            run(
                console,
                source,
                event_count=event_count,
                duration_s=duration_s,
                directory=directory.path,
                redis_url=redis_url,
                inspection_plan=plan,
                is_rescaled=is_rescaled,
            )
        )
        if not outcome.is_good:
            directory.keep()
    _print(console, outcome)
    if json_file is not None:
        json.dump(outcome_to_json(outcome), json_file, indent=2)
        json_file.write("\n")
    if not outcome.is_good:
        raise click.exceptions.Exit(1)


def _inspection_plan(
    report: Path | None, *, with_audit: bool, with_spark: bool
) -> InspectionPlan | None:
    """Return what the options ask for at the end of the run; None: nothing.

    Raises:
        BadRequestError: they contradict each other.
        SettingsError: what the jobs need is not installed.
    """
    if with_audit and with_spark:
        raise BadRequestError(
            "--with-audit: got it beside --with-spark, which audits, too; give one of them"
        )
    if not with_audit and not with_spark:
        if report is not None:
            raise BadRequestError(
                "--report: got it without --with-audit, which writes the report; give both"
            )
        return None
    engine: Literal["arrow", "spark"] = "spark" if with_spark else "arrow"
    require_engine(engine)
    return InspectionPlan(
        engine=engine, report=report or Path(tempfile.mkdtemp(prefix="partq-demo-report-"))
    )


def outcome_to_json(outcome: DemoOutcome) -> dict[str, object]:
    """Return what `--json` writes."""
    return {
        **to_json(outcome.verdict),
        **({"inspection": inspection_to_json(outcome.inspection)} if outcome.inspection else {}),
        "rebalances": [rebalance_to_json(each) for each in outcome.rebalances],
        **({"rescales": [asdict(each) for each in outcome.rescales]} if outcome.rescales else {}),
        "failures": [*outcome.failures, *outcome.verdict.findings],
    }


def _print(console: Console, outcome: DemoOutcome) -> None:
    print_rebalances(console, outcome.rebalances, outcome.duplicates)
    if outcome.rescales:
        print_rescales(console, outcome.rescales)
    for failure in outcome.failures:
        console.print(failure, style="red", markup=False)
    print_verdict(console, outcome.verdict)
    if outcome.inspection is not None:
        print_inspection(console, outcome.verdict, outcome.inspection, GROUP)
