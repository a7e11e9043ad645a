"""`partq browse`: look at messages without consuming them."""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import click

from partq.cli.formatting import full_name, milliseconds
from partq.cli.queues.connection import Connect, QueueAddress, connection_options
from partq.client.browser import Browsed, Browser
from partq.core.model import PartitionId
from partq.errors import SettingsError

MAX_VALUE_CHARS = 200
"""What is shown of a value; --json has all of it."""
MAX_HOLES = 10
"""How many holes of a partition are named."""

_HELP = """Look at messages without consuming them: nothing is delivered or acknowledged.

Shows the oldest messages that are stored, over all partitions by the time of storing; or those of
some partitions, from a time, or of one partition from an offset.

\b
  partq browse
  partq browse --since 2026-11-20T08:00:00+00:00 --count 100
  partq browse --partition 3 --offset 120 --json
"""


@click.command(help=_HELP)
@connection_options
@click.option("--partition", "names", multiple=True, help="Only this partition; may be repeated.")
@click.option("--offset", type=click.IntRange(min=0), help="Begin here; needs one --partition.")
@click.option("--since", metavar="TIME", help="Begin at this time: ISO 8601 with a time zone.")
@click.option("--count", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--pin", help="Name of a pin that keeps what is still to be read, meanwhile.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON line for each message.")
def browse(
    *,
    connect: Connect,
    names: Sequence[str],
    offset: int | None,
    since: str | None,
    count: int,
    pin: str | None,
    as_json: bool,
) -> None:
    """Show until there are enough, or no more."""
    if offset is not None and (len(names) != 1 or since is not None):
        raise SettingsError(
            "--offset needs exactly one --partition and cannot be combined with --since"
        )
    try:
        partitions = [PartitionId.parse(full_name(name)) for name in names]
    except ValueError as error:
        raise SettingsError(f"--partition: {error}") from error
    work = _browse(
        connect("consume"),
        partitions,
        offsets={} if offset is None else {partitions[0]: offset},
        at_ms=None if since is None else milliseconds(since, "--since"),
        count=count,
        pin=pin,
        as_json=as_json,
    )
    asyncio.run(work)


async def _browse(
    connection: QueueAddress,
    partitions: Sequence[PartitionId],
    *,
    offsets: Mapping[PartitionId, int],
    at_ms: int | None,
    count: int,
    pin: str | None,
    as_json: bool,
) -> None:
    shown = 0
    async with Browser(**connection.options().arguments(), pin=pin) as browser:
        messages = browser.messages(count, partitions=partitions, offsets=offsets, at_ms=at_ms)
        async for each in messages:
            click.echo(json.dumps(record(each)) if as_json else line(each))
            shown += 1
        for partition, first in sorted(browser.trimmed.items()):
            click.echo(f"partq: {partition}: stored from offset {first} on only", err=True)
        for name, holes in sorted(browser.missing.items()):
            click.echo(f"partq: {missing_line(str(name), holes)}", err=True)
    if shown < count:
        click.echo(f"partq: there are no more, {shown} in all", err=True)


def record(browsed: Browsed) -> dict[str, object]:
    """Return a message as `--json` prints it, in the words of `partq consume`."""
    place = {
        "partition": str(browsed.partition),
        "offset": browsed.offset,
        "publish_time_ms": browsed.publish_time_ms,
        "append_broker_epoch": browsed.append_broker_epoch,
    }
    if (message := browsed.message) is None:
        return {**place, "error": browsed.error}
    try:
        value = {"value": message.value.decode()}
    except UnicodeDecodeError:
        value = {"value_base64": base64.b64encode(message.value).decode()}
    return {
        **place,
        "key": message.key,
        **value,
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
    """Return a message as a line for people: time, place, key, value."""
    at = datetime.fromtimestamp(browsed.publish_time_ms / 1000, UTC)
    place = f"{at:%Y-%m-%d %H:%M:%S.%f}"[:-3] + f"  {browsed.partition}:{browsed.offset}"
    if browsed.message is None:
        return f"{place}  cannot be read: {browsed.error}"
    key = "-" if browsed.message.key is None else json.dumps(browsed.message.key)
    text = json.dumps(browsed.message.value.decode(errors="replace"), ensure_ascii=False)[1:-1]
    return f"{place}  {key}  {text[:MAX_VALUE_CHARS]}"
