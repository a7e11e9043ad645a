"""Sends dead letters back to their queues, page by page, all of them or the oldest ones."""

import asyncio
import json
from collections.abc import Mapping

import click

from partq.cli.dead_letters.partition_results import AT_ONCE, check, errors_of
from partq.cli.dead_letters.replay_plan import make_plan
from partq.cli.queues.broker_session import open_session
from partq.cli.queues.connection import QueueAddress
from partq.client.transport.answers import given
from partq.client.transport.session import Session
from partq.errors import ConflictError
from partq.excerpts import counted
from partq.wire.calls.answers import UNSET, UnsetType
from partq.wire.calls.dead_letters import ReplayBody, ReplayResult, ReplayResults
from partq.wire.calls.replies import plain

PAGE = 1000
"""The most dead letters that one call sends back."""


async def replay_letters(
    connection: QueueAddress, names: list[str], limit: int | None, *, as_json: bool
) -> None:
    """Send dead letters back, at most `limit` of them, and print what became of them.

    Raises:
        ConflictError: some were skipped.
        PartqError: a partition failed.
    """
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
            ends = {name: _ends(row) for name, row in rows.items() if not errors_of(row)}
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
    if skipped and any(map(errors_of, done.values())):
        click.echo(f"partq: {told}", err=True)
    check(done, "error", "stopped")
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
