"""`partq reset`: move the cursors of a group to the earliest message, a time or the latest."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click
from rich.table import Table

from partq.cli import tables
from partq.cli.formatting import milliseconds
from partq.cli.queues.broker_session import ask, find_partitions, unfinished
from partq.cli.queues.connection import (
    Connect,
    QueueAddress,
    connection_options,
    group_option,
    known_group,
)
from partq.cli.standard_input import is_terminal
from partq.cli.tables import add_columns
from partq.client.transport.answers import given
from partq.core.clocks.units import MIN_AT_MS
from partq.errors import ConflictError, SettingsError, UnavailableError
from partq.excerpts import counted
from partq.path_names import quoted
from partq.wire.calls.answers import UNSET, ResetResult, ResetResults
from partq.wire.calls.bodies import ResetBody
from partq.wire.calls.replies import plain

MAX_ROWS = 200
"""Partitions that are shown one by one; with --json all are."""

_HELP = """Move a consumer group's cursors: what lies ahead of them is delivered, again if it was
before.

First it shows what would change; then it asks, or takes --yes. Refused while members of the group
are connected: stop them, or give --force, which takes from them what they are processing. Messages
that are no longer stored do not come back. When it ends halfway, run it again. The states of keys,
which the group has left with its acks, stay as they are; --clear-states removes them.

\b
  partq reset --group workers --to earliest --dry-run
  partq reset --group workers --to-time 2026-11-20T08:00:00+00:00 --yes
  partq reset --group workers --to-offset 120 --partition 3
