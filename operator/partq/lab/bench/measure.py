"""The measurement: both sides in turn, warm-up first, medians at the end."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import psutil

from partq.client.produce.batching import CODECS
from partq.core.samples.percentile import percentile
from partq.errors import InternalError
from partq.lab.bench import partq_side, redis_baseline
from partq.lab.bench.partq_side import Queue
from partq.lab.bench.redis_baseline import Plain
from partq.lab.bench.workers import (
    ReadOrder,
    RestOrder,
    RestResult,
    Worker,
    WriteOrder,
    WriteResult,
    follow,
)
from partq.lab.bench.workload import ReaderTally, Workload

RUNS = 3
READERS = 2
"""Reading processes on each side."""
SINGLES_PER_S = 1000
MAX_SINGLES = 3000
_STALL_S = 30.0
"""When nothing comes for this long, what is missing counts as lost."""
_SPREAD_S = 60.0

Pids = Mapping[str, Sequence[int]]
"""The processes of a side by what they are called in the report."""


@dataclass(frozen=True, slots=True)
class BenchLoad:
    """What is measured."""

    partitions: int
    keys: int
    size: int
    """Bytes of a message's value."""
    messages: int
    consumers: int
    compression: str
    """Of both sides' batches."""
    input: str = ""
    """The file of the values' text; empty: they are zeros."""


@dataclass(frozen=True, slots=True)
class ThroughputRun:
    """One run of one side, as fast as it goes."""

    publish_msgs_per_s: float
    end_to_end_msgs_per_s: float
    cpu_s_per_million: dict[str, float]
    batch_messages: int
    """Mean messages of a stored batch."""


@dataclass(frozen=True, slots=True)
class Latency:
    """One run of one side with single messages at a steady rate, from due to delivered."""

    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class ReaderTotals:
    """What the readers of a side got in all, warm-up included."""

    published: int
    lost: int
    duplicates: int
    out_of_order: int
    received_bytes: int
    """Of the batches that brokers have sent; 0: the side has none."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that was measured."""

    runs: tuple[ThroughputRun, ...]
    limit_runs: tuple[ThroughputRun, ...]
    latencies: tuple[Latency, ...]
    limit_latencies: tuple[Latency, ...]
    totals: ReaderTotals


class Side:
    """Writer and readers of one side."""

    def __init__(
        self, plain: Plain, writer: Worker, readers: Sequence[Worker], servers: Pids, names: str
    ) -> None:
        """`names` are those of the writer and of the readers in the report."""
        self._plain = plain
        self._writer = writer
        self._readers = readers
        writer_name, readers_name = names.split()
        self._pids: Pids = {
            writer_name: [writer.pid],
            readers_name: [reader.pid for reader in readers],
            **servers,
        }
        self._published = 0
        self._seen: list[ReaderTally] = []
        self._received_bytes = 0

    def run(self, messages: int, batch_messages: int = 0) -> ThroughputRun:
        """Send `messages` as fast as it goes."""
        batches, cpu_s = redis_baseline.stored_batches(self._plain), self._cpu_s()
        written, done_at, _ = self._carry(WriteOrder(messages, batch_messages=batch_messages))
        cpu_s = {name: after - cpu_s[name] for name, after in self._cpu_s().items()}
        batches = redis_baseline.stored_batches(self._plain) - batches
        return ThroughputRun(
            messages / (written.confirmed_at - written.began_at),
            messages / (done_at - written.began_at),
            {name: 1e6 * used / messages for name, used in cpu_s.items()},
            round(messages / batches),
        )

    def run_singles(self, messages: int) -> Latency:
        """Send single messages at a steady rate."""
        _, _, latencies_ms = self._carry(WriteOrder(messages, SINGLES_PER_S))
        p50_ms, p99_ms = percentile(latencies_ms, 50), percentile(latencies_ms, 99)
        if p50_ms is None or p99_ms is None:
            raise InternalError(f"bench: none of {messages} messages has a latency")
        return Latency(p50_ms, p99_ms)

    def totals(self) -> ReaderTotals:
        """Return what came so far."""
        lacking = self._published - sum(seen.messages for seen in self._seen)
        return ReaderTotals(
            self._published,
            max(0, lacking),
            # Of what several readers got, none of them knows.
            sum(seen.duplicates for seen in self._seen) + max(0, -lacking),
            sum(seen.out_of_order for seen in self._seen),
            self._received_bytes,
        )

    def _carry(self, order: WriteOrder) -> tuple[WriteResult, float, list[float]]:
        """Have the order carried out; return its answer, when the last reader was done, latencies.

        Silence ends the wait, too: `totals` tells what is missing.
        """
        for reader in self._readers:
            reader.order(ReadOrder())
        self._published += order.messages
        self._writer.order(order)
        follow([self._writer, *self._readers], self._is_done, _STALL_S)
        written = self._writer.answer(WriteResult)
        for reader in self._readers:
            reader.order(RestOrder())
        rested = [reader.answer(RestResult) for reader in self._readers]
        self._seen = [each.seen for each in rested]
        self._received_bytes = sum(each.received_bytes for each in rested)
        done_at = max(reader.progress.at for reader in self._readers)
        return written, done_at, [ms for each in rested for ms in each.latencies_ms]

    def _is_done(self) -> bool:
        progress = [reader.progress for reader in self._readers]
        return (
            self._writer.has_answered
            and sum(each.messages for each in progress) >= self._published
            and not any(each.unconfirmed for each in progress)
        )

    def _cpu_s(self) -> dict[str, float]:
        try:
            return {name: sum(map(_cpu_s, pids)) for name, pids in self._pids.items()}
        except psutil.Error as error:
            raise InternalError(
                f"bench: a process has ended while it was measured: {error}"
            ) from error


