"""`partq status`: partitions, owners, rates, lag and handoffs of a queue."""

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from partq.cli.formatting import spell_age
from partq.cli.queues.broker_session import ask, open_session
from partq.cli.queues.connection import Connect, QueueAddress, connection_options
from partq.cli.tables import add_columns, open_console, show
from partq.core.rate import Rate
from partq.errors import UnavailableError
from partq.excerpts import counted
from partq.wire.calls.status import (
    GroupPartition,
    GroupStatus,
    HandoffStatus,
    PartitionStatus,
    StatusAnswer,
)

WATCH_EVERY_S = 1.0
STATES = ("Ready", "Paused", "Unbound")
MAX_NAMED = 5
MIN_CROWD = 1000
"""Messages of a partition below which its share is chance."""
CROWD_FACTOR = 3
"""A partition is crowded above this many times the mean of the others."""
MAX_ROWS = 200
"""Partitions that are shown one by one; with more of them the groups are summed up only."""

_HELP = """Show what a queue does: partitions by owner and state, rates, lag, handoffs.

Lag is what a group has not acknowledged: how many messages, and for how long the oldest of them has
been stored. Partitions that no node of Redis answers for are named, and in no number. Rates need
two readings, so only --watch has them. In a pipe or a file --watch prints each table below the last
one.

\b
  partq status
  partq status --watch
  partq status --json | jq '.groups.workers.lag, .unavailable'
"""


@click.command(help=_HELP)
@connection_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with --watch a line per second.")
@click.option("--watch", is_flag=True, help="Show it again each second until interrupted.")
def status(
    *,
    connect: Connect,
    as_json: bool,
    watch: bool,
) -> None:
    """Ask any broker, and show its answer."""
    connection = connect("admin")
    if watch:
        asyncio.run(_watch_json(connection) if as_json else _watch(connection))
    elif as_json:
        click.echo(json.dumps(asyncio.run(ask(connection, "GET", "/status", object))))
    else:
        show(render(asyncio.run(ask(connection, "GET", "/status", StatusAnswer))))


async def _watch_json(connection: QueueAddress) -> None:
    """Print what a broker answers, with the fields that only a newer version knows."""
    async with open_session(connection) as session:
        while True:
            try:
                answer = await session.ask("GET", "/status", object)
            except UnavailableError as error:
                # Brokers come back: watching continues.
                answer = {"error": {"code": error.code, "message": error.message}}
            click.echo(json.dumps(answer))
            await asyncio.sleep(WATCH_EVERY_S)


async def _watch(connection: QueueAddress) -> None:
    rates = Rates()
    async with open_session(connection) as session:
        with _screens() as show_next:
            while True:
                try:
                    answer = await session.ask("GET", "/status", StatusAnswer)
                except UnavailableError as error:
                    show_next(Text(error.message, style="red"))
                else:
                    rates.add(time.monotonic(), answer)
                    show_next(render(answer, rates))
                await asyncio.sleep(WATCH_EVERY_S)


@contextmanager
def _screens() -> Iterator[Callable[[RenderableType], None]]:
    """Take the whole terminal for each screen; anywhere else print it below the last."""
    console = open_console()
    if not console.is_terminal:
        yield console.print
        return
    with Live(console=console, auto_refresh=False, screen=True) as live:
        yield partial(live.update, refresh=True)


class Rates:
    """How fast a queue grows and its groups move on, by what was seen of them."""

    def __init__(self) -> None:
        self.published = 0.0
        """Messages per second."""
        self.acked: dict[str, float] = {}
        """Group → messages per second."""
        self._published = Rate()
        self._acked: defaultdict[str, Rate] = defaultdict(Rate)

    def add(self, now: float, answer: StatusAnswer) -> None:
        """Note what was seen at an instant in seconds."""
        end = sum(record.end for record in answer.partitions.values())
        self.published = self._published.add(now, end)
        self.acked = {
            name: self._acked[name].add(now, end - group.lag)
            for name, group in answer.groups.items()
        }


