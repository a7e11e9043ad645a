"""`partq dead-letters`: look at dead letters, send them back, or drop them."""

import asyncio
import json
from collections.abc import Mapping

import click

from partq.cli.dead_letters.letter_search import find_letters
from partq.cli.dead_letters.letter_table import letter_headers, show_letters
from partq.cli.dead_letters.partition_results import AT_ONCE, check
from partq.cli.dead_letters.replay import replay_letters
from partq.cli.dead_letters.replay_plan import MAX_PLANNED, make_plan, show_plan
from partq.cli.messages.browse import missing_line
from partq.cli.queues.broker_session import ask, find_partitions, open_session
from partq.cli.queues.connection import Connect, QueueAddress, connection_options
from partq.cli.standard_input import is_terminal
from partq.client.transport.answers import given, read, unusable
from partq.client.transport.session import Session
from partq.core.dead_letters import ANY_LETTER, HEADER_PREFIX, LetterFilter
from partq.errors import PartqError, SettingsError, UnavailableError
from partq.excerpts import counted, excerpt
from partq.wire.calls.answers import UNSET, ErrorDetail
from partq.wire.calls.browse import BrowseAnswer, BrowseBody
from partq.wire.calls.dead_letters import (
    DropBody,
    DropResult,
    DropResults,
)
from partq.wire.calls.replies import plain

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
    connection = connect("admin")
    partitions = _partitions(connection, names)
    wanted = LetterFilter(key, reason)
    told: object = None
    answer = BrowseAnswer([], {}, "", {}, {})
    if wanted == ANY_LETTER:
        body = BrowseBody(partitions, max_messages=limit)
        told = asyncio.run(ask(connection, "POST", "/browse", object, body))
        answer = read("browse", told, BrowseAnswer)
    # One answer has 1 MiB at most, and counts letters that were replayed.
    is_short = answer.why == "size" or any(row.is_replayed is True for row in answer.messages)
    if told is None or is_short:
        found = asyncio.run(find_letters(connection, partitions, wanted, limit))
        answer = found.answer
        told = plain(answer)
        if found.is_cut:
            click.echo(
                f"partq: ended after {found.searched:,} messages; name a --partition to look "
                "further",
                err=True,
            )
        if found.replayed:
            click.echo(
                f"partq: {counted(found.replayed, 'more was', 'more were')} replayed, and stored "
                "until those before them are replayed or dropped",
                err=True,
            )
    if as_json:
        click.echo(json.dumps(told))  # with the fields that only a newer version knows
    else:
        show_letters(answer)
    for name, holes in answer.missing.items():
        click.echo(f"partq: {missing_line(name, holes)}", err=True)
    others = sum(HEADER_PREFIX + "queue" not in letter_headers(row) for row in answer.messages)
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
@click.option("--key", help="Only dead letters of this partition key; the others stay.")
@click.option(
    "--reason",
    help="Only those with this reason, such as expired, or this one of an application; the others "
    "stay.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be replayed, and replay nothing.")
@_yes_option
@_json_option
def replay(
    *,
    connect: Connect,
    names: tuple[str, ...],
    limit: int | None,
    key: str | None,
    reason: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Send dead letters back to their queues, in the order of each key, and free them here.

    A replay that was stopped repeats nothing when it is run again, with any options. Dead letters
    of undecodable messages are no messages: they are skipped, stay where they are, and make the
    exit status 1. With --key or --reason, what is sent back behind others is freed with them.
    """
    connection = connect("admin")
    partitions = _partitions(connection, names)
    wanted = LetterFilter(key, reason)
    if dry_run:
        asyncio.run(_dry_run(connection, partitions, limit, wanted, as_json=as_json))
        return
    what = "the dead letters" if limit is None else f"up to {counted(limit, 'dead letter')}"
    _confirm(f"replay {what} of {connection.queue}{_choice(wanted)}?", yes=yes, as_json=as_json)
    asyncio.run(replay_letters(connection, partitions, limit, wanted, as_json=as_json))


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
    body = DropBody(_partitions(connection, names), before, is_dry_run=True)
    rows = asyncio.run(ask(connection, "POST", DROP_PATH, DropResults, body)).partitions
    shown = plain(rows)
    if not dry_run:
        if not yes:
            # What is wrong comes before the question.
            check(rows, "error")
            if not _count(rows):
                check(rows, "stopped")
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
    check(rows, "error", "stopped")


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


def _partitions(connection: QueueAddress, names: tuple[str, ...]) -> list[str]:
    return [str(each) for each in asyncio.run(find_partitions(connection, names))]


def _confirm(question: str, *, yes: bool, as_json: bool) -> None:
    if yes:
        return
    if as_json or not is_terminal():
        raise SettingsError("dead-letters: cannot ask: no terminal; give --yes, or --dry-run")
    click.confirm(question, abort=True)


def _choice(wanted: LetterFilter) -> str:
    key = "" if wanted.key is None else f" with the key {excerpt(wanted.key)!r}"
    reason = "" if wanted.reason is None else f" with the reason {excerpt(wanted.reason)!r}"
    return " and".join(filter(None, (key, reason)))


async def _dry_run(
    connection: QueueAddress,
    names: list[str],
    limit: int | None,
    wanted: LetterFilter,
    *,
    as_json: bool,
) -> None:
    plan = await make_plan(connection, names, limit, wanted)
    await show_plan(connection, plan, as_json=as_json)
