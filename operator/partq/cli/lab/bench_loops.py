"""`partq bench loops`: how fast the loops are that people write, one beside the other."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import click

from partq.cli.lab.bench_options import count_option, reports, show_report
from partq.client.consume.deliveries import Delivery
from partq.client.consumer import Consumer
from partq.client.producer import Producer
from partq.embedded.runtime import EmbeddedRuntime, RunningQueue
from partq.resources import group_document, queue_document, resources_of
from partq.wire.batch import Message

PARTITIONS = 2
KEYS = 50
HANDLER_S = 0.005
"""How long the slow callback of `run` waits for each message, as for another service."""
LEASE_TTL_S = 20.0
"""Of the brokers: a busy machine holds them up, and a lease that is over is not measured here."""
_READ, _WRITTEN = "read", "written"
"""The queue that is consumed, and the one that is published to."""

_HELP = """Measure the loops that people write: publishing and consuming, one message at a time and many.

Starts a separate Redis, brokers and a coordinator in a temporary directory. Each loop runs in this
process, alone, one after the other; the rates are medians over the rounds, in messages per second,
until everything is stored or acknowledged. Loops that wait for each message use fewer of them.

\b
  partq bench loops
  partq bench loops --messages 100000 --json loops.json
"""  # noqa: E501  click wraps it


@dataclass(frozen=True, slots=True)
class Loop:
    """One way to write it."""

    name: str
    code: str
    """As in docs/client.md."""
    run: Callable[[RunningQueue, str, list[Message]], Awaitable[float]]
    """Return the seconds that the messages take; the text is the group that consumes them."""
    is_slow: bool = False
    """Each message waits, for a write to disk or in its callback."""


@click.command(help=_HELP)
@count_option("--messages", 20_000, within=(100, 10_000_000), about="Of each loop and round.")
@count_option(
    "--slow-messages",
    200,
    within=(10, 100_000),
    about="Of each round of a loop that waits for each message.",
)
@count_option("--size", 100, within=(0, 1024 * 1024))
@count_option("--rounds", 3, within=(1, 100))
@reports
def loops(
    *, messages: int, slow_messages: int, size: int, rounds: int, json_file: Path | None
) -> None:
    """Measure and show."""
    rates: dict[str, list[float]] = {loop.name: [] for loop in LOOPS}
    with TemporaryDirectory(prefix="partq-bench-") as directory:
        asyncio.run(_measure(Path(directory), messages, slow_messages, size, rounds, rates))
    found = {name: round(median(each)) for name, each in rates.items()}
    rows = [
        {k: v for k, v in asdict(loop).items() if k != "run"} | {"msgs_per_s": found[loop.name]}
        for loop in LOOPS
    ]
    width = max(len(loop.code) for loop in LOOPS)
    lines = [f"{loop.code:{width}}  {found[loop.name]:10,}" for loop in LOOPS]
    show_report(rows, "\n".join([f"{'loop':{width}}  messages/s", *lines]), json_file)


async def _measure(
    directory: Path,
    messages: int,
    slow_messages: int,
    size: int,
    rounds: int,
    rates: dict[str, list[float]],
) -> None:
    resources = resources_of(
        queue_document(_READ, partitions=PARTITIONS),
        queue_document(_WRITTEN, partitions=PARTITIONS),
        *(group_document(loop.name, _READ) for loop in CONSUMING),
    )
    values = [Message(f"key-{number % KEYS}", bytes(size)) for number in range(messages)]
    # One broker: of two, one that starts late gets its share in the middle of a loop.
    async with EmbeddedRuntime(
        resources, directory, broker_count=1, log_level="warning", lease_ttl_s=LEASE_TTL_S
    ) as runtime:
        for number in range(rounds):
            async with _producer(runtime.queue(_READ)) as producer:
                await producer.send_many(values)
            for loop in LOOPS:
                chosen = values[:slow_messages] if loop.is_slow else values
                queue = runtime.queue(_READ if loop in CONSUMING else _WRITTEN)
                rate = len(chosen) / await loop.run(queue, loop.name, chosen)
                rates[loop.name].append(rate)
                click.echo(f"round {number + 1}: {loop.name} {rate:,.0f}/s", err=True)


def _producer(queue: RunningQueue, *, linger_ms: float = 5) -> Producer:
    return Producer(queue.url, queue=queue.name, token=queue.tokens.produce, linger_ms=linger_ms)


def _consumer(queue: RunningQueue, group: str, *, auto_ack: bool = False) -> Consumer:
    return Consumer(
        queue.url, queue=queue.name, group=group, token=queue.tokens.consume, auto_ack=auto_ack
    )


# ---- consuming: the clock starts with the first message ----


async def _ack(
    queue: RunningQueue, group: str, values: list[Message], *, confirmed: bool = False
) -> float:
    async with _consumer(queue, group) as consumer:
        began, left = 0.0, len(values)
        async for message in consumer:
            began = began or time.perf_counter()
            await consumer.ack(message, confirmed=confirmed)
            left -= 1
            if not left:
                break
        await consumer.flush()
        return time.perf_counter() - began


async def _auto_ack(queue: RunningQueue, group: str, values: list[Message]) -> float:
    async with _consumer(queue, group, auto_ack=True) as consumer:
        began, left = 0.0, len(values)
        async for message in consumer:
            began = began or time.perf_counter()
            left -= 1
            if not left:
                consumer.ack_nowait(message)
                break
        await consumer.flush()
        return time.perf_counter() - began


async def _ack_nowait(queue: RunningQueue, group: str, values: list[Message]) -> float:
    async with _consumer(queue, group) as consumer:
        began, left = 0.0, len(values)
        async for message in consumer:
            began = began or time.perf_counter()
            consumer.ack_nowait(message)
            left -= 1
            if not left:
                break
        await consumer.flush()
        return time.perf_counter() - began


async def _batches(queue: RunningQueue, group: str, values: list[Message]) -> float:
    async with _consumer(queue, group) as consumer:
        began, left = 0.0, len(values)
        async for batch in consumer.batches():
            began = began or time.perf_counter()
            consumer.ack_nowait(batch)
            left -= len(batch)
            if left <= 0:
                break
        await consumer.flush()
        return time.perf_counter() - began


async def _run(
    queue: RunningQueue, group: str, values: list[Message], *, concurrency: int
) -> float:
    began, ended, left = 0.0, 0.0, len(values)

    async def handle(_: Delivery) -> None:
        nonlocal began, ended, left
        began = began or time.perf_counter()
        await asyncio.sleep(HANDLER_S)
        left -= 1
        if left <= 0:
            ended = ended or time.perf_counter()
            consumer.leave()

    async with _consumer(queue, group, auto_ack=True) as consumer:
        await consumer.run(handle, concurrency=concurrency)
    return ended - began


# ---- publishing ----


async def _send_and_wait(
    queue: RunningQueue, _: str, values: list[Message], *, linger_ms: float = 5
) -> float:
    async with _producer(queue, linger_ms=linger_ms) as producer:
        began = time.perf_counter()
        for message in values:
            await producer.send_and_wait(message.value, key=message.key)
        return time.perf_counter() - began


async def _gather(queue: RunningQueue, _: str, values: list[Message]) -> float:
    async with _producer(queue) as producer:
        began = time.perf_counter()
        stored = [await producer.send(message.value, key=message.key) for message in values]
        await asyncio.gather(*stored)
        return time.perf_counter() - began


async def _send_many(queue: RunningQueue, _: str, values: list[Message]) -> float:
    async with _producer(queue) as producer:
        began = time.perf_counter()
        await (await producer.send_many(values))
        return time.perf_counter() - began


CONSUMING = (
    Loop("ack", "async for m in c: await c.ack(m)", _ack),
    Loop(
        "ack-confirmed",
        "... await c.ack(m, confirmed=True)",
        partial(_ack, confirmed=True),
        is_slow=True,
    ),
    Loop("auto-ack", "Consumer(auto_ack=True)", _auto_ack),
    Loop("ack-nowait", "... c.ack_nowait(m), then c.flush()", _ack_nowait),
    Loop("run", "await c.run(slow)", partial(_run, concurrency=1), is_slow=True),
    Loop("run-16", "... concurrency=16", partial(_run, concurrency=16), is_slow=True),
    Loop("batches", "c.batches(), c.ack_nowait(batch)", _batches),
)
PUBLISHING = (
    Loop("send-and-wait", "await p.send_and_wait(), linger_ms=5", _send_and_wait, is_slow=True),
    Loop("at-once", "... linger_ms=0", partial(_send_and_wait, linger_ms=0), is_slow=True),
    Loop("gather", "gather(*[await p.send() ...])", _gather),
    Loop("send-many", "await (await p.send_many(list))", _send_many),
)
LOOPS = (*CONSUMING, *PUBLISHING)
