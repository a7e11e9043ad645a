"""`partq dead-letters`: look at dead letters, send them back, or drop them."""

import asyncio
import json
from collections.abc import Mapping, Sequence

import click
from rich.table import Table

from partq.cli.dead_letters.letter_search import LetterFilter, find_letters
from partq.cli.dead_letters.replay_plan import MAX_PLANNED, make_plan, show_plan
from partq.cli.queues.broker_session import ask, open_session, unfinished
from partq.cli.queues.browse import missing_line
from partq.cli.queues.connection import Connect, QueueAddress, connection_options
from partq.cli.standard_input import is_terminal
from partq.cli.tables import add_columns, show
from partq.client.transport.answers import given, read, unusable
from partq.client.transport.session import Session
from partq.core.dead_letters import DESCRIPTION_HEADER, HEADER_PREFIX, REASON_HEADER
from partq.errors import ConflictError, PartqError, SettingsError, UnavailableError
from partq.excerpts import counted
from partq.wire.calls.answers import UNSET, ErrorDetail, UnsetType
from partq.wire.calls.browse import BrowseAnswer, BrowseBody, BrowsedMessage
from partq.wire.calls.dead_letters import (
    DropBody,
    DropResult,
    DropResults,
    ReplayBody,
    ReplayResult,
    ReplayResults,
)
from partq.wire.calls.replies import plain

PAGE = 1000
MAX_VALUE_CHARS = 60
AT_ONCE = 8
"""How many partitions are dropped, or replayed in part, side by side, each by a separate call."""
DROP_PATH = "/dead-letters/drop"

_yes_option = click.option("--yes", is_flag=True, help="Do it without asking.")
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_partition_option = click.option(
    "--partition", "names", multiple=True, help="Only this partition; may be repeated."
)


@click.group(name="dead-letters")
def dead_letters() -> None:
    """Look at the messages of a dead-letter queue, send them back, or drop them.

    --queue names the dead-letter queue itself, such as orders-workers-dlq. Replaying and dropping
    are for a queue without consumer groups; both continue where they were when they are run again.
    """


