"""`partq groups remove`: end a consumer group of a queue that runs outside Kubernetes."""

import asyncio
import json

import click

from partq.cli.quantity import Quantity
from partq.cli.queues.broker_session import open_session
from partq.cli.queues.connection import Connect, QueueAddress, connection_options
from partq.cli.queues.problems import letters_waiting
from partq.cli.standard_input import is_terminal
from partq.client.transport.session import Session
from partq.errors import SettingsError, UnavailableError, UnknownGroupError
from partq.excerpts import counted
from partq.path_names import quoted
from partq.wire.calls.answers import UNSET
from partq.wire.calls.group.removal import RemoveAnswer, RemoveBody

LOOK_EVERY_S = 0.2

_HELP = """Remove a consumer group for good, with its place in every partition.

Messages that only it had not acknowledged may then be freed, and its dead letters that wait to be
stored are dropped. A queue whose last group is removed keeps what it stores.

First it shows what would go; then it asks, or takes --yes. Refused while members of the group are
connected: stop them. On Kubernetes delete the ConsumerGroup instead. For `partq dev up`, take it
out of the FILE as well: the next start makes the groups of FILE that are missing. When it ends
halfway, run it again.

\b
  partq groups remove workers --dry-run
  partq groups remove workers --yes
"""


@click.command(help=_HELP)
@connection_options
@click.argument("group")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option(
    "--wait",
    "wait_s",
    type=Quantity(0, 86_400),
    default=30.0,
    show_default=True,
    help="Seconds to wait until the coordinator and all brokers have dropped it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; removes only with --yes.")
def remove(
    *, connect: Connect, group: str, dry_run: bool, yes: bool, wait_s: float, as_json: bool
) -> None:
    """Show, ask, remove, wait."""
    connection = connect("admin")
    planned = asyncio.run(_plan(connection, group))
    if not as_json:
        click.echo(_describe(connection, group, planned))
    if dry_run:
        if as_json:
            _print(group, planned, is_removed=planned.is_removed)
        return
    # Asked outside the event loop, where Ctrl-C ends the question.
    if not yes and not _may(f"remove group {group} for good?", as_json=as_json):
        return
    asyncio.run(_remove(connection, group, wait_s, planned))
    if as_json:
        _print(group, planned, is_removed=True)
    else:
        click.echo(f"group {group} is removed")
    if not planned.groups:
        click.echo(
            f"queue {connection.queue} has no group now: it keeps what is stored, until "
            "messageTTLSeconds or `partq dead-letters drop` frees it",
            err=True,
        )
    if connection.is_local:
        click.echo(
            f"if the FILE of `partq dev up` has the ConsumerGroup {group}, take it out: the next "
            "start would make the group again, at the place where its spec lets it begin",
            err=True,
        )


def _may(question: str, *, as_json: bool) -> bool:
    if as_json or not is_terminal():
        raise SettingsError("groups remove: cannot ask: no terminal; give --yes, or --dry-run")
    return click.confirm(question)


def _describe(connection: QueueAddress, group: str, planned: RemoveAnswer) -> str:
    letters = planned.dead_letters
    waiting = f"; {letters_waiting(letters)}, to be dropped" if letters else ""
    return (
        f"group {group} of {connection.queue}: in {counted(planned.partitions, 'partition')}, "
        f"{counted(planned.lag, 'message', spec=',')} not acknowledged{waiting}"
    )


def _print(group: str, planned: RemoveAnswer, *, is_removed: bool) -> None:
    told = {
        "group": group,
        "is_removed": is_removed,
        "partitions": planned.partitions,
        "lag": planned.lag,
        "dead_letters": planned.dead_letters,
    }
    click.echo(json.dumps(told))


async def _plan(connection: QueueAddress, group: str) -> RemoveAnswer:
    async with open_session(connection) as session:
        return await _ask(session, group, is_dry_run=True)


async def _ask(
    session: Session, group: str, *, is_dry_run: bool, planned: RemoveAnswer | None = None
) -> RemoveAnswer:
    path = f"/groups/{quoted(group, 'group')}/remove"
    born = UNSET if planned is None else planned.born
    body = RemoveBody(is_dry_run=is_dry_run, born=born)
    return await session.ask("POST", path, RemoveAnswer, body)


async def _remove(
    connection: QueueAddress, group: str, wait_s: float, planned: RemoveAnswer
) -> None:
    """Remove the group that was shown, and wait until nothing is left of it.

    One that was created again under its name meanwhile stays.

    Raises:
        UnavailableError: something is left, or nobody says what.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + wait_s
    async with open_session(connection) as session:
        try:
            await _ask(session, group, is_dry_run=False, planned=planned)
            while True:
                try:
                    answer = await _ask(session, group, is_dry_run=True, planned=planned)
                    left = answer.partitions
                    why = f"{counted(left, 'partition has', 'partitions have')} it still"
                except UnavailableError as error:
                    why = error.message
                if clock() >= until:
                    raise UnavailableError(
                        f"group {group} is removed, but not dropped everywhere after {wait_s:g} s: "
                        f"{why}; the queue's coordinator drops it: check whether it runs "
                        "(`partq coordinator`), and run this command again"
                    )
                await asyncio.sleep(LOOK_EVERY_S)
        except UnknownGroupError:
            return  # nothing is left
