"""`partq partitions`: all partitions of a queue for a group, and which may not be registered."""

import asyncio
import json

import click
from click.core import ParameterSource
from rich.table import Table

from partq.cli.queues.broker_session import ask
from partq.cli.queues.connection import Connect, connection_options, group_option, known_group
from partq.cli.tables import add_columns, show
from partq.client.arguments import check_path_argument
from partq.core.group.group_type import OPEN_RULES, OPEN_TYPES, GroupType
from partq.core.model import PartitionId
from partq.errors import SettingsError
from partq.excerpts import excerpt
from partq.path_names import quoted
from partq.wire.calls.answers import UNSET
from partq.wire.calls.registration import ConfiguredPartitions, Subscribable, SubscribableBody

_HELP = """Show all configured partitions for a group: holder, node, lag, and what is marked.

A partition that is not subscribable is not registered by members of a group with
`assignment: Client`; a member that holds one keeps it.

\b
  partq partitions --group workers
  partq partitions mark 1.3 --reason "disk is being replaced"
  partq partitions unmark 1.3
"""
EVERYONE = "any member"
"""In the place of a member: every connected one may have messages of the partition."""
_MARK_HELP = """Let no member register PARTITION, such as 1.3, or the partitions of a --broker.

It holds for every group with `assignment: Client`, until `partq partitions unmark`. A member that
holds a partition keeps it. A repeat changes the reason.
"""
_UNMARK_HELP = "Let members register PARTITION, or the partitions of a --broker, again."


@click.group(help=_HELP, invoke_without_command=True)
@connection_options
@group_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def partitions(*, connect: Connect, group: str | None, as_json: bool) -> None:
    """Ask any broker, and show what it says of each partition."""
    context = click.get_current_context()
    if context.invoked_subcommand is not None:
        for parameter in context.command.params:
            source = context.get_parameter_source(parameter.name or "")
            if source is ParameterSource.COMMANDLINE:
                name = context.invoked_subcommand
                raise SettingsError(
                    f"{parameter.opts[0]}: got it before `{name}`, expected it behind: "
                    f"partq partitions {name} ..."
                )
        return
    connection = connect("admin")
    name = known_group(connection, group)
    path = f"/groups/{quoted(name, 'group')}/partitions"
    if as_json:
        click.echo(json.dumps(asyncio.run(ask(connection, "GET", path, object))))
        return
    answer = asyncio.run(ask(connection, "GET", path, ConfiguredPartitions))
    is_chosen = answer.assignment == "Client"
    is_open = answer.type in OPEN_TYPES
    table = Table(title=f"group {name}: {_how(answer)}", title_justify="left")
    add_columns(table, ("partition", "broker", "member"))
    add_columns(table, ("node",), is_number=True)
    add_columns(table, ("state",))
    add_columns(table, ("cursor", "end", "lag"), is_number=True)
    if is_chosen:
        add_columns(table, ("not subscribable",))
    for partition, each in answer.partitions.items():
        table.add_row(
            *(partition, each.broker),
            EVERYONE if is_open and each.state == "Ready" else each.member,
            "" if each.node_id is UNSET else str(each.node_id),
            each.state,
            *(f"{number:,}" for number in (each.cursor, each.end, each.lag)),
            *([each.reason] if is_chosen else []),
        )
    show(table)


def _how(answer: ConfiguredPartitions) -> str:
    """Say how the partitions of a group come to its members."""
    if answer.type in OPEN_TYPES:
        return f"type {answer.type}: {OPEN_RULES[GroupType(answer.type)]}"
    told = "" if answer.assignment == "Client" else " (the coordinator assigns them)"
    return f"assignment {answer.assignment}{told}"


def _marked(partition: str | None, broker: str | None) -> tuple[str, str]:
    """Return the path of what is marked, and its name."""
    if (partition is None) == (broker is None):
        got = "both" if partition is not None else "neither"
        raise SettingsError(f"PARTITION, --broker: got {got}, expected one of them")
    if broker is not None:
        check_path_argument("--broker", broker)
        return f"/brokers/{quoted(broker, '--broker')}/subscribable", f"broker {broker}"
    try:
        found = PartitionId.parse(partition or "")
    except ValueError as error:
        raise SettingsError(str(error)) from None
    return f"/partitions/{found}/subscribable", f"partition {found}"


@partitions.command(help=_MARK_HELP)
@connection_options
@click.argument("partition", required=False)
@click.option("--broker", help="Name of a broker, in the place of a partition.")
@click.option("--reason", default="", help="Told to members that are refused; 200 characters.")
def mark(*, connect: Connect, partition: str | None, broker: str | None, reason: str) -> None:
    """Mark a partition or a broker."""
    if len(reason) > 200:
        raise SettingsError(f"--reason: got {excerpt(reason)!r}, expected 200 characters at most")
    path, name = _marked(partition, broker)
    body = SubscribableBody(is_subscribable=False, reason=reason)
    answer = asyncio.run(ask(connect("admin"), "PUT", path, Subscribable, body))
    click.echo(f"{name} is not subscribable: {answer.reason}")


@partitions.command(help=_UNMARK_HELP)
@connection_options
@click.argument("partition", required=False)
@click.option("--broker", help="Name of a broker, in the place of a partition.")
def unmark(*, connect: Connect, partition: str | None, broker: str | None) -> None:
    """Take a mark back."""
    path, name = _marked(partition, broker)
    body = SubscribableBody(is_subscribable=True)
    asyncio.run(ask(connect("admin"), "PUT", path, Subscribable, body))
    click.echo(f"{name} is subscribable")
