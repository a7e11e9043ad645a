"""The physical limit: the same messages through plain Redis streams, by redis-py alone.

One writer and two readers do for each message what producer and consumers of a queue do (make it,
hash its key, encode it, decode it, check its key's order) and share batches of the same size, but
nothing is owned, numbered, acknowledged or trimmed. What is left is what Redis, the disk and
Python's work per message allow.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import Any

import redis

from partq.client.produce.partitioner import Partitioner
from partq.core.layout import Layout
from partq.errors import InternalError
from partq.lab.bench.rate import pace
from partq.lab.bench.workers import (
    PROGRESS_EVERY_S,
    ReaderLog,
    ReadOrder,
    WriteOrder,
    WriteResult,
    next_order,
)
from partq.lab.bench.workload import BLOCK_MESSAGES, OrderCheck, Workload
from partq.wire.batch import Codec, decode, encode, encode_messages

_Pack = Callable[[Sequence[bytes], Iterable[int]], bytes]
"""Makes a batch of encoded messages and their slots."""

_FIELD = b"batch"
_ENTRIES_PER_READ = 64
"""Of each stream in one XREAD: some 100,000 messages for eight streams, when there are so many."""
_TIMEOUT_S = 30.0
_REWRITE_S = 120.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Plain:
    """Where the limit is measured."""

    redis_url: str
    streams: tuple[str, ...]
    """One for each partition."""

    @classmethod
    def of(cls, redis_url: str, partition_count: int) -> "Plain":
        """Return a separate place in the Redis at `redis_url`."""
        return cls(
            redis_url, tuple(f"partq-bench:{{limit}}:{index}" for index in range(partition_count))
        )


@contextmanager
def _client(plain: Plain) -> Iterator[Any]:
    client = redis.Redis.from_url(plain.redis_url, protocol=2, socket_timeout=_TIMEOUT_S)
    try:
        yield client
    finally:
        client.close()


def remove(plain: Plain) -> None:
    """Delete the streams."""
    with _client(plain) as client:
        client.unlink(*plain.streams)


def settings(plain: Plain) -> dict[str, str]:
    """Return the settings of Redis that decide what a confirmed write is worth."""
    with _client(plain) as client:
        found: dict[str, str] = client.config_get("append*")
    return {name: found[name] for name in ("appendonly", "appendfsync")}


@contextmanager
def rewrites_held_back(plain: Plain) -> Iterator[Callable[[], None]]:
    """Let Redis rewrite its append-only file only when the function that is yielded is called.

    Otherwise a rewrite would hit one run and spare the next.
    """
    with _client(plain) as client:
        setting = "auto-aof-rewrite-percentage"
        before = client.config_get(setting)[setting]
        client.config_set(setting, 0)

        def rewrite() -> None:
            client.bgrewriteaof()
            by = monotonic() + _REWRITE_S
            while _is_rewriting(client.info("persistence")):
                if monotonic() > by:
                    raise InternalError(f"bench: Redis rewrites its file for {_REWRITE_S:g} s")
                sleep(_POLL_S)

        yield rewrite
        client.config_set(setting, before)


def _is_rewriting(persistence: Mapping[str, int]) -> bool:
    return bool(persistence["aof_rewrite_in_progress"] or persistence["aof_rewrite_scheduled"])


def stored_batches(plain: Plain) -> int:
    """Return how many stream entries this Redis has taken since it started, scripts' included."""
    with _client(plain) as client:
        stats: dict[str, dict[str, int]] = client.info("commandstats")
    return stats.get("cmdstat_xadd", {}).get("calls", 0)


def write(plain: Plain, workload: Workload, codec: Codec, connection: Connection) -> None:
    """Be the writer's process."""
    pack = partial(encode, codec=codec)
    with _client(plain) as client:
        while (order := next_order(connection)) is not None:
            assert isinstance(order, WriteOrder)  # noqa: S101  # writers get no other
            began_at = monotonic()
            if order.per_s:
                _write_singles(client, plain.streams, workload, order.messages, order.per_s, pack)
            else:
                _write_batches(
                    client, plain.streams, workload, order.messages, order.batch_messages, pack
                )
            connection.send(WriteResult(began_at, monotonic()))


