"""`partq drained`: hand over what a pod's members hold, and wait until it is done."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from partq.cli.quantity import Quantity
from partq.cli.queues.connection import (
    Connect,
    QueueAddress,
    connection_options,
    group_option,
    known_group,
)
from partq.client.consume.draining import POLL_S, DrainStatus, MemberHoldings, read_status
from partq.client.transport.session import Session
from partq.errors import NotFoundError, SettingsError, UnavailableError

NOT_DRAINED = 3
"""Exit status when something is held still, or nobody can say."""
DEFAULT_WAIT_S = 25.0
MAX_WAIT_S = 3_600.0
MAX_MEMBERS = 100

_HELP = """Say whether members of a group hold partitions; with --wait, hand them over first.

For a preStop hook of a consumer in any language: the hook runs while the consumer goes on working,
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
    picture = asyncio.run(_drain(connection, name, names, wait_s))
    if picture.strangers:
        _tell_strangers(picture.strangers, name, is_hook=wait_s is not None)
    click.echo(json.dumps(_as_json(picture)) if as_json else _as_text(picture))
    if not picture.is_drained:
        sys.exit(NOT_DRAINED)


def _tell_strangers(names: Sequence[str], group: str, *, is_hook: bool) -> None:
    """Say whom nobody knows: an error when it was asked, a warning in a hook.

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
    nobody = MemberHoldings(partitions={}, is_bound=False)
    picture = DrainStatus(members=dict.fromkeys(members, nobody), unknown=["all"])
    try:
        async with (
            asyncio.timeout(wait_s),
            Session(
                connection.url,
                queue=connection.queue,
                token=connection.token,
                namespace=connection.namespace,
                ca_file=connection.ca_file,
            ) as session,
        ):
            while True:
                try:
                    picture = await read_status(session, group, members, leaves=wait_s is not None)
                except UnavailableError as error:
                    if wait_s is None:
                        raise
                    picture = DrainStatus(
                        members=picture.members, unknown=["all"], troubles=[error.message]
                    )
                if picture.is_drained or wait_s is None:
                    return picture
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        return picture


def _as_json(picture: DrainStatus) -> dict[str, Any]:
    return {
        "drained": picture.is_drained,
        "members": {name: asdict(each) for name, each in picture.members.items()},
        "unknown": list(picture.unknown),
        "troubles": list(picture.troubles),
    }


def _as_text(picture: DrainStatus) -> str:
    lines = [_line(name, each) for name, each in picture.members.items()]
    if picture.unknown:
        lines.append(f"not known who has: {', '.join(picture.unknown)}")
    return "\n".join([*lines, *picture.troubles])


def _line(name: str, holding: MemberHoldings) -> str:
    connected = "connected" if holding.is_bound else "not connected"
    if not holding.partitions:
        return f"{name}: {connected}, holds no partition"
    held = ", ".join(holding.partitions)
    in_flight = sum(holding.partitions.values())
    return f"{name}: {connected}, holds {held} with {in_flight} messages not acknowledged"
