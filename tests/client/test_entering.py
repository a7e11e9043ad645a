"""Clients that are started before their queue is there, and what ends the waiting."""

import asyncio
import logging
import os
import signal

import pytest

from partq import (
    Browser,
    Consumer,
    ForbiddenError,
    LogReader,
    Producer,
    UnauthorizedError,
    UnavailableError,
    UnknownGroupError,
    UnknownQueueError,
)
from partq.client.audit_reader import AuditReader
from partq.testing import eventually

WAIT_S = 60.0
NOBODY = "http://127.0.0.1:9"


def consumer_of(url, *, group="workers", **settings):
    return Consumer(url, queue="orders", group=group, handle_signals=False, **settings)


def producer_of(url, **settings):
    return Producer(url, queue="orders", **settings)


async def it_says_something(caplog):
    await eventually(lambda: caplog.messages, "a line of the log")


@pytest.fixture(params=[consumer_of, producer_of], ids=["consumer", "producer"])
def client_of(request):
    return request.param


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [(401, "unauthorized", UnauthorizedError), (403, "forbidden", ForbiddenError)],
)
async def test_a_refusal_is_raised_at_once(peer, client_of, status, code, error):
    peer.refusal = (status, code)
    with pytest.raises(error):
        await client_of(peer.url, connect_timeout_s=86_400).__aenter__()


@pytest.mark.parametrize("refusal", [(404, "unknown_queue"), (503, "store_unavailable")])
async def test_what_may_come_to_be_is_waited_for(peer, client_of, refusal):
    peer.refusal = refusal
    async with asyncio.timeout(WAIT_S):
        entering = asyncio.create_task(client_of(peer.url).__aenter__())
        await peer.was_asked.wait()
        assert not entering.done()
        peer.refusal = None
        client = await entering
    await client.close()


async def test_a_group_is_waited_for(peer, caplog):
    peer.groups = ["others"]
    async with asyncio.timeout(WAIT_S):
        entering = asyncio.create_task(consumer_of(peer.url).__aenter__())
        await it_says_something(caplog)
        assert "no consumer group 'workers'; it has others" in caplog.text
        peer.groups.append("workers")
        consumer = await entering
        await peer.flow()
    await consumer.close()


async def test_the_log_says_once_what_is_missing(peer, caplog):
    peer.groups = []
    entering = asyncio.create_task(consumer_of(peer.url).__aenter__())
    async with asyncio.timeout(WAIT_S):
        for _ in range(4):
            peer.was_asked.clear()
            await peer.was_asked.wait()
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert len(caplog.messages) == 1


async def test_waiting_for_a_group_ends(peer):
    with pytest.raises(UnknownGroupError, match="it has workers"):
        await consumer_of(peer.url, group="others", connect_timeout_s=0.1).__aenter__()


@pytest.mark.parametrize(
    ("url", "refusal", "error"),
    [
        (NOBODY, None, UnavailableError),
        (None, (404, "unknown_queue"), UnknownQueueError),
    ],
)
async def test_waiting_ends(peer, client_of, url, refusal, error):
    peer.refusal = refusal
    with pytest.raises(error):
        await client_of(url or peer.url, connect_timeout_s=0.1).__aenter__()


async def test_a_consumer_that_leaves_waits_no_longer():
    consumer = consumer_of(NOBODY)
    async with asyncio.timeout(WAIT_S):
        entering = asyncio.create_task(consumer.__aenter__())
        await asyncio.sleep(0)
        consumer.leave()
        await entering
    assert [message async for message in consumer] == []
    await consumer.close()


async def test_sigterm_ends_the_waiting(caplog):
    consumer = Consumer(NOBODY, queue="orders", group="workers")
    async with asyncio.timeout(WAIT_S):
        entering = asyncio.create_task(consumer.__aenter__())
        await it_says_something(caplog)
        os.kill(os.getpid(), signal.SIGTERM)
        await entering
    assert [message async for message in consumer] == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_a_waiting_that_is_cancelled_leaves_nothing_behind(caplog):
    consumer = Consumer(NOBODY, queue="orders", group="workers")
    entering = asyncio.create_task(consumer.__aenter__())
    async with asyncio.timeout(WAIT_S):
        await it_says_something(caplog)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("kind", [Browser, LogReader, AuditReader])
async def test_a_reader_with_the_right_token_enters_without_a_line_of_the_log(
    brokers, caplog, kind
):
    caplog.set_level(logging.INFO, "partq.client")
    async with kind(brokers.url, queue="orders", token=brokers.tokens.admin):
        pass
    assert caplog.messages == []