def _write_batches(
    client: Any,
    streams: tuple[str, ...],
    workload: Workload,
    count: int,
    batch_messages: int,
    pack: _Pack,
) -> None:
    """Fill a pipeline with batches of many streams while the one before is under way."""
    sorting = _slots(len(streams))
    encoded: list[list[bytes]] = [[] for _ in streams]
    slots: list[list[int]] = [[] for _ in streams]
    with ThreadPoolExecutor(max_workers=1) as sender:
        under_way: Future[Any] | None = None
        pipeline = client.pipeline(transaction=False)
        for done in range(0, count, BLOCK_MESSAGES):
            messages = workload.block(min(BLOCK_MESSAGES, count - done))
            for partition, part, part_slots in sorting.sort(messages, sorting.of(messages)):
                index = partition.index
                encoded[index] += encode_messages(part)
                slots[index] += part_slots
                if len(slots[index]) >= batch_messages:
                    pipeline.xadd(streams[index], {_FIELD: pack(encoded[index], slots[index])})
                    encoded[index], slots[index] = [], []
            if len(pipeline) >= len(streams):
                if under_way is not None:
                    under_way.result()
                under_way = sender.submit(pipeline.execute)
                pipeline = client.pipeline(transaction=False)
        for stream, rest, rest_slots in zip(streams, encoded, slots, strict=True):
            if rest:
                pipeline.xadd(stream, {_FIELD: pack(rest, rest_slots)})
        if under_way is not None:
            under_way.result()
        pipeline.execute()


def _slots(partition_count: int) -> Partitioner:
    """Return what the client hashes keys and sorts messages by."""
    return Partitioner(Layout.first(partition_count), "Random", (), random.Random(0))  # noqa: S311


def _write_singles(
    client: Any,
    streams: tuple[str, ...],
    workload: Workload,
    count: int,
    per_s: int,
    pack: _Pack,
) -> None:
    """Add single messages, each when it is due; those due meanwhile share the next round trip.

    One connection, because two would not keep the order of a key.
    """
    sorting = _slots(len(streams))
    due: SimpleQueue[int] = SimpleQueue()
    Thread(target=pace, args=(count, per_s, due.put), daemon=True).start()
    while count:
        pipeline = client.pipeline(transaction=False)
        for _ in range(max(1, due.qsize())):
            messages = workload.block(1, due.get())
            ((partition, part, slots),) = sorting.sort(messages, sorting.of(messages))
            entry = {_FIELD: pack(encode_messages(part), slots)}
            pipeline.xadd(streams[partition.index], entry)
        count -= len(pipeline)
        pipeline.execute()


def read(plain: Plain, connection: Connection) -> None:
    """Be a reader's process: the streams of `plain` are its own."""
    check = OrderCheck()
    log = ReaderLog(connection, check.seen)
    with _client(plain) as client:
        while (order := next_order(connection)) is not None:
            if isinstance(order, ReadOrder):
                _read_until_ordered(client, plain.streams, check, log)
            else:
                log.rested()


def _read_until_ordered(
    client: Any, streams: tuple[str, ...], check: OrderCheck, log: ReaderLog
) -> None:
    """Read from the streams' beginning on, until an order waits in the pipe."""
    after: dict[Any, Any] = dict.fromkeys(streams, "0-0")
    wait_ms = round(1000 * PROGRESS_EVERY_S)
    while not log.connection.poll():
        for stream, entries in client.xread(after, _ENTRIES_PER_READ, wait_ms) or ():
            for _, fields in entries:
                messages = decode(fields[_FIELD])
                check.check(messages)
                log.took(messages)
            after[stream.decode()] = entries[-1][0]
            log.done()
        log.report()
