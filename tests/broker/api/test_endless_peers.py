"""Brokers that ask other brokers, and get an answer that does not end, or finds no memory."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from partq.server.memory import Hold

QUEUE = "/v1/queues/orders"
MIB = 1024 * 1024
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
SPACES = b" " * 65536


class EndlessPeer:
    """A server whose answers are JSON that begins and does not end."""

    def __init__(self):
        self.sent_bytes = 0
        self.called = 0
        self.dropped = 0

    async def serve(self, reader, writer):
        self.called += 1
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            while True:
                writer.write(b"%x\r\n%b\r\n" % (len(SPACES), SPACES))
                await writer.drain()
                self.sent_bytes += len(SPACES)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.dropped += 1
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def in_place_of(other):
    """Answer without end at the address of a broker, which keeps its lease."""
    port = int(other.url.rpartition(":")[2])
    await other.runner.cleanup()
    peer = EndlessPeer()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", port)
    async with server:
        yield peer


@pytest.fixture
async def pair(start_broker, peers):
    """A broker with little memory for calls, and one whose partition 1.0 it asks for."""
    running = await start_broker(request_memory_bytes=8 * MIB)
    other = await start_broker("orders-1")
    await other.admin("/claim", {"partitions": ["1.0"]})
    await peers.eventually(
        lambda: running.broker.claims.owner_url(peers.partition_id(0)), "the owner is known"
    )
    return running, other


@pytest.fixture
def used(pair):
    """What other calls hold of the memory: one that is alone may have more than all of it."""
    with Hold(pair[0].guard.memory) as hold:
        hold.force(MIB)
        yield MIB


def is_over(running, peer, used):
    """Whether the peer was cut off, and the call holds nothing any more."""
    return peer.dropped == peer.called > 0 and running.guard.memory.used_bytes == used


async def test_an_owner_that_answers_without_end_is_cut_off(pair, peers, used):
    running, other = pair
    async with in_place_of(other) as peer:
        status, answer = await running.call(
            "POST",
            f"{QUEUE}/positions",
            token=peers.CONSUME,
            json={"partitions": ["1.0"], "to": "latest"},
        )
        assert status == 200
        error = answer["partitions"]["1.0"]["error"]
        assert error["code"] == "overloaded"
        assert error["retry_after_ms"] == 1000
        await peers.eventually(lambda: is_over(running, peer, used), "it is cut off")
        assert peer.sent_bytes < 16 * MIB


async def test_one_that_stores_messages_and_answers_without_end(pair, peers, used):
    """Whether they are stored is unknown; the answer of one message is short."""
    running, other = pair
    async with in_place_of(other) as peer:
        body = {"key": peers.key_of(0), "value": "a"}
        status, answer = await running.call(
            "POST", f"{QUEUE}/messages", token=peers.PRODUCE, json=body
        )
        assert (status, answer["error"]["code"]) == (504, "outcome_unknown")
        assert "more than" in answer["error"]["message"]
        await peers.eventually(lambda: is_over(running, peer, used), "it is cut off")
        assert peer.sent_bytes < 12 * MIB


async def test_messages_whose_answer_finds_no_memory_may_be_stored(pair, peers):
    """The owner has them; that this broker is overloaded does not mean that nothing was done."""
    running, other = pair
    gate = peers.Gate(other.broker.log, "append")
    body = {"key": peers.key_of(0), "value": "a"}
    call = asyncio.create_task(
        running.call("POST", f"{QUEUE}/messages", token=peers.PRODUCE, json=body)
    )
    await gate.is_reached()
    with Hold(running.guard.memory) as hold:
        hold.force(running.guard.memory.limit_bytes)
        gate.opened.set()
        status, answer = await call
    assert (status, answer["error"]["code"]) == (504, "outcome_unknown")
    assert "memory" in answer["error"]["message"]
    assert (await other.state())["end"] == 1


async def test_messages_that_an_overloaded_owner_refuses_are_not_stored(pair, peers):
    """It says so, and the caller learns it: a repeat makes no duplicate."""
    running, other = pair
    path, body = f"{QUEUE}/messages", {"key": peers.key_of(0), "value": "a"}
    with Hold(other.guard.memory) as hold:
        hold.force(other.guard.memory.limit_bytes)
        status, answer = await running.call("POST", path, token=peers.PRODUCE, json=body)
        assert (status, answer["error"]["code"]) == (503, "overloaded")
        assert answer["error"]["retry_after_ms"] == 1000
    assert await running.call("POST", path, token=peers.PRODUCE, json=body) == (
        201,
        {"partition": "1.0", "offset": 0},
    )


async def test_one_that_is_asked_for_its_state(pair, peers, used):
    running, other = pair
    async with in_place_of(other) as peer:
        status, answer = await running.call("GET", f"{QUEUE}/groups/workers/picture")
        assert status == 200
        assert "memory" in answer["brokers"]["orders-1"]["error"]
        assert "state" in answer["brokers"][running.broker.id]
        await peers.eventually(lambda: is_over(running, peer, used), "it is cut off")
        assert peer.sent_bytes < 16 * MIB
