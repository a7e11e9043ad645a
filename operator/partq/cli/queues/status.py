"""`partq status`: partitions, owners, rates, lag and handoffs of a queue."""

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from partq.cli.formatting import spell_age, spell_time
from partq.cli.queues.broker_session import ask, open_session
from partq.cli.queues.connection import Connect, QueueAddress, connection_options
from partq.cli.queues.partition_map import MemberMarks, Square, render_map
from partq.cli.queues.problems import (
    MARKS,
    blocked_lines,
    held_key_lines,
    letters_waiting,
    named,
    order_lines,
    parked_key_lines,
    parked_lines,
    problem_of,
    retired_count,
    retired_names,
    session_lines,
    skew_lines,
    unread_partitions,
    withheld_lines,
)
from partq.cli.queues.rescale import progress
from partq.cli.queues.seats import holders_text, seats_of
from partq.cli.tables import add_columns, open_console, show
from partq.core.group.group_type import OPEN_TYPES, GroupType
from partq.core.model import PartitionId
from partq.core.partition_problems import ProblemKind
from partq.core.rate import Rate
from partq.core.views.rescale_status import RescalePhase
from partq.errors import UnavailableError
from partq.excerpts import counted
from partq.wire.calls.answers import UNSET
from partq.wire.calls.status import (
    GroupStatus,
    HandoffStatus,
    StatusAnswer,
)

WATCH_EVERY_S = 1.0
MAX_ROWS = 20
"""Partitions and members of a group that are shown one by one, what is wrong first."""

