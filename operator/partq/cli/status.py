"""`partq status`: partitions, members, lag and handoffs of a queue."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from partq.cli.asking import ask, open_session
from partq.cli.connection import Connect, Connection, connection_options
from partq.errors import UnavailableError

WATCH_EVERY_S = 1.0
MAX_ROWS = 200
"""Partitions that are shown one by one; with more of them the groups are summed up only."""

_HELP = """Show what a queue does: partitions, members, lag, handoffs.

\b
  partq status
  partq status --watch
  partq status --json | jq '.groups.workers.partitions | map(.lag) | add'
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
        asyncio.run(_watch(connection, as_json=as_json))
        return
    answer = asyncio.run(_ask_once(connection))
    if as_json:
        click.echo(json.dumps(answer))
    else:
        Console().print(render(answer))


async def _ask_once(connection: Connection) -> Any:
    async with open_session(connection) as session:
        return await ask(session, "/status")


async def _watch(connection: Connection, *, as_json: bool) -> None:
    async with open_session(connection) as session:
        with Live(console=Console(), auto_refresh=False, screen=not as_json) as live:
            while True:
                try:
                    answer = await ask(session, "/status")
                except UnavailableError as error:
                    # Brokers come back: watching goes on.
                    answer = {"error": {"code": error.code, "message": error.message}}
                if as_json:
                    click.echo(json.dumps(answer))
                elif "error" in answer:
                    live.update(Text(answer["error"]["message"], style="red"), refresh=True)
                else:
                    live.update(render(answer), refresh=True)
                await asyncio.sleep(WATCH_EVERY_S)


def render(answer: Mapping[str, Any]) -> RenderableType:
    """Return the tables of one answer."""
    partitions: Mapping[str, Any] = answer["partitions"]
    brokers = Counter(record["broker"] or "none" for record in partitions.values())
    stored = sum(record["bytes"] for record in partitions.values())
    spread = ", ".join(f"{name}: {count}" for name, count in sorted(brokers.items()))
    parts: list[RenderableType] = [
        Text(
            f"{answer['namespace']}/{answer['queue']}: {len(partitions)} partitions, "
            f"{stored:,} bytes stored; by broker {spread}"
        )
    ]
    for name, group in answer["groups"].items():
        parts += [Text(), _summary(name, group), _members(group)]
        if group["handoffs"]:
            parts.append(_handoffs(group["handoffs"]))
        if len(partitions) <= MAX_ROWS:
            parts.append(_partitions(partitions, group["partitions"]))
    return Group(*parts)


def _summary(name: str, group: Mapping[str, Any]) -> Text:
    rows = group["partitions"].values()
    states = Counter(row["state"] for row in rows)
    lag = sum(row["lag"] for row in rows)
    by_state = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    waiting = len(group["waiting_moves"])
    held = f"; {waiting} moves wait for the budget" if waiting else ""
    return Text(f"group {name}: lag {lag:,}; {by_state}{held}")


def _members(group: Mapping[str, Any]) -> Table:
    table = Table()
    table.add_column("member")
    table.add_column("state")
    table.add_column("partitions", justify="right")
    for member in group["members"]:
        table.add_row(member["member"], member["state"], str(member["partitions"]))
    return table


def _handoffs(handoffs: list[Mapping[str, Any]]) -> Table:
    table = Table(title="handoffs", title_justify="left")
    for column in ("partition", "from", "to", "phase"):
        table.add_column(column)
    for each in handoffs:
        table.add_row(each["partition"], each["source"], each["target"], each["phase"])
    return table


def _partitions(records: Mapping[str, Any], rows: Mapping[str, Any]) -> Table:
    table = Table()
    for column in ("partition", "broker", "member", "state"):
        table.add_column(column)
    for column in ("cursor", "end", "lag"):
        table.add_column(column, justify="right")
    for partition, row in rows.items():
        record = records[partition]
        table.add_row(
            *(partition, record["broker"], row["member"], row["state"]),
            *(str(number) for number in (row["cursor"], record["end"], row["lag"])),
        )
    return table
