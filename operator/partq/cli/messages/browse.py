"""`partq browse`: look at messages without consuming them."""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

import click

from partq.cli.formatting import milliseconds, one_line
from partq.cli.messages.message_json import value_field
from partq.cli.messages.newest import MAX_LAST, Newest, find_newest
from partq.cli.queues.broker_session import find_partitions, open_session
from partq.cli.queues.connection import Connect, QueueAddress, connection_options
from partq.client.browser import Browsed, Browser
from partq.client.transport.partition_router import PartitionRouter
from partq.core.clocks.units import MIN_AT_MS
from partq.core.dead_letters import HEADER_PREFIX
from partq.core.model import PartitionId
from partq.errors import SettingsError
from partq.excerpts import excerpt

MAX_VALUE_CHARS = 200
"""What is shown of a value; --json has all of it."""
MAX_HOLES = 10
"""How many holes of a partition are named."""
DEFAULT_COUNT = 20
WAIT_S = 10.0
"""How long `--last` waits for a partition that no broker serves, as the others do."""
MAX_CLOCK_STEP_S = 60.0
"""How far Redis's clock may be behind that of this machine."""
FOLLOW_S = 1.0
"""How often `--follow` looks for new messages."""
_AGO = re.compile(r"([1-9][0-9]{0,8})(s|m|h|d)")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

_HELP = """Look at messages without consuming them: nothing is delivered or acknowledged.

Shows the oldest messages that are stored, over all partitions by the time of storing; or those of
some partitions, from a time, or of one partition from an offset; or with --last the newest ones.

\b
  partq browse
  partq browse --last 10 --key order-17
  partq browse --since 2026-11-20T08:00:00+00:00 --count 100
  partq browse --since 5m --key order-17 --follow
  partq browse --partition 3 --offset 120 --json
"""


@click.command(help=_HELP)
@connection_options
@click.option("--partition", "names", multiple=True, help="Only this partition; may be repeated.")
@click.option("--offset", type=click.IntRange(min=0), help="Begin here; needs one --partition.")
@click.option(
    "--since",
    metavar="TIME",
    help="Begin at this time: ISO 8601 with a time zone, or how long ago, such as 30s, 5m, 2h, 7d.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    help=f"End after this many. Default: {DEFAULT_COUNT}; with --follow no end.",
)
@click.option(
    "--last",
    type=click.IntRange(1, MAX_LAST),
    help="The newest so many, over all partitions, the newest at the end.",
)
@click.option("--key", help="Only messages of this partition key.")
@click.option(
    "--grep",
    "pattern",
    metavar="PATTERN",
    help="Only messages whose value, as text, has a match of this regular expression of Python.",
)
@click.option("--follow", is_flag=True, help="At the end wait for new messages, until interrupted.")
@click.option("--pin", help="Name of a pin that keeps what is still to be read, meanwhile.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON line for each message.")
def browse(
    *,
    connect: Connect,
    names: Sequence[str],
    offset: int | None,
    since: str | None,
    count: int | None,
    last: int | None,
    key: str | None,
    pattern: str | None,
    follow: bool,
    pin: str | None,
    as_json: bool,
) -> None:
    """Show until there are enough, or no more."""
    others = {"--offset": offset, "--since": since, "--count": count, "--pin": pin}
    if last is not None and (
        given := [name for name, value in others.items() if value is not None]
    ):
        raise SettingsError(
            f"--last: got it with {given[0]}; --last begins at the end and counts by itself: give "
            "one of the two"
        )
    if offset is not None and (len(names) != 1 or since is not None):
        raise SettingsError(
            "--offset needs exactly one --partition and cannot be combined with --since"
        )
    connection, wanted = connect("consume"), _Wanted(key, pattern)
    partitions = asyncio.run(find_partitions(connection, names))
    work = _browse(
        connection,
        wanted,
        partitions,
        last=last,
        offsets={} if offset is None else {partitions[0]: offset},
        at_ms=None if since is None else since_ms(since, time.time()),
        count=last or (count if count is not None or follow else DEFAULT_COUNT),
        follow=follow,
        pin=pin,
        as_json=as_json,
    )
    asyncio.run(work)


def since_ms(since: str, now_s: float) -> int:
    """Return the time to begin at; one before all queues means the oldest message.

    Raises:
        SettingsError: `since` is neither a time nor how long ago.
    """
    ago = _AGO.fullmatch(since)
    if ago is not None:
        at_ms = int((now_s - int(ago[1]) * _UNIT_S[ago[2]]) * 1000)
    else:
        at_ms = milliseconds(since, "--since")
    return at_ms if at_ms >= MIN_AT_MS else 0


class _Wanted:
    """Which messages are shown: all, those of a key, those with a match, or both."""

    def __init__(self, key: str | None, pattern: str | None) -> None:
        self.key = key
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise SettingsError(
                f"--grep: got {excerpt(pattern)}, expected a regular expression: {error}"
            ) from error

    @property
    def is_part(self) -> bool:
        """Whether messages may be left out."""
        return self.key is not None or self._pattern is not None

    def has(self, browsed: Browsed) -> bool:
        """Say whether a message is shown; one that cannot be read has neither key nor value."""
        message = browsed.message
        if message is None:
            return self.key is None and self._pattern is None
        if self.key is not None and message.key != self.key:
            return False
        text = message.value.decode(errors="replace") if self._pattern is not None else ""
        return self._pattern is None or self._pattern.search(text) is not None


