"""`partq dead-letters`: look at dead letters, send them back, or drop them."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import click
from rich.table import Table

from partq.cli.queues.broker_session import open_session
from partq.cli.queues.browse import missing_line
from partq.cli.queues.connection import Connect, QueueAddress, connection_options
from partq.cli.standard_input import is_terminal
from partq.cli.tables import add_columns, show
from partq.core.dead_letters import HEADER_PREFIX
from partq.errors import ConflictError, PartqError, SettingsError, UnavailableError

PAGE = 1000
MAX_VALUE_CHARS = 60
AT_ONCE = 8
"""How many partitions are dropped side by side, each by a separate call."""
DROP_PATH = "/dead-letters/drop"

_yes_option = click.option("--yes", is_flag=True, help="Do it without asking.")
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_partition_option = click.option(
    "--partition", "names", multiple=True, help="Only this one; several times for more."
)


@click.group(name="dead-letters")
def dead_letters() -> None:
    """Look at the messages of a dead-letter queue, send them back, or drop them.

    --queue names the dead-letter queue itself, such as orders-workers-dlq. Replaying and dropping
    are for a queue without consumer groups; both go on where they were when they are run again.
    """


@dead_letters.command(name="list")
@connection_options
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@_partition_option
@_json_option
def list_(*, connect: Connect, limit: int, names: tuple[str, ...], as_json: bool) -> None:
    """Show dead letters, the oldest first: where they came from, and why."""
    body = {"partitions": _partitions(names), "max_messages": limit}
    answer = asyncio.run(_ask_once(connect("admin"), "/browse", body))
    if as_json:
        click.echo(json.dumps(answer))
    else:
        _show(answer)
    for name, holes in answer.get("missing", {}).items():
        click.echo(f"partq: {missing_line(name, holes)}", err=True)
    others = sum(HEADER_PREFIX + "queue" not in _headers(row) for row in answer["messages"])
    if others:
        click.echo(
            f"partq: {others} of them are no dead letters, as they lack the header "
            f"{HEADER_PREFIX}queue; --queue names the dead-letter queue itself",
            err=True,
        )
    if answer["unavailable"]:
        name, error = next(iter(answer["unavailable"].items()))
        raise UnavailableError(f"partition {name}: {error['message']}; the list is not complete")


@dead_letters.command()
@connection_options
@_partition_option
@_yes_option
@_json_option
def replay(*, connect: Connect, names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Send dead letters back to their queues, in the order of each key, and free them here.

    A replay that was stopped repeats nothing when it is run again. Dead letters of undecodable
    messages are no messages: they are skipped, stay where they are, and make the exit status 1.
    """
    connection = connect("admin")
    _confirm(f"replay the dead letters of {connection.queue}?", yes=yes, as_json=as_json)
    asyncio.run(_replay(connection, _partitions(names), as_json=as_json))


