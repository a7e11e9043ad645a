"""The queue's side: producer and consumers in their processes, through the public client."""

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from time import monotonic

from partq import Batch, Consumer, FencedError, Message, Producer
from partq.core.model import PartitionId
from partq.lab.bench.rate import pace
from partq.lab.bench.workers import (
    PROGRESS_EVERY_S,
    ReaderLog,
    RestOrder,
    WriteOrder,
    WriteResult,
    next_order,
)
from partq.lab.bench.workload import BLOCK_MESSAGES, ArrivalCheck, OrderCheck, Workload


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue that is measured."""

    url: str
    name: str
    group: str
    produce_token: str
    consume_token: str
    is_ordered: bool = True
    """Its group keeps the order of each key."""


def write(queue: Queue, workload: Workload, compression: str, connection: Connection) -> None:
    """Be the producer's process."""
    asyncio.run(_write(queue, workload, compression, connection))


def read(queue: Queue, members: tuple[str, ...], connection: Connection) -> None:
    """Be a process with one consumer for each of `members`."""
    asyncio.run(_read(queue, members, connection))


async def _write(
    queue: Queue, workload: Workload, compression: str, connection: Connection
) -> None:
    produce = partial(
        Producer,
        queue.url,
        queue=queue.name,
        token=queue.produce_token,
        compression=compression,
    )
    async with produce() as batching, produce(linger_ms=0) as at_once:
        while (order := await asyncio.to_thread(next_order, connection)) is not None:
            assert isinstance(order, WriteOrder)  # noqa: S101  # writers get no other
            began_at = monotonic()
            if order.per_s:
                await _write_singles(at_once, workload, order.messages, order.per_s)
            else:
                await _write_batches(batching, workload, order.messages)
            connection.send(WriteResult(began_at, monotonic()))


async def _write_batches(producer: Producer, workload: Workload, count: int) -> None:
    answers = [
        await producer.send_many(workload.block(min(BLOCK_MESSAGES, count - done)))
        for done in range(0, count, BLOCK_MESSAGES)
    ]
    await producer.flush()
    for answer in answers:
        answer.result()  # raises what was not stored


async def _write_singles(producer: Producer, workload: Workload, count: int, per_s: int) -> None:
    """Send single messages, each when it is due, whether or not those before are confirmed."""
    loop = asyncio.get_running_loop()
    sending: list[asyncio.Task[None]] = []

    async def send(message: Message) -> None:
        await (await producer.send(message.value, key=message.key))

    def start(due_ns: int) -> None:
        (message,) = workload.block(1, due_ns)
        sending.append(loop.create_task(send(message)))

    await asyncio.to_thread(
        pace, count, per_s, lambda due_ns: loop.call_soon_threadsafe(start, due_ns)
    )
    await asyncio.gather(*sending)


async def _read(queue: Queue, members: tuple[str, ...], connection: Connection) -> None:
    check = OrderCheck() if queue.is_ordered else ArrivalCheck()
    log = ReaderLog(connection, check.seen)
    async with AsyncExitStack() as stack:
        readers = [_MemberReader(queue, member) for member in members]
        for each in readers:
            await stack.enter_async_context(each.consumer)
        async with asyncio.TaskGroup() as tasks:
            works = [tasks.create_task(_report(readers, log))]
            works += [
                tasks.create_task(_consume(tasks, each.consumer, check, log)) for each in readers
            ]
            while (order := await asyncio.to_thread(next_order, connection)) is not None:
                if isinstance(order, RestOrder):
                    log.rested(sum(each.consumer.stats().received_bytes for each in readers))
            for work in works:
                work.cancel()


class _MemberReader:
    """One consumer, and how much of the queue it holds."""

    def __init__(self, queue: Queue, member: str) -> None:
        self._slots: dict[PartitionId, int] = {}
        """Of the type KeyShared: how many slots of each partition."""
        self.consumer = Consumer(
            queue.url,
            queue=queue.name,
            group=queue.group,
            token=queue.consume_token,
            member=member,
            on_lanes=self._note,
        )

    def _note(self, partition: PartitionId, ranges: list[tuple[int, int]]) -> None:
        self._slots[partition] = sum(stop - first for first, stop in ranges)

    @property
    def held(self) -> int:
        """How many slots of its partitions it has; of other types, how many partitions."""
        partitions = self.consumer.partitions
        if not self._slots:
            return len(partitions)
        return sum(self._slots.get(partition, 0) for partition in partitions)


async def _report(readers: list[_MemberReader], log: ReaderLog) -> None:
    while True:
        log.report(tuple(each.held for each in readers))
        await asyncio.sleep(PROGRESS_EVERY_S)


async def _consume(
    tasks: asyncio.TaskGroup,
    consumer: Consumer,
    check: OrderCheck | ArrivalCheck,
    log: ReaderLog,
) -> None:
    async for batch in consumer.batches():
        log.took(batch.messages)
        if isinstance(check, ArrivalCheck):
            check.check(batch.partition, batch.offsets)
        else:
            check.check(batch.messages)
        log.unconfirmed += 1
        tasks.create_task(_ack(consumer, batch, log))


async def _ack(consumer: Consumer, batch: Batch, log: ReaderLog) -> None:
    with suppress(FencedError):  # the messages are redelivered, and are counted as duplicates
        await consumer.ack(batch, confirmed=True)
    log.unconfirmed -= 1
    log.done()
