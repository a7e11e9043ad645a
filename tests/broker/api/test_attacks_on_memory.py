"""Callers that have a token, and want more memory than the broker has to give."""

import asyncio
import json
from contextlib import suppress

import pytest

from partq.broker.operations.pull.pull_answer import MAX_ANSWER_BYTES
from partq.core.hashing import slot_of
from partq.server.memory import Hold, RequestMemory
from partq.wire import batch, frames
from tests.broker.bare_callers import bare_callers, bearer, head
from tests.broker.conftest import LIMITS, queue_and_group

QUEUE = "/v1/queues/orders"
GROUP = f"{QUEUE}/groups/workers"
MIB = 1024 * 1024
ENVELOPE = 64 * 1024


@pytest.fixture
def resources():
    """A queue of large messages."""
    return queue_and_group(limits={**LIMITS, "maxMessageBytes": 2 * MIB})


@pytest.fixture
async def callers():
    async with bare_callers() as open_one:
        yield open_one


async def publish_zeros(running, peers, count, size):
    """Publish small batches that are large inside, and six times larger as JSON."""
    await running.assign("m", [0])
    producer = await peers.open_producer(running)
    message = batch.encode_message(batch.Message(peers.key_of(0), bytes(size)))
    data = batch.encode([message] * 4, [slot_of(peers.key_of(0))] * 4, batch.Codec.ZSTD)
    assert len(data) < 10_000
    for at in range(count // 4):
        await producer.send(frames.Publish(at, 1, 0, 4 * at), data)
        await producer.expect(frames.Published)


async def pull(running, peers, **changes):
    """Pull; return status, answer, and how many bytes it has."""
    body = {"member": "m", "incarnation": "i", "max_messages": 1000, "wait_ms": 0, **changes}
    headers = {"Authorization": f"Bearer {peers.CONSUME}"}
    async with running.session.post(
        running.url + f"{GROUP}/pull", json=body, headers=headers
    ) as response:
        text = await response.read()
    return response.status, json.loads(text), len(text)


async def test_a_pull_is_bounded_as_json(running, peers):
    """Every message comes, in answers that are not larger than the bound."""
    await publish_zeros(running, peers, 32, 200_000)
    offsets, last = [], None
    while len(offsets) < 32:
        status, answer, size = await pull(running, peers, last_answer=last)
        assert status == 200
        assert size <= MAX_ANSWER_BYTES + 1000
        assert answer["messages"], "one message at least"
        assert all(message["value"] == "\0" * 200_000 for message in answer["messages"])
        offsets += [message["offset"] for message in answer["messages"]]
        last = answer["answer"]
    assert offsets == list(range(32))


async def test_a_message_larger_than_the_bound_is_pulled_alone(running, peers):
    await publish_zeros(running, peers, 4, 3 * MIB // 2)
    last = None
    for offset in range(2):
        _, answer, size = await pull(running, peers, last_answer=last)
        assert [message["offset"] for message in answer["messages"]] == [offset]
        assert size > MAX_ANSWER_BYTES
        last = answer["answer"]


async def test_answers_of_pulls_share_one_budget(start_broker, peers):
    """What is kept for a repeat counts until the next pull; without room nothing is delivered."""
    running = await start_broker(request_memory_bytes=4 * MIB)
    await running.claim_all()
    await publish_zeros(running, peers, 32, 100_000)
    memory = running.guard.memory
    _, first, _ = await pull(running, peers)
    assert first["messages"]
    assert 0 < memory.used_bytes <= 4 * MIB + 8192
    _, again, _ = await pull(running, peers)
    assert again["messages"] == first["messages"]
    with Hold(memory) as other:
        other.force(4 * MIB)
        status, refused, _ = await pull(running, peers, last_answer=first["answer"])
        assert (status, refused["error"]["code"]) == (503, "overloaded")
        in_flight = (await running.state())["in_flight"]
        assert in_flight == len(first["messages"]), "nothing more is delivered"
    _, second, _ = await pull(running, peers, last_answer=first["answer"])
    assert second["messages"][0]["offset"] == len(first["messages"])
    running.broker.flow_registry.lose_all()
    await peers.eventually(lambda: memory.used_bytes == 0, "what a lost flow kept is given back")


@pytest.mark.parametrize("is_merged", [True, False])
async def test_a_page_is_bounded_as_json(running, peers, is_merged):
    await publish_zeros(running, peers, 32, 200_000)
    body = {"max_messages": 100, "max_bytes": 4 * MIB, "is_merged": is_merged}
    offset = 0
    while offset < 32:
        where = {**body, "partitions": ["1.0"], "offsets": {"1.0": offset}}
        headers = {"Authorization": f"Bearer {peers.CONSUME}"}
        async with running.session.post(
            running.url + f"{QUEUE}/browse", json=where, headers=headers
        ) as response:
            text = await response.read()
        assert response.status == 200
        assert len(text) <= 4 * MIB + 10_000
        answer = json.loads(text)
        following = answer["next"] if is_merged else answer["partitions"]["1.0"]
        after = following["1.0"] if is_merged else following["next"]
        assert after > offset
        offset = after


# ---- bodies -------------------------------------------------------------------------------------


async def test_a_body_is_refused_by_its_length(running, peers, callers):
    """Before it comes: one message by the queue's limit, an array and other calls by theirs."""
    limit = 6 * 2 * MIB + ENVELOPE
    cases = [
        (f"{QUEUE}/messages", peers.PRODUCE, b"  {", limit + 1, "message_too_large"),
        (f"{QUEUE}/messages", peers.PRODUCE, b" [", 32 * MIB + 1, "batch_too_large"),
        (f"{GROUP}/acks", peers.CONSUME, b"", 4 * MIB + 1, "batch_too_large"),
        (f"{QUEUE}/browse", peers.CONSUME, b"", 10**18, "batch_too_large"),
    ]
    for path, token, start, length, code in cases:
        caller = await callers(running)
        await caller.send(head("POST", path, bearer(token), f"Content-Length: {length}") + start)
        assert await caller.code() == (413, code)
    assert running.guard.memory.used_bytes == 0


async def test_a_body_without_a_length_is_cut_at_its_bound(running, peers, callers):
    caller = await callers(running)
    lines = (bearer(peers.CONSUME), "Transfer-Encoding: chunked")
    await caller.send(head("POST", f"{GROUP}/acks", *lines))
    chunk = b"%x\r\n" % MIB + b" " * MIB + b"\r\n"
    sending = asyncio.create_task(_send_all(caller, [chunk] * 6))
    assert await caller.code() == (413, "batch_too_large")
    await sending
    await peers.eventually(lambda: running.guard.memory.used_bytes == 0, "all is given back")


async def _send_all(caller, chunks):
    try:
        for chunk in chunks:
            await caller.send(chunk)
    except ConnectionError:
        pass


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_bodies_that_are_on_their_way_share_one_budget(start_broker, peers, callers, framing):
    """Held bodies fill it; others are told to ask again, until the holders let go."""
    running = await start_broker(request_memory_bytes=8 * MIB)
    await running.claim_all()
    memory = running.guard.memory
    holder = await callers(running)
    size = 2 * MIB
    if framing == "length":
        lines = (bearer(peers.PRODUCE), f"Content-Length: {size}")
        await holder.send(head("POST", f"{QUEUE}/messages", *lines) + b"{")
    else:
        lines = (bearer(peers.PRODUCE), "Transfer-Encoding: chunked")
        await holder.send(head("POST", f"{QUEUE}/messages", *lines) + b"%x\r\n{" % size)
        await holder.send(b" " * (size - 1))
    await peers.eventually(lambda: memory.used_bytes >= 3 * size, "the body is counted")
    body = json.dumps({"key": peers.key_of(0), "value": "x" * 900_000})
    status, answer = await running.call("POST", f"{QUEUE}/messages", token=peers.PRODUCE, data=body)
    assert (status, answer["error"]["code"]) == (503, "overloaded")
    assert answer["error"]["retry_after_ms"] == 1000
    assert (await running.call("GET", "/readyz", token=None))[0] == 200
    await holder.close()
    await peers.eventually(lambda: memory.used_bytes == 0, "all is given back")
    status, _ = await running.call("POST", f"{QUEUE}/messages", token=peers.PRODUCE, data=body)
    assert status == 201


async def test_who_does_not_read_an_answer_is_cut_off(start_broker, peers, callers):
    """The answer counts until it is read, or until its time is over."""
    running = await start_broker(answer_timeout_s=0.5)
    await running.claim_all()
    await publish_zeros(running, peers, 32, 200_000)
    caller = await callers(running)
    body = json.dumps({"member": "m", "incarnation": "i", "max_messages": 1000}).encode()
    lines = (bearer(peers.CONSUME), f"Content-Length: {len(body)}")
    caller.reader._transport.pause_reading()
    await caller.send(head("POST", f"{GROUP}/pull", *lines) + body)
    memory, census = running.guard.memory, running.guard.census
    await peers.eventually(lambda: memory.used_bytes > 8 * MIB, "answer and repeat are counted")
    await peers.eventually(lambda: memory.used_bytes < 9 * MIB, "the answer is given up")
    caller.reader._transport.resume_reading()
    await caller.ended()
    assert census.known_count <= 2


# ---- frames -------------------------------------------------------------------------------------


def frame_head(size):
    """Return the head of a masked binary frame with a payload of `size` bytes."""
    return b"\x82\xff" + size.to_bytes(8, "big") + bytes(4)


async def half_a_frame(running, peers, callers):
    """Open a producer's WebSocket that sends 1.75 of 2 MiB of a frame, and stops."""
    caller = await callers(running)
    upgrade = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
    lines = (bearer(peers.PRODUCE), *upgrade, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")
    await caller.send(head("GET", f"{QUEUE}/publish", *lines))
    await caller.reader.readuntil(b"\r\n\r\n")
    with suppress(ConnectionError):
        await caller.send(frame_head(2 * MIB) + bytes(7 * MIB // 4))
    return caller


async def test_frames_that_are_on_their_way_are_in_the_budget(start_broker, peers, callers):
    """Half a frame holds as much as it has; who would go beyond the budget is cut, and no other."""
    running = await start_broker(request_memory_bytes=8 * MIB)
    await running.claim_all()
    memory = running.guard.memory
    flow = await peers.open_flow(running)
    producer = await peers.open_producer(running)
    half = [await half_a_frame(running, peers, callers) for _ in range(4)]
    await peers.eventually(lambda: 6 * MIB < memory.used_bytes <= 8 * MIB, "four are counted")
    for _ in range(4):
        await (await half_a_frame(running, peers, callers)).ended()
    assert 6 * MIB < memory.used_bytes <= 8 * MIB
    shown = 'partq_connections_cut_total{namespace="default",queue="orders",reason="memory"} 4.0'
    async with running.session.get(running.url + "/metrics") as response:
        assert shown in await response.text()

    data = batch.encode([batch.encode_message(batch.Message(peers.key_of(0), b"x"))],
                        [slot_of(peers.key_of(0))])  # fmt: skip
    await producer.send(frames.Publish(0, 1, 0, 0), data)
    await producer.expect(frames.Published)
    await flow.send(frames.Ping(7))
    await flow.expect(frames.Pong)  # others publish and consume
    for caller in half:
        await caller.close()
    await peers.eventually(lambda: memory.used_bytes == 0, "all is given back")


def test_one_request_alone_passes_though_it_is_larger_than_the_budget():
    memory = RequestMemory(100)
    first, second = Hold(memory), Hold(memory)
    assert first.try_take(150)
    assert first.try_take(150), "it is still alone"
    assert not second.try_take(1)
    first.release()
    first.release()
    assert memory.used_bytes == 0
    assert second.try_take(60)
    assert not first.try_take(41)
    assert first.try_take(40)
