"""Deterministic producers against real brokers while the partition count of their queue changes."""

import asyncio
from collections import Counter, defaultdict

import pytest

from partq import ConflictError, LogReader, Message, Producer, ProducerInterceptor
from partq.core.hashing import slot_of
from partq.core.layout import Layout
from partq.core.model import SLOT_COUNT, PartitionId
from partq.errors import NotStoredError
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.wire import batch
from tests.client.test_change_with_brokers import change, cuts  # noqa: F401  a fixture

COUNT, WAIT_S = 600, 60.0
MESSAGES = [Message(f"k{number % 37}", b"%d" % number) for number in range(COUNT)]


@pytest.fixture
async def local():
    async with LocalBroker(queue="orders", partitions=4, broker_count=2) as local:
        yield local


def producer_of(local, name="job", **options):
    given = {"linger_ms": 1, "max_batch_count": 8, "max_pending_messages": 60, **options}
    return Producer(
        local.url, queue="orders", token=local.tokens.produce, producer_id=name, **given
    )


async def kill(producer):
    """End a producer as its process would: nothing that waits gets an answer."""
    sender, producer._sender = producer._sender, None
    sender.fail(NotStoredError("killed"))
    await sender.close()
    await producer._session.__aexit__()
    producer._failures.take_error()


async def publish(producer, messages=MESSAGES):
    """Send those of the messages that are not stored; return how many were."""
    skipped = 0
    for message in messages:
        if producer.skip_stored(message.key):
            skipped += 1
        else:
            await producer.send(message.value, key=message.key)
    return skipped


async def reached(local, generation):
    async with LogReader(local.url, queue="orders", token=local.tokens.admin) as reader:

        async def is_in_force():
            return (await reader.layout()).generation == generation

        await eventually(is_in_force, "the change is in force")


async def followed(producer, generation):
    """Wait until a producer sends by a layout."""
    sender = producer._sender

    def has_followed():
        sender._watch.hurry()
        return generation in {each.generation for each in sender._partition_senders}

    await eventually(has_followed, "the producer has followed")


async def stored(local):
    """Return the numbers of the messages of each key, the oldest generation first."""
    found = defaultdict(list)
    async with LogReader(local.url, queue="orders", token=local.tokens.admin) as reader:
        for partition in await reader.partitions():
            async for each in reader.entries(partition, 0):
                for message in batch.decode(each.data):
                    found[message.key].append(int(message.value))
    return found


def expected(messages=MESSAGES):
    found = defaultdict(list)
    for message in messages:
        found[message.key].append(int(message.value))
    return found


async def test_processes_that_come_back_and_go_on_store_each_message_once(local, cuts):  # noqa: F811
    """One is killed before the first change, one behind it, and one lives through the second."""
    async with asyncio.timeout(WAIT_S):
        first = await producer_of(local).__aenter__()
        await publish(first, MESSAGES[:200])
        await kill(first)
        await change(local, 6)
        await reached(local, 2)

        second = await producer_of(local).__aenter__()
        with pytest.raises(ConflictError, match=r"do not tell .* skip_stored"):
            await second.due()
        with pytest.raises(ConflictError, match=r"left out.* skip_stored"):
            await second.send(b"", key="k1")
        skipped = await publish(second, MESSAGES[:300])
        assert 0 < skipped <= 200
        await kill(second)

        async with producer_of(local) as third:
            cuts.share = 0.2
            skipped = await publish(third, MESSAGES[:400])
            changing = asyncio.create_task(change(local, 3))
            for message in MESSAGES[400:500]:
                assert not third.skip_stored(message.key)
                await third.send(message.value, key=message.key)
                if not changing.done():
                    await asyncio.wait((changing,), timeout=0.01)
            await changing
            await followed(third, 3)
            cuts.share = 0.0
            assert await publish(third, MESSAGES[500:]) == 0
        assert await stored(local) == expected()

        async with producer_of(local) as last:
            assert await publish(last) == COUNT
        assert await stored(local) == expected()


@pytest.mark.parametrize("has_interceptor", [False, True])
async def test_two_processes_of_one_id_store_each_message_once(local, has_interceptor):
    """One is ahead of the other when the count changes: what it has stored is known."""
    told = []

    class Listener(ProducerInterceptor):
        def on_send_result(self, queue, message, position, error):
            told.append((message.key, int(message.value), position.partition.generation))

    listeners = [Listener()] if has_interceptor else []
    async with (
        asyncio.timeout(WAIT_S),
        producer_of(local, interceptors=listeners) as behind,
        producer_of(local) as ahead,
    ):
        for producer, count in ((behind, 100), (ahead, 300)):
            await publish(producer, MESSAGES[:count])
            await producer.flush()
        await change(local, 6)
        await followed(behind, 2)
        await behind.send(MESSAGES[100].value, key=MESSAGES[100].key)
        places = await (await behind.send_many(MESSAGES[101:400]))
        await behind.flush()
        assert {place.offset for place in places[:199]} == {-1}
        assert min(place.offset for place in places[199:]) >= 0
        await publish(ahead, MESSAGES[300:])
        await publish(behind, MESSAGES[400:])
        await ahead.flush()
        await behind.flush()
    assert await stored(local) == expected()
    if has_interceptor:
        generations = {number: generation for _, number, generation in told}
        assert sorted(generations) == list(range(COUNT)), "once each"
        assert {generations[number] for number in range(300)} == {1}


async def test_an_application_that_counts_itself_goes_on_through_a_change(local):
    """Its partitions stay those that the numbers which were due are of."""
    async with asyncio.timeout(WAIT_S):
        async with producer_of(local) as first:
            await publish(first, MESSAGES[:200])
        async with producer_of(local) as second:
            due = Counter(await second.due())
            assert due.total() == 200
            for number, message in enumerate(MESSAGES):
                if number == 100:
                    await change(local, 6)
                    await followed(second, 2)
                partition = second.partition_of(message.key)
                if due[partition]:
                    due[partition] -= 1
                else:
                    await second.send(message.value, key=message.key)
    assert await stored(local) == expected()


async def test_what_has_failed_stays_failed_and_an_older_layout_is_not_followed(local):
    """Behind a message that has failed, numbers would stand for other messages."""
    home = PartitionId(1, 0)
    after = Layout.first(4).table.resized(6, 2).table
    places = ((f"k{number}", slot_of(f"k{number}")) for number in range(1000))
    key = next(
        key
        for key, slot in places
        if slot < SLOT_COUNT // 4 and after.partition_of(slot).generation == 2
    )
    async with asyncio.timeout(WAIT_S), producer_of(local) as producer:
        sender = producer._sender
        before = await sender._crossing.state()
        sender._partition_senders[home].broken = NotStoredError("it has failed")
        await change(local, 6)
        await followed(producer, 2)
        sender._follow_state(sender._crossing, before)
        assert sender._slot_routes.ranges.keys() == sender._partition_senders.keys()
        assert 2 in {each.generation for each in sender._partition_senders}
        with pytest.raises(NotStoredError, match="it has failed"):
            await (await producer.send(b"", key=key))
        producer._failures.take_error()
    assert not await stored(local)
