"""What HTTP leaves to the server: headers that ask first, and headers that stand there twice."""

import asyncio
import gzip
import json

import pytest

from partq.testing.polling import TIMEOUT_S
from tests.broker.bare_callers import bare_callers, bearer, head

QUEUE = "/v1/queues/orders"
GROUP = f"{QUEUE}/groups/workers"
EXPECT = "Expect: 100-continue"
MIB = 1024 * 1024


@pytest.fixture
async def callers():
    async with bare_callers() as open_one:
        yield open_one


REFUSED = [
    pytest.param("POST", f"{GROUP}/acks", "CONSUME", 4 * MIB + 1, (413, "batch_too_large"),
                 id="a body above the call's bound"),
    pytest.param("POST", f"{QUEUE}/messages", "PRODUCE", 32 * MIB + 1, (413, "batch_too_large"),
                 id="more than an array may have"),
    pytest.param("POST", f"{QUEUE}/messages", "CONSUME", 10, (403, "forbidden"), id="a token"),
    pytest.param("POST", "/v1/nothing", "PRODUCE", 10, (404, "not_found"), id="no such path"),
    pytest.param("PUT", f"{QUEUE}/messages", "PRODUCE", 10, (405, "method_not_allowed"),
                 id="no such method"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "token", "length", "expected"), REFUSED)
async def test_a_body_that_will_be_refused_is_not_asked_for(
    running, peers, callers, method, path, token, length, expected
):
    """A caller that asks first sends nothing of it: there is no `100 Continue`."""
    caller = await callers(running)
    lines = (bearer(getattr(peers, token)), f"Content-Length: {length}", EXPECT)
    await caller.send(head(method, path, *lines))
    assert await caller.code() == expected


async def test_an_encoding_is_refused_before_the_body_is_asked_for(running, peers, callers):
    caller = await callers(running)
    lines = (bearer(peers.PRODUCE), "Content-Length: 10", EXPECT, "Content-Encoding: gzip")
    await caller.send(head("POST", f"{QUEUE}/messages", *lines))
    assert await caller.code() == (415, "unsupported_encoding")


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip,chunked", "deflate, gzip , Chunked"])
async def test_a_transfer_encoding_beside_chunked_is_refused(running, peers, callers, coding):
    """Of several encodings nobody takes off more than the chunks."""
    caller = await callers(running)
    packed = gzip.compress(json.dumps({"key": peers.key_of(0), "value": "a"}).encode())
    lines = (bearer(peers.PRODUCE), f"Transfer-Encoding: {coding}")
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed)
    await caller.send(head("POST", f"{QUEUE}/messages", *lines) + chunks)
    status, _, text = await caller.answer()
    error = json.loads(text)["error"]
    assert (status, error["code"]) == (415, "unsupported_encoding")
    assert f"Transfer-Encoding {coding!r}" in error["message"]


@pytest.mark.parametrize("coding", ["gzip", "identity", "chunked, gzip", "xchunked"])
async def test_a_body_without_chunks_or_length_is_refused(running, peers, callers, coding):
    """Nobody can say where it ends: the connection is closed."""
    caller = await callers(running)
    lines = (bearer(peers.PRODUCE), f"Transfer-Encoding: {coding}")
    await caller.send(head("POST", f"{QUEUE}/messages", *lines) + gzip.compress(b"{}"))
    assert await caller.code() == (400, "bad_request")
    await caller.ended()


@pytest.mark.parametrize("expect", [EXPECT, "expect: 100-Continue"])
async def test_a_body_that_is_taken_is_asked_for_once(running, peers, callers, expect):
    body = json.dumps({"key": peers.key_of(0), "value": "a"}).encode()
    caller = await callers(running)
    lines = (bearer(peers.PRODUCE), f"Content-Length: {len(body)}", expect)
    await caller.send(head("POST", f"{QUEUE}/messages", *lines))
    async with asyncio.timeout(TIMEOUT_S):
        assert await caller.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    await caller.send(body[:5])
    await caller.send(body[5:])
    status, _, text = await caller.answer()
    assert (status, json.loads(text)["offset"]) == (201, 0)


async def test_a_caller_that_does_not_wait_is_served(running, peers, callers):
    """The body comes with the head; whether `100 Continue` stands before the answer is all one."""
    body = json.dumps({"key": peers.key_of(0), "value": "a"}).encode()
    caller = await callers(running)
    lines = (bearer(peers.PRODUCE), f"Content-Length: {len(body)}", EXPECT)
    await caller.send(head("POST", f"{QUEUE}/messages", *lines) + body)
    status, headers, _ = await caller.answer()
    if status == 100:
        assert not headers
        status, _, _ = await caller.answer()
    assert status == 201


@pytest.mark.parametrize(
    ("first", "second"),
    [("PRODUCE", "PRODUCE"), ("PRODUCE", "CONSUME"), ("CONSUME", "PRODUCE")],
)
async def test_two_tokens_are_refused(running, peers, callers, first, second):
    """A proxy may have judged the other one."""
    caller = await callers(running)
    lines = (bearer(getattr(peers, first)), bearer(getattr(peers, second)))
    await caller.send(head("GET", f"{QUEUE}/layout", *lines))
    status, _, text = await caller.answer()
    error = json.loads(text)["error"]
    assert (status, error["code"]) == (400, "bad_request")
    assert "Authorization: got 2" in error["message"]


@pytest.mark.parametrize(
    ("path", "lines", "name"),
    [
        (f"{QUEUE}/messages", ("Partq-TTL-Ms: 1000", "Partq-TTL-Ms: 9000"), "Partq-TTL-Ms"),
        (f"{QUEUE}/messages", ("Partq-Producer: p", "partq-producer: p"), "Partq-Producer"),
        (f"{QUEUE}/messages?namespace=default&namespace=x", (), "namespace"),
    ],
)
async def test_what_stands_there_twice_is_refused_and_named(
    running, peers, callers, path, lines, name
):
    """The first one would count, and nobody would know."""
    body = json.dumps({"value": "a"}).encode()
    caller = await callers(running)
    always = (bearer(peers.PRODUCE), f"Content-Length: {len(body)}")
    await caller.send(head("POST", path, *always, *lines) + body)
    status, _, text = await caller.answer()
    error = json.loads(text)["error"]
    assert (status, error["code"]) == (400, "bad_request"), error
    assert f"{name}: got 2" in error["message"]


async def test_a_parameter_twice(running, peers):
    status, answer = await running.call(
        "GET", f"{QUEUE}/producers/p?key=a&key=b", token=peers.PRODUCE
    )
    assert (status, answer["error"]["code"]) == (400, "bad_request")
    assert "key: got 2" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("path", "token", "instead"),
    [
        ("/publish", "PRODUCE", "POST .../messages"),
        ("/groups/workers/flow", "CONSUME", "POST .../pull"),
    ],
)
async def test_a_plain_get_of_a_websocket_is_told_what_to_do(running, peers, path, token, instead):
    status, answer = await running.call("GET", f"{QUEUE}{path}", token=getattr(peers, token))
    assert (status, answer["error"]["code"]) == (400, "bad_request")
    message = answer["error"]["message"]
    assert "expected the upgrade to a WebSocket" in message
    assert "Upgrade: websocket" in message
    assert instead in message