@dead_letters.command(name="list")
@connection_options
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.option("--key", help="Only dead letters of this partition key.")
@click.option(
    "--reason", help="Only those with this reason, such as expired, or this one of an application."
)
@_partition_option
@_json_option
def list_(
    *,
    connect: Connect,
    limit: int,
    key: str | None,
    reason: str | None,
    names: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show dead letters, the oldest first: where they came from, and why."""
    connection, partitions = connect("admin"), _partitions(names)
    if key is None and reason is None:
        body = BrowseBody(partitions, max_messages=limit)
        told = asyncio.run(ask(connection, "POST", "/browse", object, body))
        answer = read("browse", told, BrowseAnswer)
    else:
        wanted = LetterFilter(key, reason)
        answer = asyncio.run(find_letters(connection, partitions, wanted, limit))
        told = plain(answer)
    if as_json:
        click.echo(json.dumps(told))  # with the fields that only a newer version knows
    else:
        _show(answer)
    for name, holes in answer.missing.items():
        click.echo(f"partq: {missing_line(name, holes)}", err=True)
    others = sum(HEADER_PREFIX + "queue" not in _headers(row) for row in answer.messages)
    if others:
        click.echo(
            f"partq: {others} of them are not dead letters, as they lack the header "
            f"{HEADER_PREFIX}queue; --queue names the dead-letter queue itself",
            err=True,
        )
    if answer.unavailable:
        name, error = next(iter(answer.unavailable.items()))
        raise UnavailableError(f"partition {name}: {error.message}; the list is not complete")


@dead_letters.command()
@connection_options
@_partition_option
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_PLANNED),
    help="Only the oldest so many, over all partitions. Default: all.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be replayed, and replay nothing.")
@_yes_option
@_json_option
def replay(
    *,
    connect: Connect,
    names: tuple[str, ...],
    limit: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Send dead letters back to their queues, in the order of each key, and free them here.

    A replay that was stopped repeats nothing when it is run again. Dead letters of undecodable
    messages are no messages: they are skipped, stay where they are, and make the exit status 1.
    """
    connection, partitions = connect("admin"), _partitions(names)
    if dry_run:
        asyncio.run(_dry_run(connection, partitions, limit, as_json=as_json))
        return
    what = "the dead letters" if limit is None else f"up to {counted(limit, 'dead letter')}"
    _confirm(f"replay {what} of {connection.queue}?", yes=yes, as_json=as_json)
    asyncio.run(_replay(connection, partitions, limit, as_json=as_json))


@dead_letters.command()
@connection_options
@_partition_option
@click.option("--before", type=click.IntRange(min=0), help="Only those below; needs --partition.")
@click.option("--dry-run", is_flag=True, help="Show what would be dropped, and drop nothing.")
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

    Where the oldest message of a partition is not a dead letter, the queue may be the wrong one:
    nothing of it is dropped then, unless --before says what.
    """
    connection = connect("admin")
    if before is not None and len(names) != 1:
        raise SettingsError("--before: offsets count per partition; give one --partition")
    body = DropBody(_partitions(names), before, is_dry_run=True)
    rows = asyncio.run(ask(connection, "POST", DROP_PATH, DropResults, body)).partitions
    shown = plain(rows)
    if not dry_run:
        if not yes:
            # What is wrong comes before the question.
            _check(rows, "error")
            if not _count(rows):
                _check(rows, "stopped")
            for row in rows.values():
                if row.stopped is not UNSET:
                    click.echo(f"partq: {row.stopped.message}", err=True)
            question = (
                f"drop {counted(_count(rows), 'dead letter')} of {connection.queue} for good?"
            )
            _confirm(question, yes=yes, as_json=as_json)
        planned, rows = rows, asyncio.run(_drop(connection, rows))
        shown = {name: _shown(row, planned[name]) for name, row in rows.items()}
    count = _count(rows)
    if as_json:
        click.echo(json.dumps({"dropped": 0 if dry_run else count, "partitions": shown}))
    else:
        what = counted(count, "dead letter is", "dead letters are")
        click.echo(
            f"{counted(count, 'dead letter')} would be dropped" if dry_run else f"{what} dropped"
        )
    _check(rows, "error", "stopped")


async def _drop(
    connection: QueueAddress, planned: Mapping[str, DropResult]
) -> dict[str, DropResult]:
    """Drop what was planned, and return what became of each partition.

    No more than that: what arrives after it was shown stays, and so it does when the call is late.
    """
    limit = asyncio.Semaphore(AT_ONCE)
    async with open_session(connection) as session:

        async def one(name: str, row: DropResult) -> DropResult:
            if not _width(row):
                return row
            async with limit:
                return await _drop_one(session, name, row)

        rows = await asyncio.gather(*(one(*item) for item in planned.items()))
        return dict(zip(planned, rows, strict=True))


async def _drop_one(session: Session, name: str, planned: DropResult) -> DropResult:
    body = DropBody([name], given("drop", "stop", planned.stop))
    try:
        answer = await session.ask("POST", DROP_PATH, DropResults, body)
        if (row := answer.partitions.get(name)) is None:
            raise unusable("drop", f"it lacks partition {name}")
    except PartqError as error:
        # What becomes of the others is told all the same.
        return DropResult(error=ErrorDetail(error.code, error.message))
    if row.stopped is UNSET:
        row.stopped = planned.stopped
    return row


def _shown(row: DropResult, planned: DropResult) -> object:
    """Return a row as `--json` prints it: what stops a drop comes first once it was tried."""
    fields: dict[str, object] = plain(row)
    if row is planned or planned.stopped is UNSET or "stopped" not in fields:
        return fields
    return {"stopped": fields["stopped"], **fields}


def _count(rows: Mapping[str, DropResult]) -> int:
    """Return how many dead letters are dropped, or would be."""
    return sum(map(_width, rows.values()))


def _width(row: DropResult) -> int:
    if row.error is not UNSET:
        return 0
    return max(0, given("drop", "stop", row.stop) - given("drop", "start", row.start))


def _partitions(names: tuple[str, ...]) -> list[str]:
    return [name if "." in name else f"1.{name}" for name in names]


def _confirm(question: str, *, yes: bool, as_json: bool) -> None:
    if yes:
        return
    if as_json or not is_terminal():
        raise SettingsError("dead-letters: cannot ask: no terminal; give --yes, or --dry-run")
    click.confirm(question, abort=True)


async def _dry_run(
    connection: QueueAddress, names: list[str], limit: int | None, *, as_json: bool
) -> None:
    plan = await make_plan(connection, names, limit)
    await show_plan(connection, plan, as_json=as_json)


async def _replay(
    connection: QueueAddress, names: list[str], limit: int | None, *, as_json: bool
) -> None:
    offsets: dict[str, int] = {}
    stops: dict[str, int] = {}
    """With a limit: up to where each partition is replayed."""
    widths: dict[str, int] = {}
    done: dict[str, ReplayResult] = {}
    replayed = repeated = skipped = 0
    if limit is not None:
        plan = await make_plan(connection, names, limit)
        planned = {name: each for name, each in plan.partitions.items() if each.count}
        stops = {name: each.stop for name, each in planned.items()}
        widths = {name: each.stop - each.start for name, each in planned.items()}
        names = list(planned)
    async with open_session(connection) as session:
        while limit is None or names:
            if limit is None:
                rows = await _ask_replay(session, names, offsets, PAGE)
            else:
                rows = await _replay_each(session, offsets, {name: widths[name] for name in names})
            done |= rows
            replayed += sum(_number(row.replayed) for row in rows.values())
            repeated += sum(_number(row.repeated) for row in rows.values())
            skipped += sum(_number(row.skipped) for row in rows.values())
            ends = {name: _ends(row) for name, row in rows.items() if not _errors(row)}
            ends = {name: (at, min(end, stops.get(name, end))) for name, (at, end) in ends.items()}
            offsets = {name: start for name, (start, end) in ends.items() if start < end}
            widths = {name: ends[name][1] - start for name, start in offsets.items()}
            names = list(offsets)
            if not names:
                break
            click.echo(f"{replayed} replayed", err=True)
    if as_json:
        summary = {"replayed": replayed, "repeated": repeated, "skipped": skipped}
        click.echo(json.dumps({**summary, "partitions": plain(done)}))
    else:
        again = f"; {repeated} had been before" if repeated else ""
        passed = f"; {counted(skipped, 'is', 'are')} skipped" if skipped else ""
        click.echo(
            f"{counted(replayed, 'dead letter is', 'dead letters are')} replayed{again}{passed}"
        )
    told = (
        f"{counted(skipped, 'dead letter is', 'dead letters are')} skipped, as the message behind "
        f"each does not decode, and what is skipped stays in {connection.queue}; look at them "
        f"with `partq dead-letters list --queue {connection.queue}`, publish what "
        "they stood for again, then drop them with `partq dead-letters drop --queue "
        f"{connection.queue}`, which takes --partition and --before"
    )
    if skipped and any(map(_errors, done.values())):
        click.echo(f"partq: {told}", err=True)
    _check(done, "error", "stopped")
    if skipped:
        raise ConflictError(told)


async def _ask_replay(
    session: Session, names: list[str], offsets: dict[str, int], most: int
) -> dict[str, ReplayResult]:
    body = ReplayBody(names, offsets, most)
    return (await session.ask("POST", "/dead-letters/replay", ReplayResults, body)).partitions


async def _replay_each(
    session: Session, offsets: Mapping[str, int], widths: Mapping[str, int]
) -> dict[str, ReplayResult]:
    """Replay a part of each partition, which is not equally wide for all."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(name: str, width: int) -> dict[str, ReplayResult]:
        at = {name: offsets[name]} if name in offsets else {}
        async with limit:
            return await _ask_replay(session, [name], at, min(PAGE, width))

    found: dict[str, ReplayResult] = {}
    for rows in await asyncio.gather(*(one(*item) for item in widths.items())):
        found |= rows
    return found


def _number(count: int | UnsetType) -> int:
    return 0 if count is UNSET else count


def _ends(row: ReplayResult) -> tuple[int, int]:
    """Return where a replay continues, and where it ends."""
    return given("replay", "next", row.next), given("replay", "end", row.end)


def _errors(
    row: ReplayResult | DropResult, kinds: Sequence[str] = ("error", "stopped")
) -> list[ErrorDetail]:
    found = (getattr(row, kind) for kind in kinds)
    return [error for error in found if error is not UNSET]


def _check(rows: Mapping[str, ReplayResult] | Mapping[str, DropResult], *kinds: str) -> None:
    """Fail if a partition did."""
    failed = [(name, errors[0]) for name, row in rows.items() if (errors := _errors(row, kinds))]
    if failed:
        raise unfinished(failed, len(rows))


def _headers(row: BrowsedMessage) -> Mapping[str, str]:
    return {} if row.headers is UNSET else row.headers


def _value(row: BrowsedMessage) -> str:
    if row.value is not UNSET:
        return row.value
    return "" if row.value_base64 is UNSET else row.value_base64


def _note(row: BrowsedMessage) -> str:
    """Return what the application said of a dead letter: its reason and its description."""
    told = _headers(row)
    said = [told[name] for name in (REASON_HEADER, DESCRIPTION_HEADER) if name in told]
    return ": ".join(said)


def _show(answer: BrowseAnswer) -> None:
    table = Table()
    # What applications said has a column only where one has said something: the line is full.
    has_notes = any(_note(row) for row in answer.messages)
    notes = ("application",) if has_notes else ()
    columns = ("partition", "offset", "key", "reason", *notes, "from", "failures", "value")
    add_columns(table, columns)
    table.columns[columns.index("reason")].no_wrap = True
    for row in answer.messages:
        told = {
            name.removeprefix(HEADER_PREFIX): value
            for name, value in _headers(row).items()
            if name.startswith(HEADER_PREFIX)
        }
        origin = " ".join(told.get(name, "?") for name in ("queue", "group", "partition", "offset"))
        table.add_row(
            row.partition,
            str(row.offset),
            "" if row.key is UNSET else row.key,
            told.get("reason", ""),
            *([_note(row)] if has_notes else []),
            origin,
            told.get("redeliveries", ""),
            _value(row)[:MAX_VALUE_CHARS],
        )
    show(table)
