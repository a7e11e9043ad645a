"""`partq reset`: move the cursors of a group to the earliest message, a time or the latest."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.table import Table

from partq.cli import tables
from partq.cli.formatting import full_name, milliseconds
from partq.cli.queues.broker_session import open_session
from partq.cli.queues.connection import (
    Connect,
    QueueAddress,
    connection_options,
    group_option,
    known_group,
)
from partq.cli.standard_input import is_terminal
from partq.cli.tables import add_columns
from partq.errors import ConflictError, SettingsError, UnavailableError

MAX_ROWS = 200
"""Partitions that are shown one by one; with --json all are."""

_HELP = """Move a consumer group's cursors: what lies ahead of them is delivered, again if it was
before.

First it shows what would change; then it asks, or takes --yes. Refused while members of the group
are connected: stop them, or give --force, which takes what they have in hand from them. Messages
that are no longer stored do not come back. When it ends halfway, run it again.

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
@click.option("--partition", "names", multiple=True, help="Only this one; several times for more.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option("--force", is_flag=True, help="Do it although members are connected.")
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
    as_json: bool,
) -> None:
    """Show, ask, move."""
    connection = connect("admin")
    body = {
        **place(where, to_time, to_offset),
        "partitions": [full_name(name) for name in names],
        "is_forced": force,
    }
    group = known_group(connection, group)
    planned = asyncio.run(_ask(connection, group, {**body, "is_dry_run": True}))
    if not as_json:
        show(group, planned, is_time=to_time is not None)
    if dry_run:
        if as_json:
            click.echo(json.dumps({"group": group, "is_done": False, "partitions": planned}))
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
    seen = {name: row["epoch"] for name, row in planned.items() if "epoch" in row}
    told = {**body, "is_dry_run": False, **({"epochs": seen} if seen else {})}
    done = asyncio.run(_ask(connection, group, told))
    _tell(group, done, as_json=as_json)


def _may(question: str, *, as_json: bool) -> bool:
    if as_json or not is_terminal():
        raise SettingsError("reset: nobody can be asked here; give --yes, or --dry-run to look")
    return click.confirm(question)


def place(where: str | None, to_time: str | None, to_offset: int | None) -> dict[str, Any]:
    """Return where the cursors are to go, as the brokers take it.

    Raises:
        SettingsError: not just one place is given, or not a time.
    """
    given = {"to": where, "at_ms": to_time, "offset": to_offset}
    found: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if len(found) != 1:
        raise SettingsError("reset: expected one of --to, --to-time and --to-offset")
    if to_time is not None:
        found["at_ms"] = milliseconds(to_time, "--to-time")
    return found


async def _ask(connection: QueueAddress, group: str, body: Mapping[str, Any]) -> dict[str, Any]:
    async with open_session(connection) as session:
        answer = await session.ask("POST", f"/groups/{group}/reset", body)
    partitions: dict[str, Any] = answer["partitions"]
    return partitions


def _tell(group: str, done: Mapping[str, Any], *, as_json: bool) -> None:
    """Say what was moved.

    Raises:
        UnavailableError: some were not.
    """
    failed = {name: row["error"] for name, row in done.items() if "error" in row}
    if as_json:
        click.echo(json.dumps({"group": group, "is_done": not failed, "partitions": done}))
    if failed:
        name, error = next(iter(failed.items()))
        raise UnavailableError(
            f"{len(failed)} of {len(done)} partitions were not moved, the first is {name}: "
            f"{error['message']}; run it again"
        )
    if not as_json:
        click.echo(f"group {group}: {len(done)} cursors are in place")


def _check_errors(planned: Mapping[str, Any]) -> None:
    """Refuse as a whole what would be done by half."""
    for name, row in planned.items():
        if "error" in row:
            raise UnavailableError(
                f"partition {name}: {row['error']['message']}; nothing was moved"
            )


def _bound(planned: Mapping[str, Any]) -> list[str]:
    """Return the connected members."""
    return sorted({row["member"] for row in planned.values() if row.get("is_bound")})


def _connected(bound: Sequence[str]) -> str:
    if len(bound) == 1:
        return f"member {bound[0]} is connected"
    return f"{len(bound)} members are connected, such as {bound[0]}"


def _moving(planned: Mapping[str, Any]) -> int:
    return sum(row.get("cursor") != row.get("to") for row in planned.values())


def show(group: str, planned: Mapping[str, Any], *, is_time: bool) -> None:
    """Print a plan for people; `is_time`: the place was given as a time."""
    again = sum(max(0, row["cursor"] - row["to"]) for row in planned.values() if "to" in row)
    skipped = sum(max(0, row["to"] - row["cursor"]) for row in planned.values() if "to" in row)
    table = Table()
    add_columns(table, ["partition"])
    add_columns(table, ("from", "to", "first", "end"), is_number=True)
    add_columns(table, [""])
    for name, row in list(planned.items())[:MAX_ROWS]:
        if "error" in row:
            table.add_row(name, "", "", "", "", row["error"]["message"])
        else:
            numbers = (str(row[each]) for each in ("cursor", "to", "first", "end"))
            table.add_row(name, *numbers, remark(row, is_time=is_time))
    tables.show(table)
    if len(planned) > MAX_ROWS:
        click.echo(f"and {len(planned) - MAX_ROWS} more: --json lists all")
    click.echo(
        f"group {group}: {_moving(planned)} of {len(planned)} cursors move; up to {again:,} "
        f"messages are redelivered, up to {skipped:,} are skipped"
    )


def remark(row: Mapping[str, Any], *, is_time: bool = False) -> str:
    """Say what a person should know of one cursor."""
    remarks = []
    if row["first"] > 0 and row["wanted"] <= row["first"] and row["to"] == row["first"]:
        remarks.append(f"what was before {row['first']} is no longer stored")
    if is_time and row["wanted"] >= row["end"]:
        remarks.append("no message was stored at this time or later: to the end")
    elif row["wanted"] > row["end"]:
        remarks.append(f"the log ends at {row['end']}")
    if row["is_bound"]:
        remarks.append(f"{row['member']} is connected")
    return "; ".join(remarks)
