"""A consumer that seeks, against real brokers, in each type of group with one owner a partition."""

import asyncio

import pytest

from partq import (
    Cause,
    ClientAssignedConsumer,
    Consumer,
    FencedError,
    Message,
    PartitionId,
    PartitionKey,
    Producer,
    RolledBackError,
)
from partq.errors import BadRequestError
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.even_shares import even_shares

WAIT_S = 60.0
PARTITIONS = [PartitionId(1, 0), PartitionId(1, 1)]
COUNT = 60
GROUPS = {
    "workers": {},
    "masters": {"type": "Failover"},
    "alone": {"type": "Exclusive"},
    "chosen": {"assignment": "Client"},
}


@pytest.fixture
async def local():
    groups = {**GROUPS, "keeper": {}}  # which acknowledges nothing, so that nothing is trimmed
    async with LocalBroker(partitions=2, broker_count=2, groups=groups) as local:
        await even_shares(local.queue)
        yield local


async def publish(local, prefix, count=COUNT):
    """Store messages; return by partition how many there are."""
    token = local.tokens.produce
    async with Producer(local.url, queue="orders", token=token) as producer:
        sent = await producer.send_many(
            [Message(f"k{n}", b"%s-%d" % (prefix, n)) for n in range(count)]
        )
        await sent


async def open_consumer(local, group, **settings):
    """Return an entered consumer that has both partitions, and what it is told of them."""
    kind = ClientAssignedConsumer if group == "chosen" else Consumer
    told = []
    consumer = kind(
        local.url,
        queue="orders",
        group=group,
        token=local.tokens.consume,
        on_revoked=lambda partition, cause: told.append((partition, cause)),
        handle_signals=False,
        **settings,
    )
    await consumer.__aenter__()
    if group == "chosen":
        for partition in PARTITIONS:
            await consumer.register(PartitionKey("orders", partition))
    await eventually(lambda: consumer.partitions == set(PARTITIONS), "it has all partitions")
    return consumer, told


async def read(consumer, count):
    """Return the next messages, each acknowledged."""
    found = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            message = await anext(consumer)
            await consumer.ack(message)
            found.append(message)
    return found


def places(found):
    return {(each.partition, each.offset): each.value for each in found}


@pytest.mark.parametrize("group", GROUPS)
async def test_back_and_forward_in_every_type_of_group(local, group):
    await publish(local, b"a")
    consumer, told = await open_consumer(local, group)
    async with asyncio.timeout(4 * WAIT_S):
        before = await read(consumer, COUNT)
        assert await consumer.seek("earliest") == dict.fromkeys(PARTITIONS, 0)
        again = await read(consumer, COUNT)
        assert places(again) == places(before)
        assert {each.cause for each in again} == {Cause.RESET}
        with pytest.raises(FencedError):
            await consumer.ack(before[-1], confirmed=True)
        await consumer.flush()

        last = max(offset for partition, offset in places(again) if partition == PARTITIONS[0])
        assert await consumer.seek({PARTITIONS[0]: last}) == {PARTITIONS[0]: last}
        assert [(m.partition, m.offset) for m in await read(consumer, 1)] == [(PARTITIONS[0], last)]

        await publish(local, b"skipped")
        await consumer.seek("latest")
        await publish(local, b"late")
        assert {m.value.split(b"-")[0] for m in await read(consumer, COUNT)} == {b"late"}
        assert await consumer.seek({"at_ms": 0}) == dict.fromkeys(PARTITIONS, 0)
        assert len(await read(consumer, 3 * COUNT)) == 3 * COUNT
        assert told == [], "it had the partitions all the time"
        await consumer.close()


async def test_a_place_that_is_not_there_moves_nothing(local):
    await publish(local, b"a")
    consumer, told = await open_consumer(local, "workers")
    before = await read(consumer, COUNT)
    for where, error, text in (
        ({PARTITIONS[0]: 10_000}, RolledBackError, "the log ends at"),
        ({"at_ms": 10**14}, BadRequestError, "lies in the future"),
        ({PartitionId(1, 7): 0}, FencedError, "partition 1.7, expected one that this consumer"),
    ):
        with pytest.raises(error, match=text):
            await consumer.seek(where)
    await consumer.ack(before[-1], confirmed=True)
    assert told == []
    await consumer.close()


async def test_the_other_members_are_not_touched(local):
    await publish(local, b"a")
    consumer, _ = await open_consumer(local, "workers")
    await read(consumer, COUNT)
    other = Consumer(
        local.url, queue="orders", group="workers", token=local.tokens.consume, handle_signals=False
    )
    async with other:
        await eventually(lambda: len(other.partitions) == 1, "it has its share")
        (partition,) = consumer.partitions
        assert await consumer.seek("earliest") == {partition: 0}
        (theirs,) = other.partitions
        with pytest.raises(FencedError, match=f"of {partition}; nothing was moved"):
            await consumer.seek({theirs: 0})
        found = await read(consumer, 1)
        assert (found[0].partition, found[0].offset) == (partition, 0)
        await publish(local, b"b")
        assert {m.value[:1] for m in await read(other, 1)} == {b"b"}
    await consumer.close()


async def test_in_the_middle_of_a_stream_nothing_old_comes_after_it(local):
    """With messages in the buffer, acks under way, and a callback that seeks."""
    await publish(local, b"a", 2000)
    consumer, _ = await open_consumer(local, "workers", auto_ack=True)
    seen, sought = [], []

    async def handle(message):
        if sought:
            seen.append(message)
            if len(seen) == 2000:
                consumer.leave()
        elif message.offset == 300:
            sought.append(await consumer.seek("earliest"))

    async with asyncio.timeout(WAIT_S):
        await consumer.run(handle)
    assert sought == [dict.fromkeys(PARTITIONS, 0)]
    assert {each.cause for each in seen} <= {Cause.RESET, Cause.NONE}
    for partition in PARTITIONS:
        offsets = [each.offset for each in seen if each.partition == partition]
        assert offsets == list(range(len(offsets)))
    await consumer.flush()
    await consumer.close()
