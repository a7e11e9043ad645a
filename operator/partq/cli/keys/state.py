"""`partq state`: what the members of a group have left of its keys, with their acks."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlencode

import click
from rich.table import Table

from partq.cli.queues.broker_session import find_partitions, open_session
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
from partq.errors import NotFoundError
from partq.excerpts import counted, excerpt
from partq.path_names import quoted
from partq.wire.calls.answers import UNSET, LayoutAnswer
from partq.wire.key_states import KeyState, KeyStatesPage, StoredKeyState, decode_state

_HELP = """Show the states of keys: what a consumer group has left of each key with its acks.


  partq state get order-17
  partq state list
  partq state list --json | jq -r 'select(.bytes > 1000) | .key'
"""


@click.group(help=_HELP)
def state() -> None:
    """Show states of keys."""


@state.command()
@connection_options
@group_option
@click.argument("key")
def get(*, connect: Connect, group: str | None, key: str) -> None:
    """Print the state of a key, as it is, without a line break behind it.

    If the key has none, the exit status is 1.
    """
    connection = connect("consume")
    group = known_group(connection, group)
    found = asyncio.run(_get(connection, group, key))
    if found is None:
        raise NotFoundError(f"key {excerpt(key)!r}: it has no state in group {group}")
    click.echo(found, nl=False)


@state.command(name="list")
@connection_options
@group_option
@click.option("--partition", "names", multiple=True, help="Only this partition; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON per key.")
def list_(*, connect: Connect, group: str | None, names: tuple[str, ...], as_json: bool) -> None:
    """Show the keys that have a state, and how large it is."""
    connection = connect("admin")
    group = known_group(connection, group)
    asyncio.run(_list(connection, group, names, as_json=as_json))


async def _get(connection: QueueAddress, group: str, key: str) -> bytes | None:
    async with open_session(connection) as session:
        path = f"{_path(group)}/state?{urlencode({'key': key})}"
        found = await session.ask("GET", path, KeyState)
    return None if found.state is None else decode_state(found.state)


async def _list(
    connection: QueueAddress, group: str, names: Sequence[str], *, as_json: bool
) -> None:
    table = Table()
    add_columns(table, ("partition", "key"))
    add_columns(table, ("bytes",), is_number=True)
    count = 0
    async for partition, each in _states(connection, group, names):
        count += 1
        state = decode_state(each.state)
        if as_json:
            row = {"partition": str(partition), "key": each.key, "bytes": len(state)}
            click.echo(json.dumps({**row, "state": each.state}))
        else:
            table.add_row(str(partition), each.key, f"{len(state):,}")
    if not as_json:
        if table.row_count:
            show(table)
        click.echo(f"{counted(count, 'key has a state', 'keys have a state')}")


async def _states(
    connection: QueueAddress, group: str, names: Sequence[str]
) -> AsyncIterator[tuple[PartitionId, StoredKeyState]]:
    """Iterate over the states of partitions; none named: of all."""
    partitions: Sequence[PartitionId] = await find_partitions(connection, names)
    async with open_session(connection) as session:
        if not partitions:
            layout = QueueLayout.of(await session.ask("GET", "/layout", LayoutAnswer)).layout
            partitions = layout.partitions()
        for partition in partitions:
            after, seen = "0", set[str]()
            while True:
                query = urlencode({"partition": str(partition), "after": after})
                page = await session.ask("GET", f"{_path(group)}/states?{query}", KeyStatesPage)
                for each in page.states:
                    if each.key not in seen:
                        seen.add(each.key)
                        yield partition, each
                if page.next is UNSET:
                    break
                after = page.next


def _path(group: str) -> str:
    return f"/groups/{quoted(group, '--group')}"
