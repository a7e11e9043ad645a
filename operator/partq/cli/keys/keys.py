"""`partq keys`: the keys of a group that wait after a nack or an ack timeout; and their release."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence

import click
from rich.table import Table

from partq.cli.formatting import full_name, spell_age
from partq.cli.queues.broker_session import ask, unfinished
from partq.cli.queues.connection import (
    Connect,
    connection_options,
    group_option,
    known_group,
)
from partq.cli.tables import add_columns, show
from partq.core.model import SLOT_COUNT
from partq.errors import SettingsError
from partq.excerpts import counted
from partq.path_names import quoted
from partq.wire.calls.answers import UNSET
from partq.wire.calls.parked_keys import (
    ParkedKeysBody,
    ParkedKeysResult,
    ParkedKeysResults,
    ReleasedKeyResult,
    ReleasedKeyResults,
    ReleaseKeyBody,
)
from partq.wire.calls.replies import plain

_HELP = """Show the keys of a consumer group that wait, and release one.

In a group whose nack.order is Key, a message that was given back, or took longer than its ack
timeout, holds up the messages of its key until its delay is over. Other keys continue. Keys are
told apart by their slot, one of 65,536: the keys of a slot wait together. Where the group's
ack.onExhausted is Block or Quarantine, the key of a message that failed too often stays blocked, or
in quarantine, until it is released.

\b
  partq keys list
  partq keys list --json | jq '.partitions[].keys[]? | select(.redeliveries > 3)'
  partq keys release --key order-17
  partq keys release --all --partition 3
"""

_partition_option = click.option(
    "--partition", "names", multiple=True, help="Only this partition; may be repeated."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(help=_HELP)
def keys() -> None:
    """Show keys that wait, or release one."""


@keys.command(name="list")
@connection_options
@group_option
@_partition_option
@_json_option
def list_(*, connect: Connect, group: str | None, names: tuple[str, ...], as_json: bool) -> None:
    """Show the keys that wait: slot, lowest offset, until when, and how often it failed."""
    connection = connect("admin")
    group = known_group(connection, group)
    body = ParkedKeysBody(_partitions(names))
    path = f"{_path(group)}/keys"
    answer = asyncio.run(ask(connection, "GET", path, ParkedKeysResults, body))
    rows = answer.partitions
    if as_json:
        click.echo(json.dumps(plain(answer)))
    else:
        _show(rows)
    _check(rows)


@keys.command()
@connection_options
@group_option
@_partition_option
@click.option("--slot", type=click.IntRange(0, SLOT_COUNT - 1), help="The slot to release.")
@click.option("--key", help="A key of the slot to release.")
@click.option("--all", "is_all", is_flag=True, help="Release all keys that wait.")
@_json_option
def release(
    *,
    connect: Connect,
    group: str | None,
    names: tuple[str, ...],
    slot: int | None,
    key: str | None,
    is_all: bool,
    as_json: bool,
) -> None:
    """Let a key wait no longer, or all: their messages are redelivered now.

    All keys of its slot are released. A key that does not wait is left as it is. A key that was
    blocked or in quarantine may fail as often again; what became a dead letter stays one.
    """
    given = [slot is not None, key is not None, is_all].count(True)
    if given != 1:
        got = f"{given} of them" if given else "none of them"
        raise SettingsError(f"--slot, --key, --all: got {got}, expected one of them")
    connection = connect("admin")
    group = known_group(connection, group)
    body = ReleaseKeyBody(slot, key, is_all, _partitions(names))
    path = f"{_path(group)}/keys/release"
    answer = asyncio.run(ask(connection, "POST", path, ReleasedKeyResults, body))
    rows = answer.partitions
    if as_json:
        click.echo(json.dumps(plain(answer)))
    else:
        released = [name for name, row in rows.items() if row.is_released is True]
        for name in released:
            count = rows[name].released or 0
            what = f"{counted(count, 'slot')} released" if is_all else "released"
            click.echo(f"{what} in partition {name}")
        if not released:
            place = f" in partition {', '.join(rows)}" if names else ""
            what = "no key waits" if is_all else "the key does not wait"
            click.echo(f"nothing was released: {what}{place}")
    _check(rows)


def _path(group: str) -> str:
    return f"/groups/{quoted(group, '--group')}"


def _partitions(names: Sequence[str]) -> list[str]:
    return [full_name(name) for name in names]


def _show(rows: Mapping[str, ParkedKeysResult]) -> None:
    table = Table()
    add_columns(table, ("partition",))
    add_columns(table, ("slot", "lowest offset", "waits for", "failures"), is_number=True)
    for name, row in rows.items():
        for each in row.keys or ():
            until = spell_age(each.due_ms) if each.state == "waits" else f"({each.state})"
            offset = f"{each.offset:,}" if each.offset >= 0 else "-"
            numbers = (f"{each.slot}", offset, until)
            table.add_row(name, *numbers, f"{each.redeliveries:,}")
    if table.row_count:
        show(table)
    listed, more = table.row_count, sum(row.more or 0 for row in rows.values())
    part = f"; {counted(listed, 'of them is', 'of them are')} listed" if more else ""
    click.echo(f"{counted(listed + more, 'slot waits', 'slots wait')}{part}")
    for line in _still_lines(rows):
        click.echo(line)


def _still_lines(rows: Mapping[str, ParkedKeysResult]) -> Iterator[str]:
    for name, row in rows.items():
        if row.stands_still:
            yield f"partition {name} is sent nothing new: {row.stands_still}"


def _check(rows: Mapping[str, ParkedKeysResult] | Mapping[str, ReleasedKeyResult]) -> None:
    failed = [(name, row.error) for name, row in rows.items() if row.error is not UNSET]
    if failed:
        raise unfinished(failed, len(rows))
