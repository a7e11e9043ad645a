"""`partq scheduled`: what waits until it is due is listed, cancelled, or dropped."""

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import click
from rich.table import Table

from partq.cli.formatting import milliseconds, one_line, spell_time
from partq.cli.queues.broker_session import find_partitions, open_session, unfinished
from partq.cli.queues.connection import Connect, QueueAddress, connection_options
from partq.cli.standard_input import is_terminal
from partq.cli.tables import add_columns, show
from partq.client.schedule.scheduled_calls import cancel as cancel_one
from partq.client.transport.session import Session
from partq.core.numbering.scheduled_ids import DueTime, ScheduledId
from partq.errors import NotFoundError, PartqError, SettingsError, UnavailableError
from partq.excerpts import counted
from partq.wire.calls.answers import UNSET, ErrorDetail
from partq.wire.calls.replies import plain
from partq.wire.calls.scheduled import (
    MAX_LISTED,
    DropScheduledBody,
    DropScheduledResult,
    DropScheduledResults,
    ScheduledList,
    ScheduledMessage,
)

MAX_TOLD = 10
"""Ids that a publish prints."""
_HELP = """Look at scheduled messages, cancel some, or drop them.

\b
  partq scheduled list --before 2026-12-01T08:00:00Z
  partq scheduled cancel 1.3/0001795324574173
  partq scheduled drop --partition 1.3 --dry-run
"""
_before_option = click.option(
    "--before", help="Only what is due before this time, such as 2026-12-01T08:00:00Z."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_partition_option = click.option(
    "--partition", "names", multiple=True, help="Only this partition; may be repeated."
)


@click.group(help=_HELP)
def scheduled() -> None:
    """Work with scheduled messages."""


@scheduled.command(name="list")
@connection_options
@click.option("--partition", "name", help="Only this partition.")
@_before_option
@click.option("--key", help="Only messages of this partition key.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=100, show_default=True)
@_json_option
def list_(
    *,
    connect: Connect,
    name: str | None,
    before: str | None,
    key: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show what waits until it is due, the first first; with --json a line for each."""
    connection = connect("produce")
    query: dict[str, str | int] = {}
    if name is not None:
        (partition,) = asyncio.run(find_partitions(connection, (name,)))
        query["partition"] = str(partition)
    if before is not None:
        query["before_ms"] = milliseconds(before, "--before")
    if key is not None:
        query["key"] = key
    asyncio.run(_list(connection, query, limit, as_json=as_json))


async def _list(
    connection: QueueAddress, query: dict[str, str | int], limit: int, *, as_json: bool
) -> None:
    table = Table(box=None, pad_edge=False)
    add_columns(table, ("id", "due", "key"))
    add_columns(table, ("messages", "bytes"), is_number=True)
    unavailable: dict[str, ErrorDetail] = {}
    count, has_more = 0, False
    async with open_session(connection) as session:
        # One more than is shown tells whether there are more.
        async for message in _messages(session, query, limit + 1, unavailable):
            if count == limit:
                has_more = True
                break
            count += 1
            if as_json:
                click.echo(json.dumps(plain(message)))
                continue
            shown = "" if message.key is None else one_line(message.key)
            due = spell_time(message.due_ms)
            table.add_row(message.id, due, shown, str(message.count), f"{message.bytes:,}")
    if not as_json:
        if count:
            show(table)
        else:
            given = ", ".join(f"--{name.removesuffix('_ms')}" for name in query)
            click.echo(
                f"nothing that is scheduled matches {given}" if query else "nothing is scheduled"
            )
    if has_more:
        click.echo(f"there are more than these {count}: give a higher --limit", err=True)
    if unavailable:
        name, error = next(iter(unavailable.items()))
        raise UnavailableError(f"partition {name}: {error.message}; the list is not complete")


async def _messages(
    session: Session,
    query: dict[str, str | int],
    limit: int,
    unavailable: dict[str, ErrorDetail],
) -> AsyncIterator[ScheduledMessage]:
    """Return up to `limit` messages, page by page."""
    after: str | None = None
    while limit > 0:
        asked = {**query, "limit": min(limit, MAX_LISTED)} | ({"after": after} if after else {})
        page = await session.ask("GET", f"/scheduled?{urlencode(asked)}", ScheduledList)
        for message in page.messages[:limit]:
            yield message
        limit -= len(page.messages)
        if page.unavailable is not UNSET:
            unavailable |= page.unavailable
        if page.next is UNSET or page.next == after:
            return
        after = page.next


def print_waiting(scheduled: str, due: DueTime, number: int) -> None:
    """Print the id of a message that was published and waits, and until when.

    `number`: how many there are with it; more than `MAX_TOLD` are not printed.
    """
    if number <= MAX_TOLD:
        after = f"for {due.after_ms / 1000:,g} s from now on"
        until = f"until {spell_time(due.due_ms)}" if due.due_ms else after
        click.echo(f"{scheduled} waits {until}: `partq scheduled cancel` takes this id")
    elif number == MAX_TOLD + 1:
        click.echo("and more: `partq scheduled list` shows all")


@scheduled.command()
@connection_options
@click.argument("ids", nargs=-1, required=True)
@_json_option
def cancel(*, connect: Connect, ids: tuple[str, ...], as_json: bool) -> None:
    """Cancel messages by their IDS; each is either cancelled or delivered.

    Exit status 1 when one was delivered or cancelled before, or is unknown.
    """
    for each in ids:
        ScheduledId.parse(each)
    left = asyncio.run(_cancel(connect("produce"), ids, as_json=as_json))
    if left:
        raise NotFoundError(
            f"{left[0]}: it was delivered, or cancelled before, or there was no such message"
            + (f", and so it is with {len(left) - 1} others" if len(left) > 1 else "")
        )


async def _cancel(connection: QueueAddress, ids: tuple[str, ...], *, as_json: bool) -> list[str]:
    """Cancel each, and return those that were not there."""
    left = []
    async with open_session(connection) as session:
        for each in ids:
            is_cancelled = await cancel_one(session, each)
            if not is_cancelled:
                left.append(each)
            if as_json:
                click.echo(json.dumps({"id": each, "is_cancelled": is_cancelled}))
            elif is_cancelled:
                click.echo(f"{each} cancelled")
    return left


@scheduled.command()
@connection_options
@_partition_option
@click.option("--all", "is_all", is_flag=True, help="Of all partitions.")
@_before_option
@click.option("--dry-run", is_flag=True, help="Show what would be dropped, and drop nothing.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@_json_option
def drop(
    *,
    connect: Connect,
    names: tuple[str, ...],
    is_all: bool,
    before: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Drop scheduled messages for good: of some partitions, or of all with --all."""
    if is_all == bool(names):
        raise click.UsageError("give either --partition, or --all")
    connection = connect("admin")
    before_ms = None if before is None else milliseconds(before, "--before")
    partitions = [str(each) for each in asyncio.run(find_partitions(connection, names))]
    planned = asyncio.run(_drop(connection, DropScheduledBody(partitions, before_ms, {}, True)))
    count = _count(planned)
    if dry_run or not count:
        _print(planned, as_json=as_json, dropped=0)
        return
    if not yes:
        _check(planned)
        if as_json or not is_terminal():
            raise SettingsError("scheduled: cannot ask: no terminal; give --yes, or --dry-run")
        what = counted(count, "scheduled entry", "scheduled entries")
        click.confirm(f"drop {what} of {connection.queue} for good?", abort=True)
    # No more than that: what is scheduled after it was shown stays.
    upto = {name: row.upto for name, row in planned.items() if row.upto is not UNSET}
    body = DropScheduledBody(sorted(upto), before_ms, upto)
    rows = {**planned, **asyncio.run(_drop(connection, body))}
    _print(rows, as_json=as_json, dropped=_count(rows))


async def _drop(
    connection: QueueAddress, body: DropScheduledBody
) -> dict[str, DropScheduledResult]:
    """Make the call until nothing is left of what it asks for; return what became of it."""
    rows: dict[str, DropScheduledResult] = {}
    async with open_session(connection) as session:
        while True:
            try:
                call = ("POST", "/scheduled/drop", DropScheduledResults, body)
                found = (await session.ask(*call)).partitions
            except PartqError as error:
                if not rows:
                    raise
                detail = ErrorDetail(error.code, error.message)
                found = {name: DropScheduledResult(error=detail) for name in body.partitions}
            for name, row in found.items():
                before = rows.get(name)
                if before is not None and before.count is not UNSET:
                    row.count = before.count + (0 if row.count is UNSET else row.count)
                rows[name] = row
            more = sorted(name for name, row in found.items() if row.more is True)
            if not more:
                return rows
            body = DropScheduledBody(more, body.before_ms, body.upto)


def _count(rows: dict[str, DropScheduledResult]) -> int:
    return sum(row.count for row in rows.values() if row.count is not UNSET)


def _print(rows: dict[str, DropScheduledResult], *, as_json: bool, dropped: int) -> None:
    """Print what was dropped, or would be.

    Raises:
        PartqError: a partition is not done.
    """
    if as_json:
        click.echo(json.dumps({"dropped": dropped, "partitions": plain(rows)}))
    else:
        count = dropped or _count(rows)
        what = counted(count, "scheduled entry", "scheduled entries")
        verb = "dropped" if dropped or not count else "would be dropped"
        click.echo(f"{what} {verb}")
    _check(rows)


def _check(rows: dict[str, DropScheduledResult]) -> None:
    failed = [(name, row.error) for name, row in rows.items() if row.error is not UNSET]
    if failed:
        raise unfinished(failed, len(rows))
