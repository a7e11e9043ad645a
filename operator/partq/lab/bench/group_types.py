"""What the type of a group costs: the same load through groups of several types, side by side."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Final

from partq.client.consumer import Consumer
from partq.client.producer import Producer
from partq.core.layout import Layout
from partq.core.model import SLOT_COUNT
from partq.core.parts.part_id import DEFAULT_PARTS
from partq.embedded.runtime import EmbeddedRuntime, RunningQueue
from partq.lab.bench import partq_side, redis_baseline
from partq.lab.bench.measure import READERS, ReaderTotals, Side, ThroughputRun, wait_until_spread
from partq.lab.bench.partq_side import Queue
from partq.lab.bench.workers import Worker
from partq.lab.bench.workload import BLOCK_MESSAGES, MIN_VALUE_BYTES, Workload
from partq.resources import group_document, queue_document, resources_of
from partq.store.connection import Store
from partq.store.keys import Keys

BASELINE: Final = "Partitioned"
"""The type that the others are compared with."""
TYPES: Final = ("KeyShared", "Shared")
"""Those that can be compared with it."""
LEASE_TTL_S: Final = 20.0
"""Of the brokers: a busy machine holds them up, and a lease that is over is not measured here."""
SPARSE_ACKS: Final = 100_000
"""How many single messages are acknowledged before the record of the group is looked at."""
_SPARSE_SPAN: Final = 16_000
"""Of them and their gaps in a partition at most: less than `ack.maxSpan`."""
SPARSE_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TypesLoad:
    """What flows through each group."""

    types: tuple[str, ...]
    """Beside the baseline."""
    partitions: int
    keys: int
    size: int
    """Bytes of a message's value."""
    messages: int
    """Of each run."""
    consumers: int
    """Of the baseline at most as many as partitions: others would have nothing to do."""
    rounds: int

    @property
    def sparse_messages(self) -> int:
        """Of the last look: every second one is acknowledged."""
        return min(2 * SPARSE_ACKS, _SPARSE_SPAN * self.partitions)


@dataclass(slots=True)
class TypeFigures:
    """What the runs of one type came to."""

    runs: list[ThroughputRun] = field(default_factory=list)
    totals: ReaderTotals = field(default_factory=lambda: ReaderTotals(0, 0, 0, 0, 0))
    record_bytes: int | None = None
    """Of the largest record of a partition after the sparse acks; None: it was not looked at."""

    @property
    def rates(self) -> list[float]:
        """Messages per second from the producer to the last ack that is stored, of each run."""
        return [each.end_to_end_msgs_per_s for each in self.runs]

    @property
    def egress_bytes(self) -> float:
        """Bytes that brokers have sent to consumers for each published message."""
        return self.totals.received_bytes / max(self.totals.published, 1)

    @property
    def is_good(self) -> bool:
        """Whether everything came, in the order of its key where the type keeps one."""
        return not (self.totals.lost or self.totals.out_of_order)


Figures = Mapping[str, TypeFigures]
"""By type."""


async def measure_types(load: TypesLoad, directory: Path, say: Callable[[str], None]) -> Figures:
    """Measure a queue for each type; all run in one Redis and take turns, and no other works.

    Raises:
        InternalError: a process has ended, or consumers do not share their queue.
    """
    # Each queue has one group, of its name.
    names = {each: f"bench-{each.lower()}" for each in (BASELINE, *load.types)}
    limits = {"maxUnackedPerFlow": 1_000_000}
    resources = resources_of(
        *(
            queue_document(name, partitions=load.partitions, limits=limits)
            for name in names.values()
        ),
        *(group_document(name, name, type=each) for each, name in names.items()),
    )
    async with EmbeddedRuntime(
        resources, directory, broker_count=1, log_level="warning", lease_ttl_s=LEASE_TTL_S
    ) as runtime:
        queues = {each: runtime.queue(name) for each, name in names.items()}
        figures = await asyncio.to_thread(_measure_rates, load, queues, runtime, say)
        for each in load.types:
            if figures[each].is_good:
                say(f"{each}: {load.sparse_messages // 2:,} sparse acks")
                figures[each].record_bytes = await _measure_record(load, queues[each], runtime)
    return figures


