"""Interceptors see each message on its way, and whatever they do, it arrives."""

import asyncio
import logging
import re
from contextlib import contextmanager

import pytest

from partq import (
    BadRequestError,
    Consumer,
    ConsumerInterceptor,
    JsonSerializer,
    Message,
    Producer,
    ProducerInterceptor,
    SettingsError,
    sync,
)
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.client.member import WAIT_S

COUNT = 6
GROUPS = [
    "loop",
    "lists",
    "batches",
    "run-1",
    "run-3",
    "run-thread",
    "broken",
    "cancelled",
    "blocking",
]


@pytest.fixture(scope="module")
def local():
    with asyncio.Runner() as runner:
        broker = LocalBroker(partitions=2, groups=GROUPS)
        runner.run(broker.__aenter__())
        runner.run(publish(broker))
        yield broker
        runner.run(broker.__aexit__(None, None, None))


async def publish(broker):
    async with producer(broker) as opened:
        await (await opened.send_many([Message(f"k{n}", b"v") for n in range(COUNT)]))


def producer(local, **options):
    return Producer(local.url, queue="orders", token=local.tokens.produce, **options)


def consumer(local, group, *interceptors, **options):
    return Consumer(
        local.url, queue="orders", group=group, token=local.tokens.consume, handle_signals=False,
        interceptors=interceptors, **options,
    )  # fmt: skip


class Stamp(ProducerInterceptor):
    """Adds a header, and writes down what becomes of messages."""

    def __init__(self, name="stamp"):
        self.name = name
        self.ends = []

    def on_send(self, queue, message):
        headers = {**(message.headers or {}), self.name: queue}
        return Message(message.key, message.value, headers, message.event_time_ms)

    def on_send_result(self, queue, message, position, error):
        self.ends.append((message.headers, message.value, position, error))


class BrokenProducerInterceptor(ProducerInterceptor):
    def on_send(self, queue, message):
        return None if message.key == "k0" else 1 / 0

    def on_send_result(self, queue, message, position, error):
        raise RuntimeError("broken")


class Notes(ConsumerInterceptor):
    """Writes down what it is told of."""

    def __init__(self):
        self.told = []

    def on_consume(self, message):
        self.told.append(("consume", place(message)))

    def on_ack(self, done, error):
        self.told.append(("ack", place(done), error))

    def on_nack(self, failed, error):
        self.told.append(("nack", place(failed), error))

    @contextmanager
    def processing(self, message):
        self.told.append(("begin", place(message)))
        try:
            yield
        except ZeroDivisionError:
            self.told.append(("failed", place(message)))
        else:
            self.told.append(("end", place(message)))

    def all_of(self, word):
        return sorted(each[1] for each in self.told if each[0] == word)


def place(message):
    return (message.partition, getattr(message, "offset", None))


class BrokenConsumerInterceptor(ConsumerInterceptor):
    def on_consume(self, message):
        raise RuntimeError("broken")

    def on_ack(self, done, error):
        raise RuntimeError("broken")

    def on_nack(self, failed, error):
        raise RuntimeError("broken")

    @contextmanager
    def processing(self, message):
        yield
        raise RuntimeError("broken")


class CancelledInterceptor(ProducerInterceptor, ConsumerInterceptor):
    """Reads in its methods the result of something that was cancelled."""

    def __getattribute__(self, name):
        if name.startswith("on_"):
            return self.raise_it
        return super().__getattribute__(name)

    def raise_it(self, *_):
        raise asyncio.CancelledError


async def test_a_producer_tells_of_each_message_where_it_is(local):
    first, second = Stamp("first"), Stamp("second")
    async with producer(
        local, interceptors=[first, second], value_serializer=JsonSerializer()
    ) as opened:
        one = await opened.send_and_wait(1, key="k1", headers={"own": "x"})
        stored = await opened.send_many([Message(f"k{n}", n) for n in range(COUNT)])
        positions = list(await stored)
    assert first.ends == second.ends
    headers, value, position, error = first.ends[0]
    assert headers == {"own": "x", "first": "orders", "second": "orders"}
    assert (value, position, error) == (1, one, None), "the value before the serializer"
    told = {value: position for _, value, position, _ in first.ends[1:]}
    assert [told[n] for n in range(COUNT)] == positions


async def test_a_producer_tells_of_what_is_refused(local):
    stamp = Stamp()
    async with producer(local, interceptors=[stamp]) as opened:
        with pytest.raises(BadRequestError):
            await opened.send("no bytes", key="k")
        with pytest.raises(BadRequestError):
            await opened.send_many([Message("k", b"v"), Message("k", 5)])
    assert [position for _, _, position, _ in stamp.ends] == [None] * 3
    assert all(isinstance(error, BadRequestError) for _, _, _, error in stamp.ends)


async def test_what_a_producers_interceptor_raises_is_told_once(local, caplog):
    caplog.set_level(logging.ERROR, "partq.client")
    stamp, broken = Stamp(), BrokenProducerInterceptor()
    async with producer(local, interceptors=[broken, stamp, broken]) as opened:
        for n in range(3):
            await opened.send_and_wait(b"v", key=f"k{n}")
    assert [error for *_, error in stamp.ends] == [None] * 3
    told = [each.getMessage() for each in caplog.records]
    assert [each.split(" ")[0] for each in told] == ["on_send", "on_send_result"]


