"""`partq groups`: the consumer groups of a queue, one line each; and how one is removed."""

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

import click
from click.core import ParameterSource
from rich.table import Table

from partq.cli.formatting import spell_age
from partq.cli.queues.broker_session import ask
from partq.cli.queues.connection import Connect, connection_options
from partq.cli.queues.group_removal import remove
from partq.cli.queues.problems import (
    blocked_lines,
    blocked_partitions,
    named,
    parked_lines,
    parked_partitions,
    retired_names,
    unread_partitions,
)
from partq.cli.tables import add_columns, show
from partq.errors import SettingsError
from partq.wire.calls.status import GroupStatus, StatusAnswer

_HELP = """List the consumer groups of a queue: type, state, members, lag.

\b
  partq groups
  partq groups --json | jq '.[] | select(.lag > 1000 or .uncounted != []) | .group'
  partq groups remove workers
"""


@click.group(help=_HELP, invoke_without_command=True)
@connection_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def groups(*, connect: Connect, as_json: bool) -> None:
    """Ask any broker, and show what it says of each group."""
    context = click.get_current_context()
    if context.invoked_subcommand is not None:
        _check_place(context)
        return
    answer = asyncio.run(ask(connect("admin"), "GET", "/status", StatusAnswer))
    uncounted = unread_partitions(answer)
    retired = retired_names(answer)
    rows = [row(name, group, uncounted, retired) for name, group in answer.groups.items()]
    if as_json:
        click.echo(json.dumps([asdict(each) for each in rows]))
        return
    table = Table()
    add_columns(table, ("group", "type", "state"))
    numbered = ("active", "standby", "lost", "ready", "lag", "oldest")
    add_columns(table, numbered, is_number=True)
    for each in rows:
        numbers = (f"{count:,}" for count in (each.active, each.standby, each.lost))
        ready = f"{each.ready}/{each.partitions}"
        age = spell_age(each.lag_ms) if each.lag else ""
        table.add_row(each.group, each.type, each.state, *numbers, ready, f"{each.lag:,}", age)
    show(table)
    if uncounted:
        click.echo(
            f"not counted: partition {named(uncounted)}: Redis does not answer for it, "
            "so that a lag may be larger"
        )
    for name, group in answer.groups.items():
        for line in [*blocked_lines(group), *parked_lines(group)]:
            click.echo(f"group {name}: {line}")


def _check_place(context: click.Context) -> None:
    """Refuse options before the name of a command, which would take no notice of them."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            command = f"partq groups {context.invoked_subcommand}"
            raise SettingsError(
                f"{parameter.opts[0]}: got it before `{context.invoked_subcommand}`, expected it "
                f"behind: {command} {parameter.opts[0]} ..."
            )


groups.add_command(remove)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group in one line, in the names and the order of `--json`."""

    group: str
    type: str
    state: str
    active: int
    standby: int
    lost: int
    partitions: int
    """Those that take messages."""
    ready: int
    lag: int
    lag_ms: int
    dead_letters: int
    blocked: Mapping[str, str]
    parked: Mapping[str, str]
    uncounted: Sequence[str]
    """The queue's partitions that cannot be read: no number has what lies there."""


def row(
    name: str,
    group: GroupStatus,
    uncounted: Sequence[str] = (),
    retired: Collection[str] = (),
) -> GroupRow:
    """Sum a group up.

    Args:
        name: of the group.
        group: as the status has it.
        uncounted: the partitions that the status does not have.
        retired: those without slots, which count for the lag alone.
    """
    members = Counter(member.state for member in group.members)
    states = Counter(partition.state for partition in group.partitions.values())
    current = [each.state for at, each in group.partitions.items() if at not in retired]
    return GroupRow(
        group=name,
        type=group.type,
        state=_state(
            members,
            states,
            has_handoffs=bool(group.handoffs),
            is_blocked=bool(blocked_partitions(group)),
        ),
        active=members["Active"],
        standby=members["Standby"],
        lost=members["Lost"],
        partitions=len(current),
        ready=current.count("Ready"),
        lag=group.lag,
        lag_ms=group.lag_ms,
        dead_letters=sum(partition.dead_letters for partition in group.partitions.values()),
        blocked=blocked_partitions(group),
        parked=parked_partitions(group),
        uncounted=uncounted,
    )


def _state(
    members: Counter[str], states: Counter[str], *, has_handoffs: bool, is_blocked: bool
) -> str:
    """Return the phase of a group, as its resource's status has it on Kubernetes.

    `Blocked` comes first: there it is a condition.
    """
    if is_blocked:
        return "Blocked"
    if has_handoffs or states["Paused"]:
        return "Rebalancing"
    if not members["Active"] and not members["Standby"] and not members["Lost"]:
        return "Empty"
    return "Waiting" if states["Unbound"] or states["Unassigned"] else "Stable"