@dead_letters.command()
@connection_options
@_partition_option
@click.option("--before", type=click.IntRange(min=0), help="Only those below; needs --partition.")
@click.option("--dry-run", is_flag=True, help="Show what would go, and drop nothing.")
@_yes_option
@_json_option
def drop(
    *,
    connect: Connect,
    names: tuple[str, ...],
    before: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Drop dead letters for good.

    Where the oldest message of a partition is no dead letter, the queue may be another one than you
    mean: nothing of it is dropped then, unless --before says what.
    """
    connection = connect("admin")
    if before is not None and len(names) != 1:
        raise SettingsError("--before: offsets count per partition; give one --partition")
    body = {"partitions": _partitions(names), "before": before, "is_dry_run": True}
    rows = asyncio.run(_ask_once(connection, DROP_PATH, body))["partitions"]
    if not dry_run:
        if not yes:
            # What is wrong comes before the question.
            _check(rows, "error")
            if not _count(rows):
                _check(rows, "stopped")
            for row in rows.values():
                if "stopped" in row:
                    click.echo(f"partq: {row['stopped']['message']}", err=True)
            question = f"drop {_count(rows)} dead letters of {connection.queue} for good?"
            _confirm(question, yes=yes, as_json=as_json)
        rows = asyncio.run(_drop(connection, rows))
    count = _count(rows)
    if as_json:
        click.echo(json.dumps({"dropped": 0 if dry_run else count, "partitions": rows}))
    else:
        click.echo(f"{count} dead letters {'would be' if dry_run else 'are'} dropped")
    _check(rows, "error", "stopped")


async def _drop(connection: QueueAddress, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what was planned, and return what became of each partition.

    No more than that: what arrives after it was shown stays, and so it does when the call is late.
    """
    limit = asyncio.Semaphore(AT_ONCE)
    async with open_session(connection) as session:

        async def one(name: str, row: Mapping[str, Any]) -> tuple[str, Any]:
            if "error" in row or row["start"] >= row["stop"]:
                return name, row
            async with limit:
                body = {"partitions": [name], "before": row["stop"], "is_dry_run": False}
                try:
                    answer = await session.ask("POST", DROP_PATH, body)
                except PartqError as error:
                    # What becomes of the others is told all the same.
                    return name, {"error": {"code": error.code, "message": error.message}}
                stopped = {"stopped": row["stopped"]} if "stopped" in row else {}
                return name, {**stopped, **answer["partitions"][name]}

        return dict(await asyncio.gather(*(one(*item) for item in planned.items())))


def _count(rows: Mapping[str, Any]) -> int:
    """Return how many dead letters are dropped, or would be."""
    return sum(max(0, row["stop"] - row["start"]) for row in rows.values() if "stop" in row)


def _partitions(names: tuple[str, ...]) -> list[str]:
    return [name if "." in name else f"1.{name}" for name in names]


def _confirm(question: str, *, yes: bool, as_json: bool) -> None:
    if yes:
        return
    if as_json or not is_terminal():
        raise SettingsError("dead-letters: nobody can be asked here; give --yes")
    click.confirm(question, abort=True)


async def _ask_once(connection: QueueAddress, path: str, body: Mapping[str, Any]) -> Any:
    async with open_session(connection) as session:
        return await session.ask("POST", path, body)


async def _replay(connection: QueueAddress, names: list[str], *, as_json: bool) -> None:
    offsets: dict[str, int] = {}
    done: dict[str, dict[str, Any]] = {}
    replayed = repeated = skipped = 0
    async with open_session(connection) as session:
        while True:
            body = {"partitions": names, "offsets": offsets, "max_messages": PAGE}
            rows = (await session.ask("POST", "/dead-letters/replay", body))["partitions"]
            done |= rows
            replayed += sum(row.get("replayed", 0) for row in rows.values())
            repeated += sum(row.get("repeated", 0) for row in rows.values())
            skipped += sum(row.get("skipped", 0) for row in rows.values())
            names = [
                name
                for name, row in rows.items()
                if not {"error", "stopped"} & row.keys() and row["next"] < row["end"]
            ]
            if not names:
                break
            offsets = {name: rows[name]["next"] for name in names}
            click.echo(f"{replayed} replayed", err=True)
    if as_json:
        summary = {"replayed": replayed, "repeated": repeated, "skipped": skipped}
        click.echo(json.dumps({**summary, "partitions": done}))
    else:
        again = f"; {repeated} had been before" if repeated else ""
        passed = f"; {skipped} are skipped" if skipped else ""
        click.echo(f"{replayed} dead letters are replayed{again}{passed}")
    told = (
        f"{skipped} dead letters are skipped: they stand for messages that do not decode, and stay "
        f"in {connection.queue}; look at them with `partq dead-letters list --queue "
        f"{connection.queue}`, publish what they stood for again, then drop them with `partq "
        f"dead-letters drop --queue {connection.queue}`, which takes --partition and --before"
    )
    if skipped and any({"error", "stopped"} & row.keys() for row in done.values()):
        click.echo(f"partq: {told}", err=True)
    _check(done, "error", "stopped")
    if skipped:
        raise ConflictError(told)


def _check(rows: Mapping[str, Mapping[str, Any]], *kinds: str) -> None:
    """Fail if a partition did."""
    failed = [(name, row[kind]) for name, row in rows.items() for kind in kinds if kind in row]
    if failed:
        name, error = failed[0]
        raise UnavailableError(
            f"{len(failed)} of {len(rows)} partitions are not done, the first is {name}: "
            f"{error['message']}; run it again"
        )


def _headers(row: Mapping[str, Any]) -> Mapping[str, str]:
    headers: Mapping[str, str] | None = row.get("headers")
    return headers or {}


def _show(answer: Mapping[str, Any]) -> None:
    table = Table()
    columns = ("partition", "offset", "key", "reason", "from", "failures", "value")
    add_columns(table, columns)
    table.columns[columns.index("reason")].no_wrap = True
    for row in answer["messages"]:
        told = {
            name.removeprefix(HEADER_PREFIX): value
            for name, value in _headers(row).items()
            if name.startswith(HEADER_PREFIX)
        }
        origin = " ".join(told.get(name, "?") for name in ("queue", "group", "position"))
        value = row.get("value", row.get("value_base64", ""))[:MAX_VALUE_CHARS]
        table.add_row(
            row["partition"],
            str(row["offset"]),
            row.get("key") or "",
            told.get("reason", ""),
            origin,
            told.get("redeliveries", ""),
            value,
        )
    show(table)