_HELP = """Show what a queue does: partitions by owner and state, rates, lag, handoffs.

Groups, members and partitions where something is wrong come first, then those with the most lag.
The map has a character for each partition: the letter of its member, or what is wrong.

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
    marks: defaultdict[str, MemberMarks] = defaultdict(MemberMarks)
    async with open_session(connection) as session:
        with _screens() as show_next:
            while True:
                try:
                    answer = await session.ask("GET", "/status", StatusAnswer)
                except UnavailableError as error:
                    show_next(Text(error.message, style="red"))
                else:
                    rates.add(time.monotonic(), answer)
                    show_next(render(answer, rates, marks))
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


def render(
    answer: StatusAnswer,
    rates: Rates | None = None,
    marks: Mapping[str, MemberMarks] | None = None,
) -> RenderableType:
    """Return the summary, the map and the tables of one answer.

    `marks`: group → the letters that its members have had so far; a `defaultdict`.
    """
    marks = defaultdict(MemberMarks) if marks is None else marks
    parts: list[RenderableType] = [_queue(answer, rates)]
    views = [_GroupSection(answer, name, group) for name, group in answer.groups.items()]
    for view in sorted(views, key=_GroupSection.rank):
        acked = None if rates is None else rates.acked.get(view.name, 0.0)
        parts += [Text(), *view.render(marks[view.name], acked)]
    return Group(*parts)


class _GroupSection:
    """A group of a status, for people."""

    def __init__(self, answer: StatusAnswer, name: str, group: GroupStatus) -> None:
        self.name = name
        self._group = group
        self._is_open = group.type in OPEN_TYPES
        self._records = answer.partitions
        self._retired = set(retired_names(answer))
        unserved = set(answer.unavailable)
        names = sorted({*group.partitions, *unserved}, key=PartitionId.parse)
        self._problems = {
            each: problem_of(group.partitions.get(each), is_served=each not in unserved)
            for each in names
        }
        self._seats = list(seats_of(group.partitions, self._problems))

    def rank(self) -> tuple[int, int, str]:
        """Return what groups are sorted by: what is wrong, the lag, the name."""
        return (self._worst(), -self._group.lag, self.name)

    def _worst(self) -> int:
        return min(map(_severity, self._problems.values()), default=len(MARKS))

    def render(self, marks: MemberMarks, acked: float | None) -> Iterator[RenderableType]:
        """Yield what is shown of the group; `acked`: messages per second, None: not known."""
        group = self._group
        holders = {each.member for each in self._seats if each.member}
        marks.add({*holders, *(each.member for each in group.members)})
        yield _summary(self.name, group, acked, self._retired)
        for line in session_lines(group):
            yield Text(line)
        for line in blocked_lines(group):
            yield Text(line, style="bold red")
        for line in [
            *parked_lines(group),
            *order_lines(group),
            *parked_key_lines(group),
            *held_key_lines(group),
            *withheld_lines(group),
        ]:
            yield Text(line, style="yellow")
        if self._problems:
            yield render_map(self._squares(), marks)
        yield from self._open_members() if self._is_open else self._members(marks)
        if group.handoffs:
            yield _handoffs(group.handoffs)
        yield from self._partitions()

    def _squares(self) -> list[Square]:
        return [
            Square(each.name, each.member, each.problem, is_everyones=self._is_open)
            for each in self._seats
        ]

    def _members(self, marks: MemberMarks) -> Iterator[RenderableType]:
        """Yield the table of members, those that are not connected first."""
        group = self._group
        table = Table()
        nodes = {m.member: str(m.node_id) for m in group.members if isinstance(m.node_id, int)}
        add_columns(table, ("map", "member", "is"))
        is_shared = any(row.parts is not UNSET for row in group.partitions.values())
        numbered = (*(("node",) if nodes else ()), "ready", *(() if is_shared else ("lag",)))
        add_columns(table, numbered, is_number=True)
        counts: Counter[str] = Counter()
        ready: Counter[str] = Counter()
        lags: Counter[str] = Counter()
        for seat in self._seats:
            # Those without slots have messages that wait, and nothing else.
            if seat.state and seat.name.partition("/")[0] not in self._retired:
                counts[seat.member] += 1
                ready[seat.member] += seat.state == "Ready"
        for row in group.partitions.values():
            # The lag of a partition that several members share is not that of one of them.
            lags[row.member] += row.lag if row.parts is UNSET else 0
        # Members that have left hold nothing; `partq members` lists them while they are known.
        members = [
            (each.member, each.state, each.partitions)
            for each in group.members
            if each.state != "Left"
        ]
        if counts[""] or lags[""]:
            members.append(("", "nobody", counts[""]))
        if not members:
            return
        members.sort(key=lambda each: (each[1] not in ("Lost", "nobody"), -lags[each[0]], each[0]))
        for member, state, count in members[:MAX_ROWS]:
            node = (nodes.get(member, ""),) if nodes else ()
            mark = Text(marks.letter(member), marks.colour(member)) if member else Text("-")
            share = f"{ready[member]}/{count}"
            lag = () if is_shared else (f"{lags[member]:,}",)
            table.add_row(mark, member, state, *node, share, *lag)
        yield table
        yield from self._more_members(len(members))

    def _open_members(self) -> Iterator[RenderableType]:
        """Yield the table of members where no partition has a member."""
        is_session = self._group.type == GroupType.SESSION
        members = [each for each in self._group.members if each.state != "Left"]
        if not members:
            return
        table = Table()
        add_columns(table, ("member", "is"))
        titles = ("sessions",) if is_session else ("priority", "credit", "waits for its turn in")
        add_columns(table, (*titles, "not acknowledged"), is_number=True)
        members.sort(key=lambda each: (each.state != "Lost", -(each.unacked or 0), each.member))
        for each in members[:MAX_ROWS]:
            has = (each.sessions,) if is_session else (each.priority, each.credit, each.turns)
            counts = ("" if count is UNSET else f"{count:,}" for count in (*has, each.unacked))
            table.add_row(each.member, each.state, *counts)
        yield table
        yield from self._more_members(len(members))

    def _more_members(self, count: int) -> Iterator[RenderableType]:
        if count > MAX_ROWS:
            more = counted(count - MAX_ROWS, "more member", "more members")
            yield Text(f"and {more}: `partq members --group {self.name}` shows all")

    def _partitions(self) -> Iterator[RenderableType]:
        """Yield the table of the partitions where something is wrong, or not acknowledged."""
        rows = self._group.partitions
        # In a group that nobody consumes it is no news that a partition has no member.
        calm = (None,) if _has_member(self._group) else (None, ProblemKind.UNASSIGNED)
        shown = [
            name
            for name, problem in self._problems.items()
            if name in rows and (problem not in calm or rows[name].lag or rows[name].parked)
        ]
        shown.sort(
            key=lambda name: (
                *(_severity(self._problems[name]), not rows[name].parked, -rows[name].lag),
                PartitionId.parse(name),
            )
        )
        if not shown:
            return
        table = Table()
        add_columns(table, ("partition", "state"))
        add_columns(table, ("lag", "oldest"), is_number=True)
        add_columns(table, ("member", "broker"))
        for name in shown[:MAX_ROWS]:
            row = rows[name]
            oldest = spell_age(row.lag_ms) if row.lag else ""
            broker = self._records[name].broker if name in self._records else ""
            member = "all" if self._is_open and row.state == "Ready" else holders_text(row)
            table.add_row(name, row.state, f"{row.lag:,}", oldest, member, broker)
        yield table
        if len(shown) > MAX_ROWS:
            more = counted(len(shown) - MAX_ROWS, "more partition", "more partitions")
            yield Text(f"and {more}: `partq partitions --group {self.name}` shows all")


def _has_member(group: GroupStatus) -> bool:
    return any(each.state in ("Active", "Standby", "Lost") for each in group.members)


def _severity(problem: ProblemKind | None) -> int:
    """Return 0 for the worst problem, and the highest number for none."""
    return len(MARKS) if problem is None else list(MARKS).index(problem)


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
        f"; {partition_counts(answer)}, "
        f"{counted(totals.messages, 'message', spec=',')}, "
        f"{totals.bytes:,} bytes stored; by broker {spread}"
    )
    if retained_bytes := totals.retained_bytes:
        text.append(f"; {retained_bytes:,} of them retained after their acknowledgement")
    if known_ids := totals.known_ids:
        text.append(f"; {counted(known_ids, 'message id', spec=',')} known")
    text.append(_scheduled(answer))
    if audit_bytes := totals.audit_bytes:
        text.append(f"; {audit_bytes:,} bytes of the audit record wait for its archive")
    if rates is not None:
        text.append(f"; {rates.published:,.0f} messages/s published")
    for line in rescale_lines(answer):
        text.append(f"\n{line}", style="cyan")
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


def partition_counts(answer: StatusAnswer) -> str:
    """Return how many partitions there are: those that take messages, and the others."""
    current, prepared, retired = _counts(answer)
    told = counted(current, "partition")
    told += f", {prepared} being made" if prepared else ""
    return told + (f", {retired} without slots" if retired else "")


def _scheduled(answer: StatusAnswer) -> str:
    """Return what waits until it is due, and for when; empty: nothing."""
    rows = [row for row in answer.partitions.values() if row.scheduled]
    count = sum(row.scheduled or 0 for row in rows)
    if not count:
        return ""
    size_bytes = sum(row.scheduled_bytes or 0 for row in rows)
    due_ms = min((row.next_due_ms for row in rows if row.next_due_ms is not UNSET), default=0)
    due = spell_time(due_ms)
    return f"; {counted(count, 'batch', 'batches')} scheduled, {size_bytes:,} bytes, next {due}"


def _counts(answer: StatusAnswer) -> tuple[int, int, int]:
    """Return how many partitions take messages, are being made, and have no slots any more."""
    retired = retired_count(answer)
    current = answer.totals.partitions - retired
    prepared = 0
    if answer.rescale is not UNSET and answer.rescale.phase is RescalePhase.PREPARING:
        prepared = max(0, current - answer.rescale.from_count)
    return current - prepared, prepared, retired


def rescale_lines(answer: StatusAnswer) -> Iterator[str]:
    """Yield what is to be said of changes of the number of partitions, a line each."""
    if answer.rescale is UNSET:
        return
    # The change that is not over may be an earlier one than the one that made this number.
    is_over = answer.rescale.phase in (RescalePhase.SETTLED, RescalePhase.ABORTED)
    which = "the last change" if is_over else "a change that is not settled"
    current, _, _ = _counts(answer)
    yield f"{counted(current, 'partition')} in force; {which}: {progress(answer.rescale)}"
    for each in answer.rescale.held:
        yield (
            f"group {each.group}: {counted(each.partitions, 'new partition')} held until it has "
            f"acknowledged {counted(each.messages, 'older message', spec=',')}"
        )
    if retired := retired_names(answer):
        yield f"without slots: {named(retired)}"
    if earlier := answer.rescale.earlier:
        told = (f"{each.from_count} -> {each.to_count} {each.phase}" for each in reversed(earlier))
        yield f"other changes, the last first: {', '.join(told)}"


def _summary(name: str, group: GroupStatus, acked: float | None, retired: Collection[str]) -> Text:
    rows = group.partitions.values()
    states = Counter(
        "without slots" if each in retired else row.state for each, row in group.partitions.items()
    )
    by_state = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    waiting = len(group.waiting_moves)
    lag = f"group {name}: lag {counted(group.lag, 'message', spec=',')}, {spell_age(group.lag_ms)}"
    parts = [counted(len(group.handoffs), "handoff")]
    if not _has_member(group):
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


def _handoffs(handoffs: Sequence[HandoffStatus]) -> Table:
    table = Table(title="handoffs", title_justify="left")
    add_columns(table, ("partition", "from", "to", "phase"))
    for each in handoffs:
        table.add_row(each.partition, each.source, each.target, each.phase)
    return table
