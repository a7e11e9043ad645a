"""A real run to audit: brokers with the record on, members that come and go, a broker killed."""

import asyncio
from contextlib import suppress

from partq import Consumer, LogReader, Producer
from partq.client.audit_reader import AuditReader
from partq.errors import FencedError
from partq.testing.local_broker import LocalBroker
from partq.wire.audit import decode_group
from tests.spark.audit.model import Message

GROUP, HOLDING = "workers", "holding"
"""The second one has no member: it holds the log until all of it is read."""
COUNT = 400


class Recorded:
    """A partition as it was read from a real queue, as `write_archive` takes it."""

    def __init__(self, name, rows, messages):
        self.name = name
        self.rows = rows
        self.messages = messages
        self.end = len(messages)
        self.record = {row.sequence for row in rows}


async def recorded_run():
    """Return every partition's record and messages."""
    async with LocalBroker(
        partitions=3, groups=[GROUP, HOLDING], broker_count=2, spec={"audit": True}
    ) as broker:
        done = set()
        await publish(broker, 0)
        first = asyncio.create_task(consume(broker, "first", done))
        await until(lambda: len(done) > COUNT // 4)
        second = asyncio.create_task(consume(broker, "second", done))
        await publish(broker, COUNT)
        await broker.queue.brokers[0].kill()
        await publish(broker, 2 * COUNT)
        await until(lambda: len(done) == 3 * COUNT)
        for task in (second, first):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return await read(broker)


async def publish(broker, start):
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        sent = [
            await producer.send(b"%d" % value, key=f"key-{value % 17}")
            for value in range(start, start + COUNT)
        ]
        for each in sent:
            await each


async def consume(broker, name, done):
    async with Consumer(
        broker.url, queue="orders", group=GROUP, token=broker.tokens.consume, member=name
    ) as consumer:
        async for delivery in consumer:
            done.add(delivery.value)
            with suppress(FencedError):  # its broker was killed: the message comes again
                await delivery.ack()


async def until(is_so, timeout_s=90):
    async with asyncio.timeout(timeout_s):
        while not is_so():  # noqa: ASYNC110  the condition is about other processes
            await asyncio.sleep(0.02)


async def read(broker):
    runs = []
    given = {"queue": "orders", "token": broker.tokens.admin}
    async with AuditReader(broker.url, **given) as record, LogReader(broker.url, **given) as log:
        for partition in await record.partitions():
            rows = [
                row
                async for group in record.groups(partition, 0)
                for row in decode_group(partition, group)
            ]
            messages = [
                Message(str(partition), offset, None, batch.at_ms, batch.append_broker_epoch)
                async for batch in log.entries(partition, 0, None)
                for offset in range(batch.first, batch.first + batch.count)
            ]
            runs.append(Recorded(str(partition), rows, messages))
    return runs
