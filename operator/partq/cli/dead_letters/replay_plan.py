"""Which dead letters a replay would send back, read without consuming them."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import click
from rich.table import Table

from partq.cli.queues.broker_session import open_session
from partq.cli.queues.connection import QueueAddress
from partq.cli.tables import add_columns, show
from partq.client.browser import Browsed, Browser
from partq.core.dead_letters import ANY_LETTER, HEADER_PREFIX, LetterFilter, is_undecodable
from partq.core.model import PartitionId
from partq.excerpts import counted
from partq.wire.calls.answers import LayoutAnswer

ORIGIN = HEADER_PREFIX + "queue"
MAX_PLANNED = 100_000
"""The most dead letters that are planned, and the highest `--limit`."""
MAX_READ = 1_000_000
"""The most messages that are read to find those of a key or a reason."""


@dataclass(slots=True)
class LettersPart:
    """What is sent back of a partition: the chosen dead letters from `start` to below `stop`."""

    start: int
    stop: int
    count: int = 0
    """Without those that are skipped."""
    skipped: int = 0
    """Dead letters of undecodable messages, which stay."""
    stops_at: int | None = None
    """The offset of a message that is not a dead letter, if the replay comes to one."""


@dataclass(slots=True)
class LettersPlan:
    """What a replay would send back."""

    partitions: dict[str, LettersPart] = field(default_factory=dict)
    queues: Counter[str] = field(default_factory=Counter)
    """Where they go → how many."""
    reasons: Counter[str] = field(default_factory=Counter)
    is_complete: bool = True
    """False: there are more."""

    @property
    def count(self) -> int:
        """How many dead letters would be sent back."""
        return sum(each.count for each in self.partitions.values())

    @property
    def skipped(self) -> int:
        """How many among them would be skipped."""
        return sum(each.skipped for each in self.partitions.values())


async def make_plan(
    connection: QueueAddress,
    names: Sequence[str],
    limit: int | None,
    wanted: LetterFilter = ANY_LETTER,
) -> LettersPlan:
    """Return what a replay of some partitions would send back; no names: of all.

    `limit`: the oldest so many over all partitions, each partition from its oldest one on; those
    that are skipped do not count, nor do those that were replayed before. None: all that are
    there, up to `MAX_PLANNED`.

    Raises:
        PartqError: the brokers do not answer, or refuse.
    """
    plan = LettersPlan()
    most = limit or MAX_PLANNED
    left = MAX_READ
    partitions = [PartitionId.parse(name) for name in names]
    async with Browser(**connection.options().arguments()) as browser:
        async for each in browser.messages(partitions=partitions):
            if plan.count == most or plan.skipped == MAX_PLANNED or not left:
                plan.is_complete = False
                break
            headers = {} if each.message is None else each.message.headers or {}
            if each.is_replayed or not _is_chosen(each, headers, wanted):
                left -= wanted != ANY_LETTER
                continue
            name = str(each.partition)
            of = plan.partitions.setdefault(name, LettersPart(each.offset, each.offset))
            if of.stops_at is not None:
                continue
            if is_undecodable(headers):
                of.skipped += 1
                continue
            if ORIGIN not in headers:
                of.stops_at = each.offset
                continue
            of.count += 1
            of.stop = each.offset + 1
            plan.queues[headers[ORIGIN]] += 1
            plan.reasons[headers.get(HEADER_PREFIX + "reason", "?")] += 1
    return plan


def _is_chosen(each: Browsed, headers: Mapping[str, str], wanted: LetterFilter) -> bool:
    """Say whether a replay takes up a message: one of all of them ends at what is no letter."""
    if wanted == ANY_LETTER:
        return True
    key = None if each.message is None else each.message.key
    return ORIGIN in headers and wanted.has(key, headers)


async def show_plan(connection: QueueAddress, plan: LettersPlan, *, as_json: bool) -> None:
    """Print a plan, and what would refuse it."""
    if as_json:
        click.echo(json.dumps(_to_json(plan)))
    else:
        _show(plan)
    async with open_session(connection) as session:
        groups = (await session.ask("GET", "/layout", LayoutAnswer)).groups
    if groups:
        click.echo(
            f"partq: a replay is refused while group {min(groups)} consumes {connection.queue}",
            err=True,
        )


def _to_json(plan: LettersPlan) -> dict[str, object]:
    return {
        "would_replay": plan.count,
        "would_skip": plan.skipped,
        "is_complete": plan.is_complete,
        "queues": dict(plan.queues),
        "reasons": dict(plan.reasons),
        "partitions": {
            name: {"start": each.start, "stop": each.stop, "count": each.count,
                   "skipped": each.skipped, "stops_at": each.stops_at}
            for name, each in sorted(plan.partitions.items())
        },
    }  # fmt: skip


def _show(plan: LettersPlan) -> None:
    table = Table()
    add_columns(table, ("partition",))
    add_columns(table, ("from", "to", "replayed", "skipped"), is_number=True)
    for partition in sorted(map(PartitionId.parse, plan.partitions)):
        each = plan.partitions[str(partition)]
        last = str(each.stop - 1) if each.count else ""
        row = (str(each.start), last, f"{each.count:,}", f"{each.skipped:,}")
        table.add_row(str(partition), *row)
    if plan.partitions:
        show(table)
    where = ", ".join(f"{count:,} to {queue}" for queue, count in sorted(plan.queues.items()))
    why = ", ".join(f"{count:,} {reason}" for reason, count in sorted(plan.reasons.items()))
    told = f": {where} ({why})" if plan.count else ""
    click.echo(f"{counted(plan.count, 'dead letter', spec=',')} would be replayed{told}")
    if plan.skipped:
        click.echo(f"{counted(plan.skipped, 'other', spec=',')} would be skipped, and stay")
    for name, each in sorted(plan.partitions.items()):
        if each.stops_at is not None:
            click.echo(
                f"partition {name} stops at message {each.stops_at}, which is not a dead letter: "
                f"it lacks the header {ORIGIN}"
            )
    if not plan.is_complete:
        click.echo("there are more")