def _measure_rates(
    load: TypesLoad,
    queues: Mapping[str, RunningQueue],
    runtime: EmbeddedRuntime,
    say: Callable[[str], None],
) -> dict[str, TypeFigures]:
    """Run all types in turn; the first round only warms up."""
    figures = {each: TypeFigures() for each in queues}
    plain = redis_baseline.Plain(runtime.redis_url, ())
    with ExitStack() as stack:
        sides = {each: _start(stack, load, each, queue, runtime) for each, queue in queues.items()}
        rewrite = stack.enter_context(redis_baseline.rewrites_held_back(plain))
        for number in range(load.rounds + 1):
            count = load.messages if number else max(load.messages // 5, 1)
            rewrite()
            # Each begins as often as the others.
            for each in islice(cycle(sides), number, number + len(sides)):
                run = sides[each].run(count)
                if number:
                    figures[each].runs.append(run)
                    say(f"round {number}, {each}: {run.end_to_end_msgs_per_s:,.0f} messages/s")
        for each, side in sides.items():
            figures[each].totals = side.totals()
    return figures


def _start(
    stack: ExitStack,
    load: TypesLoad,
    group_type: str,
    running: RunningQueue,
    runtime: EmbeddedRuntime,
) -> Side:
    """Start the processes of one type, and wait until its members share the queue."""
    tokens = running.tokens
    queue = Queue(
        running.url,
        running.name,
        running.name,
        tokens.produce,
        tokens.consume,
        is_ordered=group_type != "Shared",
    )
    count = min(load.consumers, load.partitions) if group_type == BASELINE else load.consumers
    members = [f"bench-{number}" for number in range(count)]
    readers = [
        stack.enter_context(
            Worker("consumers", partq_side.read, queue, tuple(members[number::READERS]))
        )
        for number in range(READERS)
    ]
    workload = Workload(load.keys, load.size)
    writer = stack.enter_context(Worker("producer", partq_side.write, queue, workload, "none"))
    if group_type == BASELINE:
        wait_until_spread(readers, count, load.partitions)
    elif group_type == "Shared":  # each member has every partition
        wait_until_spread(readers, count, count * load.partitions, 0)
    else:
        part = -(-SLOT_COUNT // (load.partitions * DEFAULT_PARTS))
        wait_until_spread(readers, count, SLOT_COUNT, 2 * part)
    brokers = [each.pid for each in running.brokers if each.pid is not None]
    servers = {"brokers": brokers, "redis": [runtime.redis.pid or 0]}
    return Side(
        redis_baseline.Plain(runtime.redis_url, ()), writer, readers, servers, "producer consumers"
    )


async def _measure_record(load: TypesLoad, queue: RunningQueue, runtime: EmbeddedRuntime) -> int:
    """Acknowledge every second message; return the bytes of the largest record of a partition.

    A flush writes such a record as a whole.
    """
    count = load.sparse_messages
    workload = Workload(load.keys, MIN_VALUE_BYTES)
    async with Producer(queue.url, queue=queue.name, token=queue.tokens.produce) as producer:
        for done in range(0, count, BLOCK_MESSAGES):
            await producer.send_many(workload.block(min(BLOCK_MESSAGES, count - done)))
        await producer.flush()
    async with (
        asyncio.timeout(SPARSE_TIMEOUT_S),
        Consumer(
            queue.url,
            queue=queue.name,
            group=queue.name,
            token=queue.tokens.consume,
            credit=2 * count,
        ) as consumer,
    ):
        kept = []
        acked = 0
        async for message in consumer:
            # The first of a partition stays unacknowledged, so that its cursor stands still.
            if message.offset % 2:
                consumer.ack_nowait(message)
                acked += 1
                if not acked % BLOCK_MESSAGES:
                    await consumer.flush()
            else:
                kept.append(message)
            if len(kept) + acked == count:
                break
        await consumer.flush()
        record_bytes = await _largest(load.partitions, queue, runtime.redis_url)
        for message in kept:
            consumer.ack_nowait(message)
        await consumer.flush()
    return record_bytes


async def _largest(partition_count: int, queue: RunningQueue, redis_url: str) -> int:
    """Return the bytes of the names and values of the group's largest record of a partition."""
    store = await Store.open(redis_url)
    try:
        keys = Keys(store.prefix, queue.namespace, queue.name, queue.uid)
        records = [
            await store.read("HGETALL", keys.cursor(partition, queue.name))
            for partition in Layout.first(partition_count).current_partitions
        ]
    finally:
        await store.close()
    return max(sum(map(len, each)) for each in records)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeReport:
    """The figures of one type."""

    end_to_end_msgs_per_s: int
    ratio: float
    ratios: list[float]
    egress_bytes_per_message: float
    egress_ratio: float
    cpu_s_per_million: dict[str, float]
    record_bytes: int | None
    lost: int
    out_of_order: int
    duplicates: int
    published: int


def report(load: TypesLoad, figures: Figures) -> dict[str, object]:
    """Return all figures under stable names."""
    return {
        "types": {each: asdict(_of_type(each, figures)) for each in figures},
        "sparse_acks": load.sparse_messages // 2,
        **{name: value for name, value in asdict(load).items() if name != "types"},
    }


def _of_type(group_type: str, figures: Figures) -> TypeReport:
    found, base = figures[group_type], figures[BASELINE]
    ratios = [
        round(rate / of_base, 3) for rate, of_base in zip(found.rates, base.rates, strict=True)
    ]
    egress_ratio = found.egress_bytes / base.egress_bytes if base.egress_bytes else 0.0
    return TypeReport(
        end_to_end_msgs_per_s=round(median(found.rates)),
        ratio=round(median(ratios), 3),
        ratios=ratios,
        egress_bytes_per_message=round(found.egress_bytes, 1),
        egress_ratio=round(egress_ratio, 2),
        cpu_s_per_million={
            name: round(median(run.cpu_s_per_million[name] for run in found.runs), 2)
            for name in found.runs[0].cpu_s_per_million
        },
        record_bytes=found.record_bytes,
        lost=found.totals.lost,
        out_of_order=found.totals.out_of_order,
        duplicates=found.totals.duplicates,
        published=found.totals.published,
    )


def render(load: TypesLoad, figures: Figures) -> str:
    """Return a page for people."""
    lines = [
        f"{load.messages:,} messages of {load.size} bytes, {load.keys:,} keys, "
        f"{load.partitions} partitions, {load.consumers} consumers",
        "",
        "type           messages/s   ratio   sent, bytes/message   broker, CPU s/million   record",
    ]
    lines += [_line(each, _of_type(each, figures)) for each in figures]
    lines += [
        "",
        f"ratio: medians of {load.rounds} rounds, to {BASELINE}; record: bytes of the largest "
        f"record of a partition after {load.sparse_messages // 2:,} sparse acks",
    ]
    return "\n".join(lines)


def _line(group_type: str, told: TypeReport) -> str:
    faults = {
        "lost": told.lost,
        "out of order": told.out_of_order,
        "duplicates": told.duplicates,
    }
    return (
        f"{group_type:12} {told.end_to_end_msgs_per_s:>12,}   {told.ratio:>5.2f}   "
        f"{told.egress_bytes_per_message:>19.1f}   {told.cpu_s_per_million['brokers']:>21.2f}   "
        f"{'' if told.record_bytes is None else f'{told.record_bytes:,}':>6}"
        + "".join(f"   {count:,} {name}" for name, count in faults.items() if count)
    )