def render(answer: StatusAnswer, rates: Rates | None = None) -> RenderableType:
    """Return the tables of one answer."""
    parts: list[RenderableType] = [_queue(answer, rates)]
    for name, group in answer.groups.items():
        acked = None if rates is None else rates.acked.get(name, 0.0)
        parts += [Text(), _summary(name, group, acked)]
        parts += [Text(line, style="bold red") for line in blocked_lines(group)]
        parts += [Text(line, style="yellow") for line in parked_lines(group)]
        parts.append(_members(group))
        if group.handoffs:
            parts.append(_handoffs(group.handoffs))
        if len(answer.partitions) <= MAX_ROWS:
            parts.append(_partitions(answer.partitions, group.partitions))
    return Group(*parts)


def _queue(answer: StatusAnswer, rates: Rates | None) -> Text:
    totals = answer.totals
    brokers = Counter(record.broker or "none" for record in answer.partitions.values())
    spread = ", ".join(f"{name}: {count}" for name, count in sorted(brokers.items()))
    text = Text(f"{answer.namespace}/{answer.queue}: ")
    is_available = answer.availability == "Available"
    text.append(answer.availability, style="green" if is_available else "bold red")
    unread = unread_partitions(answer)
    unserved = [name for name in answer.unavailable if name in answer.partitions]
    reasons = [f"no broker serves {named(unserved)}"] if unserved else []
    if unread:
        reasons.append(f"Redis does not answer for {named(unread)}: not counted")
    if reasons:
        text.append(f" ({'; '.join(reasons)})")
    text.append(
        f"; {counted(totals.partitions, 'partition')}, "
        f"{counted(totals.messages, 'message', spec=',')}, "
        f"{totals.bytes:,} bytes stored; by broker {spread}"
    )
    if audit_bytes := totals.audit_bytes:
        text.append(f"; {audit_bytes:,} bytes of the audit record wait for its archive")
    if rates is not None:
        text.append(f"; {rates.published:,.0f} messages/s published")
    for name, record in answer.partitions.items():
        if ahead := record.clock_ahead_ms:
            text.append(
                f"\npartition {name}: Redis's clock was {spell_age(ahead)} ahead when its last "
                "message was stored; nothing of it ages until then",
                style="yellow",
            )
    for line in skew_lines(answer):
        text.append(f"\n{line}", style="yellow")
    return text


def skew_lines(answer: StatusAnswer) -> list[str]:
    """Return a line for each partition that has got far more messages than the others."""
    counts = {name: record.end for name, record in answer.partitions.items()}
    total = sum(counts.values())
    return _first(
        f"partition {name} has got {counts[name] / total:.0%} of all messages: "
        "the keys are few, or one of them is frequent"
        for name in crowded(counts)
    )


def crowded(counts: Mapping[str, int]) -> list[str]:
    """Return the partitions that got far more messages than the others, the fullest first.

    `counts`: how many messages each partition of one queue has got. A queue of one partition has
    no skew. A partition is compared with the others alone, so that one of two can be crowded.
    """
    others = len(counts) - 1
    total = sum(counts.values())
    found = [
        name
        for name, count in counts.items()
        if others and count >= MIN_CROWD and count * others > CROWD_FACTOR * (total - count)
    ]
    return sorted(found, key=lambda name: (-counts[name], name))


def unread_partitions(answer: StatusAnswer) -> list[str]:
    """Return the partitions that no number counts: their node of Redis does not answer."""
    return [name for name in answer.unavailable if name not in answer.partitions]


def blocked_partitions(group: GroupStatus) -> dict[str, str]:
    """Return the partitions that deliver nothing to a group, each with the reason.

    Its dead letters are not stored, or the log does not hold the message that comes next.
    """
    return {name: row.blocked for name, row in group.partitions.items() if row.blocked}


def blocked_lines(group: GroupStatus) -> list[str]:
    """Return a line for each partition that delivers nothing, of many for some of them."""
    return _first(
        f"partition {name} delivers nothing: {reason}"
        for name, reason in blocked_partitions(group).items()
    )


def parked_partitions(group: GroupStatus) -> dict[str, str]:
    """Return the partitions where dead letters are parked, each with the reason."""
    return {name: row.parked for name, row in group.partitions.items() if row.parked}


