"""A message that was not stored is told, whoever looks at its future or does not."""

import asyncio
import gc
import logging

import pytest

from partq import Message, NotStoredError, OutcomeUnknownError, Position, Producer
from partq.client.produce.batching import BatchLimits
from partq.client.produce.partition_sender import PartitionSender
from partq.client.producer_stats import ProducerTally
from partq.core.hashing import partition_index, slot_of
from partq.core.model import PartitionId
from partq.wire import frames
from partq.wire.batch import Codec

WAIT_S = 60.0
KEY = next(key for key in map(str, range(100)) if partition_index(slot_of(key), 2) == 0)


@pytest.fixture
def away(peer):
    """The layout without any owner: nothing can be stored."""
    peer.owners = {}
    return peer


def producer_of(peer, **settings):
    return Producer(
        peer.url, queue="orders", **{"linger_ms": 0, "delivery_timeout_s": 0.2, **settings}
    )


def errors_in(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


async def ignored(producer, count=3):
    for number in range(count):
        await producer.send(b"%d" % number, key=KEY)


async def test_flush_raises_what_nobody_has_looked_at_and_counts_it(away, caplog):
    async with producer_of(away) as producer:
        await ignored(producer)
        with pytest.raises(NotStoredError, match="3 of 3 messages were not stored") as raised:
            await producer.flush()
        assert isinstance(raised.value.__cause__, NotStoredError)
        await producer.flush()  # it is told once
    (line,) = errors_in(caplog)
    assert "3 messages" in line
    assert "NotStoredError" in line


async def leave_block(producer):
    await producer.__aexit__(None, None, None)


@pytest.mark.parametrize("leave", [Producer.close, leave_block])
async def test_closing_raises_it_and_closes(away, leave):
    producer = await producer_of(away).__aenter__()
    await ignored(producer)
    with pytest.raises(NotStoredError, match="3 of 3 messages"):
        await leave(producer)
    await producer.close()  # it is closed, and everything was told


async def test_an_exception_that_leaves_the_block_is_not_masked(away, caplog):
    async def main():
        async with producer_of(away) as producer:
            await ignored(producer)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as raised:
        await main()
    assert any("3 of 3 messages were not stored" in note for note in raised.value.__notes__)
    assert errors_in(caplog)


async def look_by_await(futures):
    for future in futures:
        with pytest.raises(NotStoredError):
            await future


async def look_by_gather(futures):
    await asyncio.gather(*futures, return_exceptions=True)


async def look_by_wait(futures):
    done, _ = await asyncio.wait(futures)
    assert all(future.exception() is not None for future in done)


async def look_by_callback(futures):
    for future in futures:
        future.add_done_callback(lambda done: done.exception())


@pytest.mark.parametrize("look", [look_by_await, look_by_gather, look_by_wait, look_by_callback])
async def test_what_somebody_has_looked_at_is_not_raised_again(away, caplog, look):
    async with producer_of(away) as producer:
        futures = [await producer.send(b"x", key=KEY) for _ in range(3)]
        futures.append(await producer.send_many([Message(KEY, b"y")]))
        await look(futures)
        await producer.flush()
    assert errors_in(caplog), "but the log has it"


async def test_a_task_that_waits_for_a_future_looks_at_it(away):
    async with producer_of(away) as producer, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(look_by_await([await producer.send(b"x", key=KEY)]))
        await producer.flush()
        await waiting


async def test_what_was_looked_at_after_it_was_told_hides_nothing_new(away):
    async with producer_of(away) as producer:
        first = await producer.send(b"x", key=KEY)
        with pytest.raises(NotStoredError):
            await producer.flush()
        await producer.send(b"y", key=KEY)
        assert first.done()
        closing = asyncio.create_task(producer.flush())
        with pytest.raises(NotStoredError):
            await first
        with pytest.raises(NotStoredError, match="1 of 1 messages"):
            await closing


async def test_a_future_that_was_given_up_tells_nobody(away):
    producer = await producer_of(away).__aenter__()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(await producer.send(b"x", key=KEY), 0.001)
    with pytest.raises(NotStoredError):
        await producer.close()


async def test_an_unknown_outcome_weighs_more_than_the_first(peer):
    producer = await producer_of(peer, max_batch_count=1).__aenter__()
    await ignored(producer, 2)
    broker = await peer.producer()
    request = (await broker.next(frames.Publish)).request
    await broker.send(frames.PublishRefused(request, "message_too_large", "too large"))
    with pytest.raises(OutcomeUnknownError, match="2 of 2 messages may or may not be stored"):
        await producer.flush()
    await producer.close()


async def test_asyncio_has_nothing_to_add(away, caplog):
    async with producer_of(away) as producer:
        await ignored(producer)
        with pytest.raises(NotStoredError):
            await producer.flush()
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]


