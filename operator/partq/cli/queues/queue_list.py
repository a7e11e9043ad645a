"""`partq queues`: the queues that run here, or that a directory names, a line each."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.table import Table

from partq.cli.queues.broker_session import ask
from partq.cli.queues.connection import FindQueues, QueueAddress, queues_options
from partq.cli.queues.problems import named, retired_count, unread_partitions
from partq.cli.tables import add_columns, show
from partq.client.queues.queue_directory import queues_in_directory
from partq.errors import PartqError, SettingsError, UnavailableError
from partq.excerpts import counted
from partq.wire.calls.status import StatusAnswer

AT_ONCE = 8
"""How many queues are asked side by side."""
SILENT = "NoAnswer"
"""What stands for the availability of a queue whose brokers do not answer."""

_HELP = """List the queues: partitions, groups, what is stored, lag.

These are the queues of the `partq dev up` on this machine, in every namespace; or those of
the files QUEUE.json in a --directory, as QueuesConsumer takes them; or the one that --url, --queue
and --token name. What is wrong comes first, then the most lag.

\b
  partq queues
  partq queues --json | jq '.[] | select(.availability != "Available") | .queue'
"""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """What a group has not acknowledged."""

    group: str
    lag: int
    lag_ms: int


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue as it is listed; zeros where its brokers do not answer."""

    namespace: str
    queue: str
    url: str
    availability: str
    partitions: int = 0
    messages: int = 0
    bytes: int = 0
    lag: int = 0
    """Of all its groups together."""
    groups: Sequence[ListedGroup] = ()
    uncounted: Sequence[str] = ()
    """Partitions that cannot be read: no number has what lies there."""
    error: str = ""
    """Why there are no numbers."""


@click.command(help=_HELP)
@queues_options
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="A directory with a file QUEUE.json (url, token, namespace, ca_file) for each queue.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def queues(*, find_queues: FindQueues, directory: Path | None, as_json: bool) -> None:
    """Ask a broker of each queue, and show what they say."""
    addresses = find_queues("admin") if directory is None else asyncio.run(_read(directory))
    rows = asyncio.run(_rows(addresses))
    rows.sort(key=lambda row: (*_rank(row), -row.lag, row.namespace, row.queue))
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows]))
    else:
        _show(rows)
    for row in rows:
        if row.uncounted:
            click.echo(
                f"partq: {_name(row)}: not counted: partition {named(row.uncounted)}", err=True
            )
    silent = [row for row in rows if row.error]
    if silent:
        raise UnavailableError(
            f"{counted(len(silent), 'queue does', 'queues do')} not answer, such as "
            f"{_name(silent[0])}: {silent[0].error}"
        )


async def _read(directory: Path) -> list[QueueAddress]:
    found = await queues_in_directory(directory)()
    if not found:
        raise SettingsError(f"{directory}: got no file of a queue, expected QUEUE.json")
    return [
        QueueAddress(
            each.url,
            each.queue,
            each.namespace or "",
            each.token or "",
            None if each.ca_file is None else Path(each.ca_file),
        )
        for each in found
    ]


async def _rows(addresses: Sequence[QueueAddress]) -> list[QueueRow]:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(address: QueueAddress) -> QueueRow:
        async with limit:
            return await _row(address)

    return list(await asyncio.gather(*map(one, addresses)))


async def _row(address: QueueAddress) -> QueueRow:
    try:
        answer = await ask(address, "GET", "/status", StatusAnswer)
    except PartqError as error:
        where = address.namespace, address.queue, address.url
        return QueueRow(*where, SILENT, error=error.message)
    totals = answer.totals
    groups = [ListedGroup(name, each.lag, each.lag_ms) for name, each in answer.groups.items()]
    return QueueRow(
        *(answer.namespace, answer.queue, address.url, answer.availability),
        *(totals.partitions - retired_count(answer), totals.messages, totals.bytes),
        lag=sum(each.lag for each in groups),
        groups=groups,
        uncounted=unread_partitions(answer),
    )


def _rank(row: QueueRow) -> tuple[bool, bool]:
    return not row.error, row.availability == "Available"


def _name(row: QueueRow) -> str:
    return f"{row.namespace}/{row.queue}" if row.namespace else row.queue


def _show(rows: Sequence[QueueRow]) -> None:
    table = Table()
    add_columns(table, ("queue", "is"))
    add_columns(table, ("partitions", "groups", "messages", "bytes", "lag"), is_number=True)
    for row in rows:
        numbers = (row.partitions, len(row.groups), row.messages, row.bytes, row.lag)
        told = ("" for _ in numbers) if row.error else (f"{number:,}" for number in numbers)
        table.add_row(_name(row), row.availability, *told)
    show(table)
