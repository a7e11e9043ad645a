"""Real runs to audit: brokers with the record on, members that come and go, a broker killed.

And one of messages that fail, are held for too long, are given up, expire, and are read again.
"""

import asyncio
from contextlib import suppress

from partq import Consumer, LogReader, Producer
from partq.arrow.columns import record_batches
from partq.client.audit_reader import AuditReader
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session
from partq.core.model import PartitionId
from partq.errors import FencedError
from partq.pipeline.archive_columns import arrow_schema
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.audit_record import decode_group
from tests.even_shares import even_shares
from tests.pipeline.audit.model import Message

GROUP, HOLDING = "workers", "holding"
"""The second one has no member: it holds the log until all of it is read."""
COUNT = 400
ORDERED, FREE, KEYED = "ordered", "free", "keyed"
TROUBLED = 3
"""Generation under which the partitions of the second run stand in the archive."""
MAX_REDELIVERIES = 2
EXPIRED = range(COUNT, COUNT + 20)


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
        partitions=3,
        groups=[GROUP, HOLDING],
        broker_count=2,
        spec={"audit": True},
    ) as broker:
        await even_shares(broker.queue)
        done = set()
        await publish(broker, 0)
        first = asyncio.create_task(consume(broker, "first", done))
        await eventually(lambda: len(done) > COUNT // 4, "acknowledgements", timeout_s=280)
        second = asyncio.create_task(consume(broker, "second", done))
        await publish(broker, COUNT)
        await broker.queue.brokers[0].kill()
        await publish(broker, 2 * COUNT)
        await eventually(lambda: len(done) == 3 * COUNT, "acknowledgements", timeout_s=280)
        for task in (second, first):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return await read(broker)


async def troubled_run():
    """Return every partition's record and messages, of a run in which consumers fail."""
    rules = {
        "ack": {"timeoutSeconds": 0.3, "tickSeconds": 0.25, "maxRedeliveries": MAX_REDELIVERIES},
        "deadLetter": {"create": True},
    }
    groups = {
        ORDERED: rules | {"nack": {"delaySeconds": 0}},
        FREE: rules | {"nack": {"delaySeconds": 0, "order": "Free"}},
        KEYED: rules | {"nack": {"delaySeconds": 0, "order": "Key"}},
        HOLDING: {},
    }
    async with LocalBroker(partitions=2, groups=groups, spec={"audit": True}) as broker:
        await publish(broker, 0)
        await publish(broker, COUNT, count=len(EXPIRED), ttl_s=0.001)
        await publish(broker, EXPIRED.stop)
        for group in (ORDERED, FREE, KEYED):
            await struggle(broker, group)
        options = ConnectionOptions(broker.url, "orders", token=broker.tokens.admin)
        async with Session(options) as session:
            await session.ask("POST", f"/groups/{ORDERED}/reset", object, {"to": "earliest"})
        await struggle(broker, ORDERED)
        return await read(broker, TROUBLED)


async def struggle(broker, group):
    """Consume all, with every kind of failure on the way."""
    done = set()
    async with (
        asyncio.timeout(280),
        Consumer(
            broker.url, queue="orders", group=group, token=broker.tokens.consume, member="only",
            leave_timeout_s=1.0,
        ) as consumer,
    ):  # fmt: skip
        async for message in consumer:
            value, count = int(message.value), message.redeliveries
            if value % 53 == 7:  # it never works: a dead letter in the end
                await consumer.nack(message)
                if count < MAX_REDELIVERIES:
                    continue
            elif value % 29 == 3 and not count:
                await consumer.nack(message, delay_s=0.01)
                continue
            elif value % 211 == 5 and not count:
                continue  # in hand until the time for its ack is over
            else:
                consumer.ack_nowait(message)
            done.add(value)
            if len(done) == 2 * COUNT:
                break
        await consumer.flush()


async def publish(broker, start, *, count=COUNT, ttl_s=None):
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        sent = [
            await producer.send(b"%d" % value, key=f"key-{value % 17}", ttl_s=ttl_s)
            for value in range(start, start + count)
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


def message_of(row):
    """Return an archived row."""
    at_ms = round(1000 * row.pop("publish_time").timestamp())
    del row["generation"], row["partition_index"]
    return Message(at_ms=at_ms, **row)


async def read(broker, generation=1):
    runs = []
    given = {"queue": "orders", "token": broker.tokens.admin}
    async with AuditReader(broker.url, **given) as record, LogReader(broker.url, **given) as log:
        for partition in await record.partitions():
            name = PartitionId(generation, partition.index)
            rows = [
                row
                async for group in record.groups(partition, 0)
                for row in decode_group(name, group)
            ]
            stored = [batch async for batch in log.entries(partition, 0, None)]
            columns = arrow_schema("messages")
            messages = [
                message_of(row)
                for batch in record_batches(
                    stored, columns, queue="orders", partition=name, start=0, stop=2**62
                )
                for row in batch.to_pylist()
            ]
            runs.append(Recorded(str(name), rows, messages))
    return runs
