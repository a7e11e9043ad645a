"""Sends dead letters back to their queues, page by page, all of them or the oldest ones."""

import asyncio
import json
from collections.abc import Mapping

import click

from partq.cli.dead_letters.partition_results import AT_ONCE, check, errors_of
from partq.cli.dead_letters.replay_plan import LettersPlan, make_plan
from partq.cli.queues.broker_session import open_session
from partq.cli.queues.connection import QueueAddress
from partq.client.transport.answers import given
from partq.client.transport.layout import QueueLayout
from partq.client.transport.session import Session
from partq.core.dead_letters import ANY_LETTER, LetterFilter
from partq.core.model import PartitionId
from partq.core.rescale.resets import by_generation
from partq.errors import ConflictError
from partq.excerpts import counted
from partq.wire.calls.answers import UNSET, LayoutAnswer, UnsetType
from partq.wire.calls.dead_letters import ReplayBody, ReplayResult, ReplayResults
from partq.wire.calls.replies import plain

PAGE = 1000
"""The most dead letters that one call sends back."""


async def replay_letters(
    connection: QueueAddress,
    names: list[str],
    limit: int | None,
    wanted: LetterFilter,
    *,
    as_json: bool,
) -> None:
    """Send the wanted dead letters back, at most `limit` of them, and print what became of them.

    Raises:
        ConflictError: some were skipped.
        PartqError: a partition failed.
    """
    plan = None if limit is None else await make_plan(connection, names, limit, wanted)
    done: dict[str, ReplayResult] = {}
    replayed = repeated = skipped = quarantined = 0
    first_quarantined = ""
    async with open_session(connection) as session:
        for part in await _in_order(session, names):
            work = _Replay(wanted, part, plan)
            while plan is None or work.names:
                rows = await work.ask(session)
                done |= rows
                replayed += sum(_number(row.replayed) for row in rows.values())
                repeated += sum(_number(row.repeated) for row in rows.values())
                skipped += sum(_number(row.skipped) for row in rows.values())
                quarantined += sum(_number(row.quarantined) for row in rows.values())
                for row in rows.values():
                    first_quarantined = first_quarantined or row.first_quarantined or ""
                if not work.note(rows):
                    break
                click.echo(f"{replayed} replayed", err=True)
            if any(map(errors_of, done.values())):
                break  # what follows would be sent back before older ones
    if as_json:
        summary = {"replayed": replayed, "repeated": repeated, "skipped": skipped}
        click.echo(json.dumps({**summary, "partitions": plain(done)}))
    else:
        again = f"; {repeated} had been before" if repeated else ""
        passed = f"; {counted(skipped, 'is', 'are')} skipped" if skipped else ""
        click.echo(
            f"{counted(replayed, 'dead letter is', 'dead letters are')} replayed{again}{passed}"
        )
    if quarantined:
        click.echo(
            f"partq: {counted(quarantined, 'of them has', 'of them have')} gone to keys that are "
            f"in quarantine, and become dead letters again; one is {first_quarantined}: release "
            "the keys with `partq keys release`, then replay again",
            err=True,
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


async def _in_order(session: Session, names: list[str]) -> list[list[str]]:
    """Return the partitions that are named in the order in which they are replayed.

    After a change of the partition count the older ones come first, as new ones follow them. Else
    all go together; no names stand for all.
    """
    layout = QueueLayout.of(await session.ask("GET", "/layout", LayoutAnswer)).layout
    if layout.generation == 1:
        return [names]
    partitions = [PartitionId.parse(name) for name in names] or layout.partitions()
    return [[str(partition) for partition in part] for part in by_generation(partitions)]


class _Replay:
    """Where each partition is to be replayed from, and how much of it."""

    def __init__(self, wanted: LetterFilter, names: list[str], plan: LettersPlan | None) -> None:
        self.names = names
        """Partitions that are not at their end; at first none stands for all."""
        self._wanted = wanted
        self._offsets: dict[str, int] = {}
        self._stops: dict[str, int] = {}
        """Up to where; what comes meanwhile is not searched for what is wanted."""
        self._left: dict[str, int] | None = None
        """With a limit: how many messages of each partition are to be sent or skipped at most."""
        if plan is not None:
            parts = {
                name: each
                for name, each in plan.partitions.items()
                if each.count and (not names or name in names)
            }
            self.names = list(parts)
            self._stops = {name: each.stop for name, each in parts.items()}
            is_any = wanted == ANY_LETTER
            self._left = {
                name: each.stop - each.start if is_any else each.count + each.skipped
                for name, each in parts.items()
            }

    async def ask(self, session: Session) -> dict[str, ReplayResult]:
        """Have a part of each partition replayed, by one call where all are as wide."""
        if self._left is None:
            return await self._ask(session, self.names, PAGE)
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(name: str, left: int) -> dict[str, ReplayResult]:
            async with limit:
                return await self._ask(session, [name], min(PAGE, left))

        found: dict[str, ReplayResult] = {}
        parts = [(name, self._left[name]) for name in self.names]
        for rows in await asyncio.gather(*(one(*part) for part in parts)):
            found |= rows
        return found

    def note(self, rows: Mapping[str, ReplayResult]) -> bool:
        """Note what became of the partitions; False: nothing is left to be asked."""
        self._offsets = {}
        for name, row in rows.items():
            if errors_of(row):
                continue
            at, end = given("replay", "next", row.next), given("replay", "end", row.end)
            if self._wanted == ANY_LETTER:
                end = min(end, self._stops.get(name, end))
            else:
                end = self._stops.setdefault(name, end)
            left = self._left_after(name, row, at, end)
            if at < end and left > 0:
                self._offsets[name] = at
        self.names = list(self._offsets)
        return bool(self.names)

    def _left_after(self, name: str, row: ReplayResult, at: int, end: int) -> int:
        """Return how many messages of a partition are to be sent still."""
        if self._left is None:
            return PAGE
        if self._wanted == ANY_LETTER:
            self._left[name] = end - at
        else:
            taken = _number(row.replayed) + _number(row.repeated) + _number(row.skipped)
            self._left[name] -= taken
        return self._left[name]

    async def _ask(self, session: Session, names: list[str], most: int) -> dict[str, ReplayResult]:
        at = {name: self._offsets[name] for name in names if name in self._offsets}
        body = ReplayBody(names, at, most, self._wanted.key, self._wanted.reason)
        path = "/dead-letters/replay"
        return (await session.ask("POST", path, ReplayResults, body)).partitions


def _number(count: int | UnsetType) -> int:
    return 0 if count is UNSET else count
