"""The producer of ready-made batches against a scripted peer."""

import asyncio

import pytest

from partq import MessageTooLargeError, PartitionId, UnauthorizedError
from partq.client.produce.batch_producer import BatchProducer
from partq.client.produce.batching import ReadyBatch
from partq.core.hashing import slot_of
from partq.errors import BadBatchError
from partq.wire import batch, frames
from partq.wire.batch import Message

PARTITION = PartitionId(1, 0)


def ready(*values: bytes) -> ReadyBatch:
    encoded = batch.encode_messages([Message("k", value) for value in values])
    data = batch.encode(encoded, [slot_of("k")] * len(encoded))
    return ReadyBatch(data, len(encoded), sum(map(len, encoded)))


@pytest.fixture
async def producer(peer):
    peer.due = {"1.0": 7}
    async with BatchProducer(
        peer.url,
        queue="orders",
        token=None,
        producer="job/3",
        max_pending_bytes=1,
        delivery_timeout_s=60,
    ) as producer:
        yield producer


async def test_numbers_go_on_from_what_the_brokers_know(peer, producer):
    assert {p: each.due for p, each in producer.state.progress.items()} == {
        PARTITION: 7,
        PartitionId(1, 1): 0,
    }
    await producer.send(PARTITION, ready(b"a", b"b"))
    broker = await peer.producer()
    assert broker.first.producer == "job/3"
    frame, payload = await broker.next_with_payload(frames.Publish)
    assert (frame.partition, frame.first) == (0, 7)
    assert [message.value for message in batch.decode(payload)] == [b"a", b"b"]
    flushing = asyncio.ensure_future(producer.flush())
    await broker.send(frames.Published(frame.request, 100))
    await flushing


async def test_the_first_failure_ends_it_for_those_who_wait_too(peer, producer):
    await producer.send(PARTITION, ready(b"a"))
    waiting = asyncio.ensure_future(producer.send(PARTITION, ready(b"b")))
    broker = await peer.producer()
    frame = await broker.next(frames.Publish)
    await broker.send(frames.PublishRefused(frame.request, "message_too_large", "too large"))
    with pytest.raises(MessageTooLargeError):
        await waiting
    with pytest.raises(MessageTooLargeError):
        await producer.send(PARTITION, ready(b"c"))
    with pytest.raises(MessageTooLargeError):
        await producer.flush()
    assert broker.is_quiet()


async def test_flush_does_not_wait_for_others_once_something_has_failed(peer):
    async with BatchProducer(peer.url, queue="orders", token=None, producer="p") as producer:
        await producer.send(PARTITION, ready(b"a"))
        await producer.send(PartitionId(1, 1), ready(b"b"))
        broker = await peer.producer()
        sent = [await broker.next(frames.Publish) for _ in range(2)]
        flushing = asyncio.ensure_future(producer.flush())
        await broker.send(frames.PublishRefused(sent[0].request, "bad_batch", "broken"))
        with pytest.raises(BadBatchError, match="broken"):
            await flushing


async def test_a_refused_token_ends_it(peer, producer):
    await producer.send(PARTITION, ready(b"a"))
    broker = await peer.raw_producer()
    await broker.send(frames.Failed("unauthorized", "the token has ended"))
    with pytest.raises(UnauthorizedError, match="has ended"):
        await producer.flush()


async def test_closing_does_not_wait(peer):
    async with BatchProducer(peer.url, queue="orders", token=None, producer="p") as producer:
        await producer.send(PARTITION, ready(b"a"))
    with pytest.raises(RuntimeError, match="not open"):
        await producer.flush()