def measure(
    load: BenchLoad,
    text: bytes,
    queue: Queue,
    plain: Plain,
    servers: Pids,
    say: Callable[[str], None],
) -> Measured:
    """Measure a queue that runs, and its Redis without it. Blocks; `say` tells how far it is.

    `text` is what the values consist of; empty: zeros. `servers` are the processes that serve the
    queue, `redis` among them.

    Raises:
        InternalError: a process has ended, or the limit's own messages came in disorder.
    """
    members = [f"bench-{number}" for number in range(load.consumers)]
    with ExitStack() as stack:

        def start(name: str, main: Callable[..., None], *args: object) -> Worker:
            return stack.enter_context(Worker(name, main, *args))

        consumers = [
            start("consumers", partq_side.read, queue, tuple(members[number::READERS]))
            for number in range(READERS)
        ]
        workload = Workload(load.keys, load.size, text)
        producer = start("producer", partq_side.write, queue, workload, load.compression)
        readers = [
            start(
                "reader",
                redis_baseline.read,
                Plain(plain.redis_url, plain.streams[number::READERS]),
            )
            for number in range(READERS)
        ]
        writer = start("writer", redis_baseline.write, plain, workload, CODECS[load.compression])
        say(f"waiting until {load.consumers} consumers share {load.partitions} partitions")
        wait_until_spread(consumers, load.consumers, load.partitions)
        queue_side = Side(plain, producer, consumers, servers, "producer consumers")
        limit_side = Side(plain, writer, readers, {"redis": servers["redis"]}, "writer readers")
        stack.callback(redis_baseline.remove, plain)

        rewrite = stack.enter_context(redis_baseline.rewrites_held_back(plain))

        def clean_up() -> None:
            redis_baseline.remove(plain)
            rewrite()

        def run_both(messages: int) -> tuple[ThroughputRun, ThroughputRun]:
            clean_up()
            run = queue_side.run(messages)
            return run, limit_side.run(messages, run.batch_messages)

        say("warming up")
        run_both(max(load.messages // 5, 1))
        clean_up()
        singles = max(1, min(MAX_SINGLES, load.messages // 10))
        latencies = []
        for number in range(1, RUNS + 1):
            redis_baseline.remove(plain)
            latencies.append((queue_side.run_singles(singles), limit_side.run_singles(singles)))
            say(f"latency {number} of {RUNS}: " + " / ".join(map(_shown, latencies[-1])))
        pairs = []
        for number in range(1, RUNS + 1):
            pairs.append(run_both(load.messages))
            say(f"rate {number} of {RUNS}: " + " / ".join(map(_rate, pairs[-1])))
        limit_totals = limit_side.totals()
        if limit_totals.lost or limit_totals.duplicates or limit_totals.out_of_order:
            raise InternalError(f"bench: the limit's own messages: {limit_totals}")
        runs, limit_runs = zip(*pairs, strict=True)
        of_queue, of_limit = zip(*latencies, strict=True)
        return Measured(runs, limit_runs, of_queue, of_limit, queue_side.totals())


def wait_until_spread(readers: Sequence[Worker], consumers: int, whole: int, odd: int = 1) -> None:
    """Wait until the consumers of the readers share a whole evenly.

    Args:
        readers: processes with consumers.
        consumers: how many they have in all.
        whole: of what they hold, all together.
        odd: by how much the fullest may exceed the emptiest.

    Raises:
        InternalError: they do not in time.
    """

    def is_spread() -> bool:
        held = [count for each in readers for count in each.progress.held]
        is_complete = len(held) == consumers and sum(held) == whole
        return is_complete and max(held) - min(held) <= odd

    if not follow(readers, is_spread, _SPREAD_S):
        held = [reader.progress.held for reader in readers]
        raise InternalError(f"bench: the consumers hold {held} of {whole}, expected equal shares")


def _rate(run: ThroughputRun) -> str:
    return f"{run.end_to_end_msgs_per_s:,.0f} messages/s"


def _shown(latency: Latency) -> str:
    return f"p50 {latency.p50_ms:.2f} ms, p99 {latency.p99_ms:.2f} ms"


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
