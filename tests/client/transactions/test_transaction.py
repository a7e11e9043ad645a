"""Transactions of the client against a scripted peer: what is sent, when, and what is told."""

import asyncio

import pytest

from partq import (
    BatchTooLargeError,
    Message,
    MessageTooLargeError,
    NotStoredError,
    OutcomeUnknownError,
    PartitionId,
    Producer,
    ProducerInterceptor,
)
from partq.client.transactions import transaction
from partq.wire import frames
from tests.client.test_producer import KEYS, send, take

HOME, OTHER = KEYS[0], KEYS[1]


class Told(ProducerInterceptor):
    """Writes down what became of messages; changes each value."""

    def __init__(self):
        self.results = []

    def on_send(self, queue, message):
        return Message(message.key, message.value.upper(), message.headers)

    def on_send_result(self, queue, message, position, error):
        self.results.append((message.value, position and position.offset, type(error)))


@pytest.fixture
def told():
    return Told()


@pytest.fixture
async def producer(peer, told):
    async with Producer(
        peer.url, queue="orders", linger_ms=0, max_batch_count=2, delivery_timeout_s=60,
        interceptors=[told],
    ) as producer:  # fmt: skip
        yield producer


async def commit(producer, *contents, key=HOME):
    async with producer.transaction(key=key) as tx:
        for content in contents:
            tx.send(content)
    return tx


async def test_all_messages_leave_together_at_the_end_whatever_the_limits_of_batches(
    peer, producer, values, told
):
    before = (await send(producer, b"before"))[0]
    async with producer.transaction(key=HOME, ttl_s=2) as tx:
        for content in (b"a", b"b", b"c"):
            tx.send(content, headers={"n": "1"})
        await asyncio.sleep(0)
        broker = await peer.producer()
        [(request, _, _, payload)] = await take(broker, 1)
        assert values(payload) == [b"BEFORE"]
        await broker.send(frames.Published(request, 10))
        await before
        with pytest.raises(RuntimeError, match="is open and is not stored"):
            _ = tx.positions
        assert broker.is_quiet()
        committing = asyncio.create_task(answer(broker, values, 11))
    assert await committing == ([b"A", b"B", b"C"], 2000)
    assert list(tx.positions) == [
        (PartitionId(1, 0), 11),
        (PartitionId(1, 0), 12),
        (PartitionId(1, 0), 13),
    ]
    assert told.results[1:] == [
        (b"A", 11, type(None)),
        (b"B", 12, type(None)),
        (b"C", 13, type(None)),
    ]


async def answer(broker, values, offset):
    frame, payload = await broker.next_with_payload(frames.Publish)
    await broker.send(frames.Published(frame.request, offset))
    return values(payload), frame.ttl_ms


async def test_after_an_exception_nothing_is_sent_and_interceptors_hear_it(
    peer, producer, values, told
):
    tx = producer.transaction(key=HOME)

    async def fail():
        async with tx:
            tx.send(b"a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    with pytest.raises(RuntimeError, match="has ended"):
        tx.send(b"b")
    with pytest.raises(RuntimeError, match="begin another one"):
        await tx.__aenter__()
    assert told.results == [(b"A", None, NotStoredError)]
    after = (await send(producer, b"after"))[0]
    broker = await peer.producer()
    assert (await answer(broker, values, 0))[0] == [b"AFTER"]
    await after


async def test_one_without_messages_asks_nobody(producer):
    async with producer.transaction() as tx:
        pass
    assert len(tx.positions) == 0


async def test_a_lost_answer_is_asked_for_again_with_the_same_bytes(peer, producer):
    committing = asyncio.create_task(commit(producer, b"a", b"b", b"c"))
    broker = await peer.producer()
    before = await take(broker, 1)
    await broker.drop()
    broker = await peer.producer()
    [(request, *again)] = await take(broker, 1)
    assert again == list(before[0][1:])
    await broker.send(frames.Published(request, 7, True))
    assert [offset for _, offset in (await committing).positions] == [7, 8, 9]


async def test_a_refusal_is_of_all_and_what_follows_goes_on(peer, producer, values):
    committing = asyncio.create_task(commit(producer, b"a", b"b", b"c"))
    broker = await peer.producer()
    [(request, *_)] = await take(broker, 1)
    await broker.send(frames.PublishRefused(request, "message_too_large", "no"))
    with pytest.raises(MessageTooLargeError, match="3 of 3 messages failed"):
        await committing
    committing = asyncio.create_task(commit(producer, b"d"))
    assert (await answer(broker, values, 0))[0] == [b"D"]
    await committing


async def test_a_number_in_its_middle_ends_the_partition(peer, producer):
    """Its first messages cannot be stored alone, but for an earlier attempt that was none."""
    committing = asyncio.create_task(commit(producer, b"a", b"b", b"c"))
    broker = await peer.producer()
    [(request, *_)] = await take(broker, 1)
    await broker.send(frames.PublishRefused(request, "resend_from", "1 is due", due=1))
    with pytest.raises(NotStoredError, match="lies in a transaction"):
        await committing


async def test_its_bounds_are_told_before_anything_is_sent(producer, told, monkeypatch):
    monkeypatch.setattr(transaction, "MAX_BATCH_COUNT", 2)
    monkeypatch.setattr(transaction, "MAX_BATCH_BYTES", 200)
    async with producer.transaction(key=HOME) as tx:
        with pytest.raises(MessageTooLargeError):
            tx.send(b"y" * 20_000)
        tx.send(b"a")
        with pytest.raises(BatchTooLargeError, match="at most 200"):
            tx.send(b"x" * 180)
        tx.send(b"b")
        with pytest.raises(BatchTooLargeError, match="3 messages; expected at most 2"):
            tx.send(b"c")
        tx._prepared.clear()  # nothing is sent here
    assert [type_of for *_, type_of in told.results] == [MessageTooLargeError, BatchTooLargeError]


async def test_a_closed_producer_stores_nothing(peer):
    async with Producer(peer.url, queue="orders") as producer:
        tx = producer.transaction(key=HOME)
        await tx.__aenter__()
        tx.send(b"a")
    with pytest.raises(RuntimeError, match="was closed"):
        await tx.__aexit__(None, None, None)
    with pytest.raises(RuntimeError, match="is not stored"):
        _ = tx.positions


async def test_an_outcome_that_nobody_knows_is_told_as_such(peer):
    async with Producer(peer.url, queue="orders", linger_ms=0, delivery_timeout_s=0.3) as producer:
        committing = asyncio.create_task(commit(producer, b"a", b"b"))
        broker = await peer.producer()
        await take(broker, 1)
        with pytest.raises(OutcomeUnknownError):
            await committing