@pytest.mark.parametrize(("given", "got"), [
    pytest.param(Stamp(), "interceptors: got Stamp, expected a list of ProducerI", id="no list"),
    pytest.param("stamp", "interceptors: got str, expected a list of ProducerI", id="a text"),
    pytest.param([Stamp(), Notes()], "interceptors[1]: got Notes, expected an", id="of consumers"),
    pytest.param([Stamp], "interceptors[0]: got the class Stamp, expected an", id="a class"),
])  # fmt: skip
def test_what_is_no_interceptor_is_named(given, got):
    with pytest.raises(SettingsError, match=re.escape(got)):
        Producer("http://127.0.0.1:1", queue="orders", interceptors=given)


async def take_in_a_loop(opened):
    for _ in range(COUNT):
        await opened.ack(await anext(opened))


async def take_in_lists(opened):
    for message in await opened.getmany(COUNT, timeout_s=WAIT_S):
        await opened.ack(message)


async def take_in_batches(opened):
    taken = 0
    async for batch in opened.batches():
        for message in batch.deliveries():
            opened.ack_nowait(message)
        taken += len(batch)
        if taken >= COUNT:
            return


@pytest.mark.parametrize(("group", "take"), [
    ("loop", take_in_a_loop), ("lists", take_in_lists), ("batches", take_in_batches),
])  # fmt: skip
async def test_a_consumer_tells_of_each_message_and_its_ack(local, group, take):
    notes = Notes()
    async with asyncio.timeout(WAIT_S), consumer(local, group, notes) as opened:
        await take(opened)
        await opened.flush()
    assert len(notes.all_of("consume")) >= COUNT
    assert set(notes.all_of("ack")) <= set(notes.all_of("consume"))
    assert len(notes.all_of("ack")) >= COUNT
    assert {error for word, _, *error in notes.told if word == "ack" for error in error} == {None}


@pytest.mark.parametrize(("group", "options"), [
    ("run-1", {}), ("run-3", {"concurrency": 3}), ("run-thread", {"in_thread": True}),
])  # fmt: skip
async def test_a_run_calls_its_handler_in_the_context_of_each_message(local, group, options):
    notes, handled = Notes(), []

    def handle(message):
        assert notes.told.count(("begin", place(message))) == 1
        handled.append(place(message))
        if len(handled) == COUNT:
            raise ZeroDivisionError

    async with asyncio.timeout(WAIT_S), consumer(local, group, notes, auto_ack=True) as opened:
        with pytest.raises(ZeroDivisionError):
            await opened.run(handle, **options)
        await opened.flush()
    assert notes.all_of("begin") == notes.all_of("consume") == sorted(handled)
    failed = handled.pop(COUNT - 1)
    assert notes.all_of("failed") == [failed], "and it suppresses nothing"
    assert notes.all_of("end") == notes.all_of("ack") == sorted(handled)


async def test_what_a_consumers_interceptor_raises_is_told_once(local, caplog):
    caplog.set_level(logging.ERROR, "partq.client")
    notes, seen = Notes(), []

    async def handle(message):
        seen.append(message)
        if len(seen) == 1:
            await opened.nack(message, delay_s=0)
        else:
            await opened.ack(message, confirmed=True)
        if len(seen) > COUNT:
            opened.leave()

    broken = BrokenConsumerInterceptor()
    async with asyncio.timeout(WAIT_S), consumer(local, "broken", broken, notes) as opened:
        await opened.run(handle)
    assert len(notes.all_of("nack")) == 1
    assert len(notes.all_of("ack")) >= COUNT
    told = [each.getMessage().split(" ")[0] for each in caplog.records]
    assert sorted(told) == ["on_ack", "on_consume", "on_nack", "processing"]


async def test_a_cancellation_that_an_interceptor_raises_cancels_no_call(local):
    """Nor does it keep the answers of other messages of the same batch, or what is handed out."""
    cancelled = CancelledInterceptor()
    async with asyncio.timeout(WAIT_S):
        async with producer(local, interceptors=[cancelled]) as opened:
            one, other = await opened.send(b"v", key="k0"), await opened.send(b"v", key="k0")
            assert (await other).offset == (await one).offset + 1
        async with consumer(local, "cancelled", cancelled) as opened:
            messages = await opened.getmany(COUNT, timeout_s=WAIT_S)
            assert len(messages) == COUNT
            await opened.ack(messages[0], confirmed=True)


def test_blocking_clients_have_them(local):
    stamp, notes = Stamp(), Notes()
    options = {"queue": "orders", "token": local.tokens.produce, "interceptors": [stamp]}
    with sync.Producer(local.url, **options) as opened:
        position = opened.send_and_wait(b"v", key="k")
    assert stamp.ends == [({"stamp": "orders"}, b"v", position, None)]
    options = {"group": "blocking", "token": local.tokens.consume, "interceptors": [notes]}
    with sync.Consumer(local.url, queue="orders", **options) as opened:
        opened.ack(opened.getmany(1, timeout_s=WAIT_S)[0], confirmed=True)
    assert len(notes.all_of("consume")) == 1
    assert notes.all_of("ack") == notes.all_of("consume")


async def test_of_a_lost_message_they_are_told_why(local):
    notes = Notes()
    async with asyncio.timeout(WAIT_S), consumer(local, "loop", notes) as opened:
        message = await anext(opened)
        opened.ack_nowait(message)
        await opened.flush()
    opened.ack_nowait(message)
    await eventually(lambda: len(notes.all_of("ack")) == 2, "the refusal")
    assert notes.told[-1][2].code == "fenced"
