"""`partq consume`: print the messages of a consumer group."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import click

from partq.cli.messages.idle import IdleError, Idleness
from partq.cli.messages.message_json import value_field
from partq.cli.quantity import Quantity
from partq.cli.queues.broker_session import open_session
from partq.cli.queues.connection import (
    Connect,
    QueueAddress,
    connection_options,
    group_option,
    known_group,
    wait_option,
)
from partq.client.consume.deliveries import Batch, Delivery
from partq.client.consumer import Consumer
from partq.core.model import Cause
from partq.errors import ConflictError, PartqError, UndecodableError
from partq.logs import left_out

_HELP = """Print the messages of a consumer group, each acknowledged once it is printed.

Joins the group as one more member, so its partitions are shared with the others. A group, queue
or broker that is not there yet is waited for (--wait). Runs until --count, --idle, Ctrl-C or
SIGTERM; then it leaves the group, which hands its partitions over. Prints the values, one per line;
with --json everything, one JSON object per line.

\b
  partq consume --group workers
  partq consume --group workers --idle 2 --json > messages.ndjson
  partq consume --group workers --count 10 --no-ack       a look; they are redelivered

A message that does not decode is a warning with its partition and offset; the others continue.

The idle time begins with the last message, and whenever a partition is assigned. While messages are
left that no connected member holds, while this member holds nothing, or while Redis does not answer
for a partition, it continues for --wait at most; then the exit status is 1. It is also 1 when
--idle ends it before --count messages came. With --idle alone it is 0 although none came: then
nothing is left for this member.
"""


@click.command(help=_HELP)
@connection_options
@wait_option
@group_option
@click.option(
    "--member",
    envvar="PARTQ_MEMBER",
    show_envvar=True,
    help="Name in the group; the same one gets its partitions back after a restart.",
)
@click.option("--count", type=click.IntRange(min=1), help="End after this many messages.")
@click.option(
    "--idle",
    "idle_s",
    type=Quantity(0.1, 86_400),
    help="End when nothing is left, and no message came for this many seconds.",
)
@click.option("--no-ack", is_flag=True, help="Acknowledge nothing: the messages are redelivered.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON line for each message.")
def consume(
    *,
    connect: Connect,
    wait_s: float,
    group: str | None,
    member: str | None,
    count: int | None,
    idle_s: float | None,
    no_ack: bool,
    as_json: bool,
) -> None:
    """Print and acknowledge until told to end."""
    connection = connect("consume")
    work = _consume(
        connection,
        group=known_group(connection, group),
        wait_s=wait_s,
        member=member,
        count=count,
        idle_s=idle_s,
        is_acking=not no_ack,
        as_json=as_json,
    )
    with left_out("partq.client", _is_told):
        came = asyncio.run(work)
    if came is not None and count is not None and came < count:
        click.echo(f"partq: {came} of {count} messages came, then none for {idle_s:g} s", err=True)
        raise click.exceptions.Exit(1)


async def _consume(
    connection: QueueAddress,
    *,
    group: str,
    wait_s: float,
    member: str | None,
    count: int | None,
    idle_s: float | None,
    is_acking: bool,
    as_json: bool,
) -> int | None:
    """Return how many messages came before none came for `idle_s`; None: it ended otherwise."""
    came = 0
    was_idle = False
    async with AsyncExitStack() as stack:
        idleness = None
        if idle_s is not None:
            session = await stack.enter_async_context(open_session(connection))
            idleness = Idleness(session, group, idle_s=idle_s, wait_s=wait_s)
        consumer = await stack.enter_async_context(
            Consumer(
                **connection.options().arguments(),
                group=group,
                member=member,
                connect_timeout_s=wait_s,
                on_error=_warn,
                on_assigned=None if idleness is None else idleness.begin,
            )
        )
        taken = _receive(consumer, count)
        if idleness is not None:
            idleness.begin()
            taken = idleness.bound(taken, consumer)
        try:
            async for deliveries, done in taken:
                _print(deliveries, as_json=as_json)
                came += len(deliveries)
                if is_acking:
                    consumer.ack_nowait(done)
        except IdleError:
            was_idle = True
        try:
            await consumer.flush()
        except ConflictError as error:
            # Printed, but by now another member's: not our failure, and worth knowing.
            click.echo(f"partq: {error.message}", err=True)
    return came if was_idle else None


def _warn(error: PartqError) -> None:
    """Tell of what stops only a part, such as an undecodable message; the others continue."""
    click.echo(f"partq: WARNING: {error.message}", err=True)


def _is_told(record: logging.LogRecord) -> bool:
    """Say whether the client logs what `_warn` tells."""
    return any(isinstance(each, UndecodableError) for each in record.args or ())


Taken = tuple[Sequence[Delivery], Delivery | Batch]
"""Messages, and what to acknowledge for them."""


async def _receive(consumer: Consumer, count: int | None) -> AsyncIterator[Taken]:
    if count is None:
        async for batch in consumer.batches():
            yield batch.deliveries(), batch
        return
    # One by one: of a batch that was taken whole the rest would have begun, and be waited for.
    while count > 0:
        try:
            delivery = await anext(consumer)
        except StopAsyncIteration:
            return
        count -= 1
        yield [delivery], delivery


def _print(deliveries: Sequence[Delivery], *, as_json: bool) -> None:
    """Write the messages and see them off: only what has left us may be acknowledged."""
    out = sys.stdout.buffer
    for delivery in deliveries:
        out.write(json.dumps(record(delivery)).encode() if as_json else delivery.value)
        out.write(b"\n")
    out.flush()


def record(delivery: Delivery) -> dict[str, object]:
    """Return a message as JSON, in the words of the HTTP pull."""
    _, broker_epoch, epoch, offset = delivery.token
    return {
        "partition": str(delivery.partition),
        "offset": offset,
        "key": delivery.key,
        **value_field(delivery.value),
        "headers": delivery.headers,
        "event_time_ms": delivery.event_time_ms,
        "publish_time_ms": delivery.publish_time_ms,
        "broker_epoch": broker_epoch,
        "epoch": epoch,
        "cause": "" if delivery.cause is Cause.NONE else delivery.cause.name.lower(),
        "redeliveries": delivery.redeliveries,
        "producer": delivery.producer,
        "sequence": delivery.sequence,
    }
