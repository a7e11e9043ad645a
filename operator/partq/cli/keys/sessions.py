"""`partq sessions`: the sessions of a group, the members that have them, their locks and states."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlencode

import click
from rich.table import Table

from partq.cli.formatting import spell_age
from partq.cli.queues.broker_session import ask, find_partitions, open_session
from partq.cli.queues.connection import (
    Connect,
    QueueAddress,
    connection_options,
    group_option,
    known_group,
)
from partq.cli.tables import add_columns, show
from partq.client.transport.layout import QueueLayout
from partq.core.model import PartitionId
from partq.errors import NoSessionError, NotFoundError
from partq.excerpts import counted, excerpt
from partq.path_names import quoted
from partq.wire.calls.answers import UNSET, LayoutAnswer
from partq.wire.calls.replies import plain
from partq.wire.key_states import decode_state
from partq.wire.sessions.session_calls import (
    ClosedSession,
    ReleaseSessionBody,
    SessionRow,
    SessionsPage,
    SessionState,
)

_HELP = """Show the sessions of a consumer group of the type Session, and end a lock.

A session is all messages of one key. The member that has locked it has all its messages.

\b
  partq sessions list
  partq sessions list --locked --json | jq -r .session
  partq sessions show order-17
  partq sessions release order-17
  partq sessions state order-17