def parked_lines(group: GroupStatus) -> list[str]:
    """Return a line for each partition where dead letters are parked, of many for some."""
    return _first(
        f"partition {name}: {letters_parked(group.partitions[name].dead_letters)}, and "
        f"deliveries continue: {reason}"
        for name, reason in parked_partitions(group).items()
    )


def letters_parked(count: int) -> str:
    """Say how many dead letters wait for a queue that is not there."""
    what = counted(count, "dead letter waits", "dead letters wait")
    return f"{what} for the dead-letter queue"


def letters_waiting(count: int) -> str:
    """Say how many dead letters wait to be stored."""
    return f"{counted(count, 'dead letter waits', 'dead letters wait', spec=',')} to be stored"


def _first(lines: Iterable[str]) -> list[str]:
    """Return the lines of some partitions, and how many more there are."""
    every = list(lines)
    more = [f"and {counted(count, 'partition')} more"] if (count := _more(every)) else []
    return [*every[:MAX_NAMED], *more]


def named(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _more(names: Sequence[object]) -> int:
    return max(0, len(names) - MAX_NAMED)


def _summary(name: str, group: GroupStatus, acked: float | None) -> Text:
    rows = group.partitions.values()
    states = Counter(row.state for row in rows)
    by_state = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    waiting = len(group.waiting_moves)
    lag = f"group {name}: lag {counted(group.lag, 'message', spec=',')}, {spell_age(group.lag_ms)}"
    parts = [counted(len(group.handoffs), "handoff")]
    if not any(each.state in ("Active", "Standby", "Lost") for each in group.members):
        parts.append("no member: nobody consumes")
    if group.assignment == "Client":
        parts.append("members choose their partitions")
    if letters := sum(row.dead_letters for row in rows):
        parts.append(letters_waiting(letters))
    if waiting:
        parts.append(f"{counted(waiting, 'move waits', 'moves wait')} for the budget")
    if acked is not None:
        parts.append(f"{acked:,.0f} messages/s acknowledged")
    # Two lines: what is looked for in them is not broken by a narrow terminal.
    return Text(f"{lag}; {by_state or 'no partitions'}\n{'; '.join(parts)}")


def _members(group: GroupStatus) -> Table:
    """Return the members and how many partitions of each state they hold."""
    table = Table()
    nodes = {m.member: str(m.node_id) for m in group.members if isinstance(m.node_id, int)}
    add_columns(table, ("member", "is"))
    add_columns(
        table, (*(("node",) if nodes else ()), "partitions", *STATES, "lag"), is_number=True
    )
    states: defaultdict[str, Counter[str]] = defaultdict(Counter)
    lags: Counter[str] = Counter()
    for row in group.partitions.values():
        states[row.member][row.state] += 1
        lags[row.member] += row.lag
    named = [(each.member, each.state, each.partitions) for each in group.members]
    if "" in states:
        named.append(("", "nobody", states[""].total()))
    for member, state, count in named:
        by_state = [str(states[member][each] or "") for each in STATES]
        node = (nodes.get(member, ""),) if nodes else ()
        table.add_row(member, state, *node, str(count), *by_state, f"{lags[member]:,}")
    return table


def _handoffs(handoffs: Sequence[HandoffStatus]) -> Table:
    table = Table(title="handoffs", title_justify="left")
    add_columns(table, ("partition", "from", "to", "phase"))
    for each in handoffs:
        table.add_row(each.partition, each.source, each.target, each.phase)
    return table


def _partitions(
    records: Mapping[str, PartitionStatus], rows: Mapping[str, GroupPartition]
) -> Table:
    table = Table()
    add_columns(table, ("partition", "broker", "member", "state"))
    add_columns(table, ("cursor", "end", "lag", "oldest"), is_number=True)
    for partition, row in rows.items():
        record = records[partition]
        table.add_row(
            *(partition, record.broker, row.member, row.state),
            *(str(number) for number in (row.cursor, record.end, row.lag)),
            spell_age(row.lag_ms) if row.lag else "",
        )
    return table
