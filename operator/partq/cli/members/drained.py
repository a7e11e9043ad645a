"""`partq drained`: hand over what a pod's members hold, and wait until it is done."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

import click

from partq.cli.quantity import Quantity
from partq.cli.queues.broker_session import open_session
from partq.cli.queues.connection import (
    Connect,
    QueueAddress,
    connection_options,
    group_option,
    known_group,
)
from partq.client.consume.draining import POLL_S, DrainStatus, HeldPartitions, read_status
from partq.errors import NotFoundError, SettingsError, UnavailableError
from partq.excerpts import counted

NOT_DRAINED = 3
"""Exit status when something is held still, or nobody can say."""
DEFAULT_WAIT_S = 25.0
MAX_WAIT_S = 3_600.0
MAX_MEMBERS = 100

_HELP = """Say whether members of a group hold partitions; with --wait, hand them over first.

For a preStop hook of a consumer in any language: the hook runs while the consumer still works,
and SIGTERM comes when it has ended. Call it from the consumer's own pod. Nothing has to be known to
the operator before: the brokers are told that the members leave.

\b
Exit status: 0 nothing is held; 3 something is, or not every partition could be asked for;
1 the brokers refuse, or do not know the member; 2 wrong usage. With --wait a member that nobody
knows is a warning and 0: it may have left before.

\b
  partq drained --wait                     at most 25 s
  partq drained --wait 50 --group workers --member "$POD_UID/main"
  partq drained --json                     only ask
"""


@click.command(help=_HELP)
@connection_options
@group_option
@click.option(
    "--member",
    "members",
    multiple=True,
    envvar="PARTQ_MEMBER",
    show_envvar=True,
    help="Name in the group; may be given several times (in the environment: with blanks).",
)
@click.option(
    "--wait",
    "wait_s",
    is_flag=False,
    flag_value=DEFAULT_WAIT_S,
    type=Quantity(1, MAX_WAIT_S),
    metavar="[SECONDS]",
    help=f"Hand over and wait, for {DEFAULT_WAIT_S:.0f} s or as long as said.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def drained(
    *,
    connect: Connect,
    group: str | None,
    members: tuple[str, ...],
    wait_s: float | None,
    as_json: bool,
) -> None:
    """Ask, and exit with what the brokers say."""
    if not 1 <= len(members) <= MAX_MEMBERS:
        raise SettingsError(
            f"--member (PARTQ_MEMBER): got {len(members)} names, expected 1 to {MAX_MEMBERS}; "
            "give the name that the consumer binds with"
        )
    connection = connect("consume")
    names = tuple(dict.fromkeys(members))
    name = known_group(connection, group)
    status = asyncio.run(_drain(connection, name, names, wait_s))
    if status.strangers:
        _tell_strangers(status.strangers, name, is_hook=wait_s is not None)
    click.echo(json.dumps(_as_json(status)) if as_json else _as_text(status))
    if not status.is_drained:
        sys.exit(NOT_DRAINED)


def _tell_strangers(names: Sequence[str], group: str, *, is_hook: bool) -> None:
    """Name the members that are unknown: an error when it was asked, a warning in a hook.

    A member that has left is forgotten some time later, and its hook has nothing to do.

    Raises:
        NotFoundError: it was only asked.
    """
    sentence = (
        f"member {', '.join(names)}: no broker knows it in group {group}, expected the name that "
        "the consumer binds with; it may have left"
    )
    if not is_hook:
        raise NotFoundError(f"{sentence}, or --member (PARTQ_MEMBER) is wrong")
    click.echo(f"partq: {sentence}: nothing is to be handed over", err=True)


async def _drain(
    connection: QueueAddress, group: str, members: tuple[str, ...], wait_s: float | None
) -> DrainStatus:
    """Ask until nothing is held or the time is over; without a time, once and for the answer only.

    Raises:
        PartqError: as `read_status`; that no broker answers is waited out.
    """
    nobody = HeldPartitions(partitions={}, is_bound=False)
    status = DrainStatus(members=dict.fromkeys(members, nobody), unknown=["all"])
    try:
        async with asyncio.timeout(wait_s), open_session(connection) as session:
            while True:
                try:
                    status = await read_status(session, group, members, leaves=wait_s is not None)
                except UnavailableError as error:
                    if wait_s is None:
                        raise
                    status = DrainStatus(
                        members=status.members, unknown=["all"], troubles=[error.message]
                    )
                if status.is_drained or wait_s is None:
                    return status
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        return status


def _as_json(status: DrainStatus) -> dict[str, object]:
    return {
        "drained": status.is_drained,
        "members": {name: asdict(each) for name, each in status.members.items()},
        "unknown": list(status.unknown),
        "troubles": list(status.troubles),
    }


def _as_text(status: DrainStatus) -> str:
    lines = [_line(name, each) for name, each in status.members.items()]
    if status.unknown:
        lines.append(f"not known who has: {', '.join(status.unknown)}")
    return "\n".join([*lines, *status.troubles])


def _line(name: str, held: HeldPartitions) -> str:
    connected = "connected" if held.is_bound else "not connected"
    if not held.partitions:
        return f"{name}: {connected}, holds no partition"
    partitions = ", ".join(held.partitions)
    in_flight = sum(held.partitions.values())
    unacked = f"{counted(in_flight, 'message')} not acknowledged"
    return f"{name}: {connected}, holds {partitions} with {unacked}"
