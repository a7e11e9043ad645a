"""LocalBroker is a real queue, and leaves nothing behind."""

import asyncio
import random

import pytest

from partq import Consumer, LogReader, Producer
from partq.errors import SettingsError
from partq.sync import Consumer as SyncConsumer
from partq.sync import Producer as SyncProducer
from partq.testing.local_broker import LocalBroker
from partq.wire.batch import Codec, decode, read_header


@pytest.mark.req("PUL-64", "PUL-65", "PUL-66")
async def test_messages_go_through():
    """However each producer compresses, in one partition, and one consumer reads them all."""
    async with LocalBroker(queue="orders", groups=["workers"]) as broker:
        data_dir = broker.runtime.data_dir
        produce, consume = broker.tokens.produce, broker.tokens.consume
        for codec in Codec:
            async with Producer(
                broker.url, queue="orders", token=produce, compression=codec.name.lower()
            ) as producer:
                await (await producer.send(b"hello by " + codec.name.encode(), key="k"))
        async with (
            asyncio.timeout(60),
            Consumer(broker.url, queue="orders", group="workers", token=consume) as consumer,
        ):
            for codec in Codec:
                message = await anext(consumer)
                assert (message.key, message.value) == ("k", b"hello by " + codec.name.encode())
                await consumer.ack(message)

    assert not data_dir.exists()


async def test_a_producer_compresses_where_it_pays():
    """Both kinds lie in one partition; the stored batches say how they are compressed."""
    text, noise = b"hello again " * 100, random.Random(1).randbytes(1000)
    async with LocalBroker(queue="orders", groups=[], partitions=1) as broker:
        async with Producer(
            broker.url, queue="orders", token=broker.tokens.produce, linger_ms=0
        ) as producer:
            for value in (text, noise, b"short"):
                await producer.send_and_wait(value, key="k")
        async with LogReader(broker.url, queue="orders", token=broker.tokens.consume) as reader:
            (partition,) = await reader.bounds()
            stored = [each async for each in reader.entries(partition, 0)]
    assert [read_header(each.data).codec for each in stored] == [Codec.LZ4, Codec.NONE, Codec.NONE]
    assert [decode(each.data)[0].value for each in stored] == [text, noise, b"short"]


async def test_given_directory_is_kept(tmp_path):
    async with LocalBroker(data_dir=tmp_path, groups=[], partitions=1) as broker:
        assert broker.queue.groups == ()
    assert (tmp_path / "redis").exists()


def test_wrong_spec_is_named():
    with pytest.raises(SettingsError, match=r"spec\.keylessPolicy: got 'Any', expected one of"):
        LocalBroker(spec={"keylessPolicy": "Any"})


def test_outside_of_its_block():
    with pytest.raises(RuntimeError, match="not started"):
        _ = LocalBroker().url


def test_it_serves_code_that_is_not_asynchronous():
    with LocalBroker(groups=["workers"]) as broker:
        data_dir = broker.runtime.data_dir
        with SyncProducer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
            producer.send_and_wait(b"hello", key="k")
        with SyncConsumer(
            broker.url, queue="orders", group="workers", token=broker.tokens.consume
        ) as consumer:
            assert next(consumer).value == b"hello"
    assert not data_dir.exists()


async def test_in_an_event_loop_it_names_the_other_way():
    with pytest.raises(RuntimeError, match="expected `async with`"), LocalBroker():
        pass
