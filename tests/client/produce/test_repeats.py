"""What a producer says of batches that it sends again, and what it hears of their numbers."""

import asyncio

from partq import Producer
from partq.errors import (
    NotStoredError,
    NumberReusedError,
    OutcomeUnknownError,
    UnknownProducerError,
)
from partq.wire import frames
from tests.client.member import WAIT_S
from tests.client.produce.test_partition_sender import LATER, Line


def test_a_repeat_says_how_long_ago_it_was_first_sent():
    """By that the store tells what it has forgotten from what it never had."""
    line = Line().add(b"a", b"b", b"c")
    ages = line_ages(line)
    assert ages(1.0) == [0, 0]
    line.partition_sender.lost()
    assert ages(3.5) == [2500, 2500]
    line.partition_sender.lost()
    assert ages(4.0) == [3000, 3000]
    line.refused(5, "unknown_producer")
    assert line.fate.told == [(UnknownProducerError, 2), (UnknownProducerError, 1)]
    line.add(b"d")
    assert ages(LATER) == [0]


async def test_the_broker_is_told_so(peer):
    async with (
        asyncio.timeout(WAIT_S),
        Producer(peer.url, queue="orders", linger_ms=0, delivery_timeout_s=WAIT_S) as producer,
    ):
        future = await producer.send(b"a", key="k")
        broker = await peer.producer()
        ages = [(await broker.next(frames.Publish)).age_ms]
        await broker.drop()
        broker = await peer.producer()
        again = await broker.next(frames.Publish)
        ages.append(again.age_ms)
        await broker.send(frames.Published(again.request, 7))
        await future
    assert ages[0] == 0 < ages[1]


def line_ages(line):
    """Return what sends all that can be, and returns the ages that are told."""

    def ages(now):
        out = []
        while (taken := line.partition_sender.take(line.requests + 1, now)) is not None:
            line.requests += 1
            out.append(taken.age_ms)
        return out

    return ages


def test_under_another_id_nothing_was_sent_before():
    line = Line(first=9).add(b"a")
    line.sent()
    line.refused(1, "unknown_producer")
    assert line_ages(line)(LATER) == [0]


def test_a_number_that_stands_for_another_message_ends_a_producer_of_a_given_id():
    line = Line(ids=()).add(b"a")
    line.sent()
    line.refused(1, "number_reused", due=1)
    assert line.fate.told == [(NotStoredError, 1)]
    assert type(line.partition_sender.broken) is NumberReusedError


def test_why_a_producer_ends_is_said_once_with_one_thing_to_do():
    line = Line(ids=(), max_count=1).add(b"a", b"b")
    errors = []
    line.fate.failed = lambda _, error, count: errors.append((type(error), error.message))
    line.sent()
    line.refused(1, "number_reused", due=1)
    reason = "partition 1.0: number 0 came before with other messages, which are stored; "
    doubt = "the message may or may not be stored; "
    advice = (
        "nothing can be published here as producer 'first': give each process its own producer id"
    )
    assert errors == [
        (OutcomeUnknownError, reason + doubt + advice),
        (NotStoredError, reason + advice),
    ]
    assert line.partition_sender.broken.message == reason + advice