"""


@click.command(help=_HELP)
@connection_options
@group_option
@click.option("--to", "where", type=click.Choice(["earliest", "latest"]), help="An end of the log.")
@click.option(
    "--to-time",
    metavar="TIME",
    help="The first message stored at this time or later: ISO 8601 with a time zone.",
)
@click.option("--to-offset", type=click.IntRange(min=0), help="An offset; needs one --partition.")
@click.option("--partition", "names", multiple=True, help="Only this partition; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option("--force", is_flag=True, help="Do it although members are connected.")
@click.option("--clear-states", is_flag=True, help="Remove what the group has left of its keys.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; changes only with --yes.")
def reset(
    *,
    connect: Connect,
    group: str | None,
    where: str | None,
    to_time: str | None,
    to_offset: int | None,
    names: Sequence[str],
    dry_run: bool,
    yes: bool,
    force: bool,
    clear_states: bool,
    as_json: bool,
) -> None:
    """Show, ask, move."""
    connection = connect("admin")
    body = place(where, to_time, to_offset)
    group = known_group(connection, group)
    found = asyncio.run(find_partitions(connection, names))
    body.partitions, body.is_forced = [str(each) for each in found], force
    body.is_dry_run, body.clears_states = True, clear_states
    planned = asyncio.run(_ask(connection, group, body))
    if not as_json:
        show(group, planned, is_time=to_time is not None)
    if dry_run:
        if as_json:
            click.echo(_json(group, planned, is_done=False))
        _check_errors(planned)
        if (bound := _bound(planned)) and not force:
            click.echo(f"partq: {_connected(bound)}: the move itself needs --force", err=True)
        return
    _check_errors(planned)
    if (bound := _bound(planned)) and not force:
        stop = "stop it" if len(bound) == 1 else "stop them"
        raise ConflictError(f"{_connected(bound)}: nothing was moved; {stop}, or give --force")
    # Asked outside the event loop, where Ctrl-C ends the question.
    if not yes and not _may(f"move {_moving(planned)} cursors of {group}?", as_json=as_json):
        return
    # Brokers of an earlier version tell no epoch, and take none.
    seen = {name: row.epoch for name, row in planned.items() if row.epoch is not UNSET}
    body.is_dry_run, body.epochs = False, seen or UNSET
    done = asyncio.run(_ask(connection, group, body))
    _tell(group, done, as_json=as_json)


def _may(question: str, *, as_json: bool) -> bool:
    if as_json or not is_terminal():
        raise SettingsError("reset: cannot ask: no terminal; give --yes, or --dry-run to look")
    return click.confirm(question)


def place(where: str | None, to_time: str | None, to_offset: int | None) -> ResetBody:
    """Return where the cursors are to go, as the brokers take it.

    Raises:
        SettingsError: not just one place is given, or not a time.
    """
    if [where, to_time, to_offset].count(None) != 2:
        raise SettingsError("reset: expected one of --to, --to-time and --to-offset")
    if to_time is not None:
        at_ms = milliseconds(to_time, "--to-time")
        # No message is as old: a broker takes smaller numbers for seconds.
        return ResetBody(at_ms=at_ms if at_ms >= MIN_AT_MS else 0)
    if to_offset is not None:
        return ResetBody(offset=to_offset)
    return ResetBody(to="earliest" if where == "earliest" else "latest")


async def _ask(connection: QueueAddress, group: str, body: ResetBody) -> dict[str, ResetResult]:
    path = f"/groups/{quoted(group, '--group')}/reset"
    return (await ask(connection, "POST", path, ResetResults, body)).partitions


def _json(group: str, rows: Mapping[str, ResetResult], *, is_done: bool) -> str:
    return json.dumps({"group": group, "is_done": is_done, "partitions": plain(rows)})


def _tell(group: str, done: Mapping[str, ResetResult], *, as_json: bool) -> None:
    """Say what was moved.

    Raises:
        UnavailableError, ConflictError: some were not.
    """
    failed = {name: row.error for name, row in done.items() if row.error is not UNSET}
    if as_json:
        click.echo(_json(group, done, is_done=not failed))
    if failed:
        raise unfinished(list(failed.items()), len(done))
    if not as_json:
        click.echo(f"group {group}: {counted(len(done), 'cursor is', 'cursors are')} in place")


def _check_errors(planned: Mapping[str, ResetResult]) -> None:
    """Refuse as a whole what would be done by half."""
    for name, row in planned.items():
        if row.error is not UNSET:
            raise UnavailableError(f"partition {name}: {row.error.message}; nothing was moved")


def _bound(planned: Mapping[str, ResetResult]) -> list[str]:
    """Return the connected members."""
    bound = [row for row in planned.values() if row.is_bound is True]
    return sorted({member for row in bound for member in _members(row)})


def _members(row: ResetResult) -> Sequence[str]:
    """Return the members that have a partition, or parts of it."""
    return [given("reset", "member", row.member)] if row.members is UNSET else row.members


def _connected(bound: Sequence[str]) -> str:
    if len(bound) == 1:
        return f"member {bound[0]} is connected"
    return f"{len(bound)} members are connected, such as {bound[0]}"


def _moving(planned: Mapping[str, ResetResult]) -> int:
    return sum(row.cursor != row.to for row in planned.values())


class CursorMove(NamedTuple):
    """Where a cursor is, where it goes, and what the log holds."""

    members: Sequence[str]
    is_bound: bool
    cursor: int
    to: int
    wanted: int
    first: int
    end: int


def _move(row: ResetResult) -> CursorMove:
    """Return what is said of a cursor.

    Raises:
        InternalError: something is missing.
    """
    return CursorMove(
        _members(row),
        given("reset", "is_bound", row.is_bound),
        given("reset", "cursor", row.cursor),
        given("reset", "to", row.to),
        given("reset", "wanted", row.wanted),
        given("reset", "first", row.first),
        given("reset", "end", row.end),
    )


def show(group: str, planned: Mapping[str, ResetResult], *, is_time: bool) -> None:
    """Print a plan for people; `is_time`: the place was given as a time."""
    moves = {name: _move(row) for name, row in planned.items() if row.error is UNSET}
    again = sum(max(0, move.cursor - move.to) for move in moves.values())
    skipped = sum(max(0, move.to - move.cursor) for move in moves.values())
    table = Table()
    add_columns(table, ["partition"])
    add_columns(table, ("from", "to", "first", "end"), is_number=True)
    add_columns(table, [""])
    for name, row in list(planned.items())[:MAX_ROWS]:
        if row.error is not UNSET:
            table.add_row(name, "", "", "", "", row.error.message)
        else:
            move = moves[name]
            numbers = (str(each) for each in (move.cursor, move.to, move.first, move.end))
            table.add_row(name, *numbers, remark(move, is_time=is_time))
    tables.show(table)
    if len(planned) > MAX_ROWS:
        click.echo(f"and {len(planned) - MAX_ROWS} more: --json lists all")
    click.echo(
        f"group {group}: {_moving(planned)} of {len(planned)} cursors move; up to {again:,} "
        f"messages are redelivered, up to {skipped:,} are skipped"
    )


def remark(move: CursorMove, *, is_time: bool = False) -> str:
    """Say what a person should know of one cursor."""
    remarks = []
    if move.first > 0 and move.wanted <= move.first and move.to == move.first:
        remarks.append(f"what was before {move.first} is no longer stored")
    if is_time and move.wanted >= move.end:
        remarks.append("no message was stored at this time or later: to the end")
    elif move.wanted > move.end:
        remarks.append(f"the log ends at {move.end}")
    if move.is_bound:
        alone = len(move.members) == 1
        remarks.append(f"{move.members[0]} is connected" if alone else _connected(move.members))
    return "; ".join(remarks)