"""

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(help=_HELP)
def sessions() -> None:
    """Show sessions, or end a lock."""


@sessions.command(name="list")
@connection_options
@group_option
@click.option("--partition", "names", multiple=True, help="Only this partition; may be repeated.")
@click.option("--locked", "only_locked", is_flag=True, help="Only sessions that a member has.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON per session.")
def list_(
    *,
    connect: Connect,
    group: str | None,
    names: tuple[str, ...],
    only_locked: bool,
    as_json: bool,
) -> None:
    """Show the sessions that have messages or a lock."""
    connection = connect("admin")
    group = known_group(connection, group)
    asyncio.run(_list(connection, group, names, only_locked=only_locked, as_json=as_json))


@sessions.command(name="show")
@connection_options
@group_option
@click.argument("session")
@_json_option
def show_(*, connect: Connect, group: str | None, session: str, as_json: bool) -> None:
    """Show one session: which member has it, for how long, and what is open.

    If it has neither messages nor a lock, the exit status is 1.
    """
    connection = connect("admin")
    group = known_group(connection, group)
    found = asyncio.run(_find(connection, group, session))
    if found is None:
        raise NoSessionError(
            f"session {excerpt(session)!r}: it has neither messages nor a lock in group {group}; "
            "`partq sessions list` shows those that have"
        )
    partition, row = found
    if as_json:
        click.echo(json.dumps(_json_row(partition, row)))
        return
    click.echo(f"session {row.session}, partition {partition}")
    click.echo(_lock_line(row))
    lowest = f", the lowest at offset {row.offset:,}" if row.open_messages else ""
    click.echo(f"{counted(row.open_messages, 'open message')}{lowest}")
    if row.parked_ms:
        click.echo(f"its messages wait for {spell_age(row.parked_ms)} after a failure")
    size = counted(row.state_bytes, "byte", spec=",")
    click.echo("no state" if row.state_bytes < 0 else f"a state of {size}")


@sessions.command()
@connection_options
@group_option
@click.argument("session")
@_json_option
def release(*, connect: Connect, group: str | None, session: str, as_json: bool) -> None:
    """Take a session from the member that has it: others may accept it at once.

    What the member has not acknowledged is redelivered. Its acks are refused from then on. If
    nobody has the session, nothing happens, and the exit status is 1.
    """
    connection = connect("admin")
    group = known_group(connection, group)
    body, path = ReleaseSessionBody(session), f"{_path(group)}/sessions/release"
    answer = asyncio.run(ask(connection, "POST", path, ClosedSession, body))
    if as_json:
        click.echo(json.dumps(plain(answer)))
    elif answer.was_locked:
        click.echo(f"session {session} is released")
    if not answer.was_locked:
        raise NotFoundError(
            f"session {excerpt(session)!r}: no member of group {group} has it; nothing was changed"
        )


@sessions.command()
@connection_options
@group_option
@click.argument("session")
def state(*, connect: Connect, group: str | None, session: str) -> None:
    """Print the state of a session, as it is, without a line break behind it.

    If the session has none, the exit status is 1.
    """
    connection = connect("consume")
    group = known_group(connection, group)
    path = f"{_path(group)}/session-state?{urlencode({'session': session})}"
    found = asyncio.run(ask(connection, "GET", path, SessionState)).state
    if found is None:
        raise NotFoundError(
            f"session {excerpt(session)!r}: it has no state in group {group}; a member leaves one "
            "with an ack"
        )
    click.echo(decode_state(found), nl=False)


async def _list(
    connection: QueueAddress,
    group: str,
    names: Sequence[str],
    *,
    only_locked: bool,
    as_json: bool,
) -> None:
    table = Table()
    add_columns(table, ("partition", "session", "holder"))
    add_columns(table, ("lock ends in", "open", "lowest offset", "state bytes"), is_number=True)
    total = locked = 0
    partitions = await _partitions(connection, names)
    async for partition, row in _rows(connection, group, partitions, only_locked=only_locked):
        if only_locked and row.holder is None:
            continue
        total += 1
        locked += row.holder is not None
        if as_json:
            click.echo(json.dumps(_json_row(partition, row)))
            continue
        table.add_row(
            str(partition),
            row.session,
            row.holder or "-",
            spell_age(row.locked_ms) if row.holder is not None else "-",
            f"{row.open_messages:,}",
            f"{row.offset:,}" if row.offset >= 0 else "-",
            f"{row.state_bytes:,}" if row.state_bytes >= 0 else "-",
        )
    if not as_json:
        if table.row_count:
            show(table)
        click.echo(f"{counted(total, 'session')}, {locked:,} of them locked")


async def _find(
    connection: QueueAddress, group: str, session: str
) -> tuple[PartitionId, SessionRow] | None:
    async for partition, row in _rows(connection, group, await _partitions(connection, ())):
        if row.session == session:
            return partition, row
    return None


async def _partitions(connection: QueueAddress, names: Sequence[str]) -> Sequence[PartitionId]:
    """Return the partitions of these names; none named: all."""
    if names:
        return await find_partitions(connection, names)
    async with open_session(connection) as session:
        return QueueLayout.of(await session.ask("GET", "/layout", LayoutAnswer)).layout.partitions()


async def _rows(
    connection: QueueAddress,
    group: str,
    partitions: Sequence[PartitionId],
    *,
    only_locked: bool = False,
) -> AsyncIterator[tuple[PartitionId, SessionRow]]:
    async with open_session(connection) as session:
        for partition in partitions:
            after = ""
            while True:
                asked = {"partition": str(partition), "after": after}
                query = urlencode(asked | ({"is_locked": "true"} if only_locked else {}))
                page = await session.ask("GET", f"{_path(group)}/sessions?{query}", SessionsPage)
                for row in page.sessions:
                    yield partition, row
                if page.next is UNSET:
                    break
                after = page.next


def _json_row(partition: PartitionId, row: SessionRow) -> dict[str, object]:
    """Return everything of a row, also what is as usual."""
    return {
        "session": row.session,
        "partition": str(partition),
        "holder": row.holder,
        "lock": row.lock,
        "locked_ms": row.locked_ms,
        "is_connected": row.is_connected,
        "open_messages": row.open_messages,
        "offset": row.offset,
        "parked_ms": row.parked_ms,
        "state_bytes": row.state_bytes,
    }


def _lock_line(row: SessionRow) -> str:
    if row.holder is None:
        return "no member has it"
    connected = "" if row.is_connected else ", which is not connected"
    return (
        f"{row.holder}{connected} has it, under lock {row.lock}, for {spell_age(row.locked_ms)} "
        "unless it is renewed"
    )


def _path(group: str) -> str:
    return f"/groups/{quoted(group, '--group')}"