# ---- no future outlives its time ----


def messages(count=3):
    return (Message(KEY, b"v") for _ in range(count))


def as_list():
    return list(messages())


def as_tuple():
    return tuple(messages())


def nothing():
    return iter(())


@pytest.mark.parametrize("made", [messages, as_list, as_tuple, nothing])
async def test_send_many_takes_any_iterable(peer, made):
    async with producer_of(peer, delivery_timeout_s=60) as producer, asyncio.timeout(WAIT_S):
        future = await producer.send_many(made())
        count = len(list(made()))
        if count:
            broker = await peer.producer()
            await broker.send(frames.Published((await broker.next(frames.Publish)).request, 7))
        positions = await future
        assert [position.offset for position in positions] == list(range(7, 7 + count))


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ([(KEY, b"v")], "element 0 is tuple, expected partq.Message"),
        ([Message(KEY, b"v"), None], "element 1 is NoneType"),
        (Message(KEY, b"v"), "got Message, expected an iterable"),
        (b"bytes", "got bytes, expected an iterable"),
        ({"key": b"v"}, "got dict"),
        (17, "got int"),
    ],
)
async def test_send_many_says_what_is_no_message(peer, wrong, expected):
    async with producer_of(peer) as producer:
        with pytest.raises(TypeError, match=expected):
            await producer.send_many(wrong)
        await producer.flush()  # nothing was taken


async def test_what_waits_for_its_batch_has_a_deadline_too(away):
    """A linger time above the delivery timeout."""
    async with producer_of(away, linger_ms=10_000) as producer, asyncio.timeout(WAIT_S):
        (future,) = [await producer.send(b"x", key=KEY)]
        with pytest.raises(NotStoredError):
            await future


def test_a_partition_sender_expires_what_is_not_sealed(line):
    result = CountedResult()
    line.add([b"x"], [0], result, deadline=5.0)
    line.expire(4.0)
    assert result.failed_count == 0
    line.expire(5.0)
    assert result.failed_count == 1


class CountedResult:
    failed_count = 0

    def stored(self, partition, offset, count):
        raise AssertionError("nothing is sent")

    def failed(self, partition, error, count):
        assert isinstance(error, NotStoredError)
        self.failed_count += count


@pytest.fixture
def line():
    return PartitionSender(
        PartitionId(1, 0),
        producer="p",
        first=0,
        limits=BatchLimits(max_count=10, max_bytes=1000, codec=Codec.NONE),
        next_producer=lambda _: "q",
        give_back=lambda count, size: None,
        tally=ProducerTally(lambda: 0.0),
    )


async def test_send_and_wait_returns_the_position(peer):
    async with producer_of(peer, delivery_timeout_s=60) as producer, asyncio.timeout(WAIT_S):
        sending = asyncio.create_task(producer.send_and_wait(b"x", key=KEY, headers={"a": "b"}))
        broker = await peer.producer()
        await broker.send(frames.Published((await broker.next(frames.Publish)).request, 7))
        assert await sending == Position(PartitionId(1, 0), 7)


async def test_send_and_wait_raises_why_it_is_not_stored(away):
    async with producer_of(away) as producer:
        with pytest.raises(NotStoredError):
            await producer.send_and_wait(b"x", key=KEY)