async def _browse(
    connection: QueueAddress,
    wanted: _Wanted,
    partitions: Sequence[PartitionId],
    *,
    last: int | None,
    offsets: Mapping[PartitionId, int],
    at_ms: int | None,
    count: int | None,
    follow: bool,
    pin: str | None,
    as_json: bool,
) -> None:
    def show(each: Browsed) -> None:
        click.echo(json.dumps(record(each)) if as_json else line(each))

    shown = 0
    if last is not None:
        newest = await _newest(connection, wanted, partitions, last)
        for each in newest.messages:
            show(each)
        _print_missing(newest.missing)
        if newest.is_cut:
            click.echo(
                f"partq: ended after {newest.searched:,} messages; for older ones name a "
                "--partition, or begin with --since",
                err=True,
            )
        shown = len(newest.messages)
        if not follow:
            _print_end(shown, count)
            return
        # Those that have no end here are new, or have no message of the key: of their messages
        # the ones that come from now on are looked at, by a clock that may differ from Redis's.
        offsets, count = newest.ends, None
        at_ms = int(1000 * (time.time() - MAX_CLOCK_STEP_S))
    async with Browser(**connection.options().arguments(), pin=pin) as browser:
        messages = _messages(
            browser,
            partitions,
            offsets,
            at_ms,
            count=None if wanted.is_part or follow else count,
            follow=follow,
        )
        async with aclosing(messages):
            async for each in messages:
                if not wanted.has(each):
                    continue
                show(each)
                shown += 1
                if shown == count:
                    break
        _print_gaps(browser)
    _print_end(shown, count)


async def _newest(
    connection: QueueAddress, wanted: _Wanted, partitions: Sequence[PartitionId], last: int
) -> Newest:
    async with open_session(connection) as session:
        router = PartitionRouter(session, timeout_s=WAIT_S)
        names = await router.checked(partitions or None)
        layout = (await router.queue_layout()).layout
        if wanted.key is not None and not partitions and layout.generation == 1:
            names = [layout.partition_for(wanted.key)]  # no other has messages of the key
        return await find_newest(router, names, last, wanted.has)


def _print_end(shown: int, count: int | None) -> None:
    if count is not None and shown < count:
        click.echo(f"partq: there are no more, {shown} in all", err=True)


def _print_gaps(browser: Browser) -> None:
    """Say once what could not be shown."""
    for partition, first in sorted(browser.trimmed.items()):
        click.echo(f"partq: {partition}: stored from offset {first} on only", err=True)
    _print_missing(browser.missing)
    browser.trimmed.clear()
    browser.missing.clear()


def _print_missing(missing: Mapping[PartitionId, Sequence[tuple[int, int]]]) -> None:
    for name, holes in sorted(missing.items()):
        if holes:
            click.echo(f"partq: {missing_line(str(name), holes)}", err=True)


async def _messages(
    browser: Browser,
    partitions: Sequence[PartitionId],
    offsets: Mapping[PartitionId, int],
    at_ms: int | None,
    *,
    count: int | None,
    follow: bool,
) -> AsyncGenerator[Browsed, None]:
    """Yield what is stored; with `follow` also what comes, which never ends."""
    while True:
        messages = browser.messages(count, partitions=partitions, offsets=offsets, at_ms=at_ms)
        async for each in messages:
            yield each
        if not follow:
            return
        _print_gaps(browser)
        offsets = dict(browser.next)
        await asyncio.sleep(FOLLOW_S)


def record(browsed: Browsed) -> dict[str, object]:
    """Return a message as `--json` prints it, in the words of `partq consume`."""
    place = {
        "partition": str(browsed.partition),
        "offset": browsed.offset,
        "publish_time_ms": browsed.publish_time_ms,
        "append_broker_epoch": browsed.append_broker_epoch,
        "producer": browsed.producer,
        "sequence": browsed.sequence,
    }
    if (message := browsed.message) is None:
        return {**place, "error": browsed.error}
    return {
        **place,
        "key": message.key,
        **value_field(message.value),
        "headers": message.headers or {},
        "event_time_ms": message.event_time_ms,
    }


def missing_line(partition: str, holes: Sequence[Sequence[int]]) -> str:
    """Return what a log misses, as a line for people."""
    told = [f"{start} to {stop - 1}" if stop - start > 1 else f"{start}" for start, stop in holes]
    more = f" and {len(told) - MAX_HOLES} more places" if len(told) > MAX_HOLES else ""
    return (
        f"{partition}: missing in the log: {', '.join(told[:MAX_HOLES])}{more}; they were removed "
        "from Redis by other means than partq's, and cannot be shown"
    )


def line(browsed: Browsed) -> str:
    """Return a message as a line: time, place, key, value, and why it is a dead letter."""
    at = datetime.fromtimestamp(browsed.publish_time_ms / 1000, UTC)
    place = f"{at:%Y-%m-%d %H:%M:%S.%f}"[:-3] + f"  {browsed.partition}:{browsed.offset}"
    if (message := browsed.message) is None:
        return f"{place}  cannot be read: {browsed.error}"
    key = "-" if message.key is None else json.dumps(message.key, ensure_ascii=False)
    value = one_line(message.value.decode(errors="replace"))[:MAX_VALUE_CHARS]
    reason = (message.headers or {}).get(f"{HEADER_PREFIX}reason")
    died = "" if reason is None else f"  (dead letter: {one_line(excerpt(reason))})"
    return f"{place}  {one_line(key)}  {value}{died}"
