"""Whatever comes in: its own code and a sentence, and a good stream beside it stays complete."""

import struct
from io import BytesIO

import pytest

from partq.broker.api.routes import flow, publish_socket
from partq.core.clocks.time_to_live import MAX_TTL_MS
from partq.core.hashing import slot_of
from partq.core.quota_share import StorageGrant
from partq.testing.redis_server import RedisServer
from partq.wire import batch, frames

QUEUE = "/v1/queues/orders"
GROUP = f"{QUEUE}/groups/workers"
SEND = f"{QUEUE}/messages"
ADMIN_PREFIX = "/admin/v1/queues/orders"
ADMIN_GROUP = f"{ADMIN_PREFIX}/groups/workers"


class GoodStream:
    """A producer and a consumer of partition 1.0, who notice whatever is missing."""

    def __init__(self, running, producer, flow):
        self.running, self.producer, self.flow = running, producer, flow
        self.sent = 0

    async def flows(self):
        """Publish, receive and acknowledge three messages more, the next ones in order."""
        values = [str(self.sent + at) for at in range(3)]
        assert await self.producer.publish(*values) == self.sent
        assert await self.flow.take(3) == values
        self.sent += 3


@pytest.fixture
async def good(running, peers):
    await running.assign("m", [0])
    flow = await peers.open_flow(running, "m")
    stream = GoodStream(running, await peers.open_producer(running, "good"), flow)
    await stream.flows()
    return stream


def is_sentence(message, *names):
    """Say whether a message names the thing, and is more than a word."""
    return len(message.split()) >= 4 and all(name in message for name in names)


# ---- plain HTTP ---------------------------------------------------------------------------------

KEYED = {"key": "k", "value": "v"}
PULL = {"member": "m", "incarnation": "i"}
ACKS = {"member": "x", "flow": 9, "acks": []}
HALF = rb'{"key":"\ud800"}'
DRAINS = {"drains": [], "wait_ms": 10_001}
HANDOFF = {"partition": "1.9", "broker_epoch": 1, "epoch": 1, "attempt": 1}


@pytest.mark.parametrize(
    ("method", "path", "token", "body", "expected", "names"),
    [
        ("POST", "/v1/queues/nope/messages", "PRODUCE", KEYED, (404, "unknown_queue"), ["nope"]),
        ("POST", f"{QUEUE}/messages?namespace=x", "PRODUCE", KEYED, (404, "unknown_queue"), ["x/"]),
        ("POST", SEND, None, KEYED, (401, "unauthorized"), ["Bearer"]),
        ("POST", SEND, "unheard of", KEYED, (401, "unauthorized"), ["token"]),
        ("POST", SEND, "CONSUME", KEYED, (403, "forbidden"), ["produce"]),
        ("POST", f"{GROUP}/pull", "PRODUCE", PULL, (403, "forbidden"), ["consume"]),
        ("POST", f"{GROUP}/pull", "OTHER_GROUP", PULL, (403, "forbidden"), ["workers"]),
        ("POST", f"{QUEUE}/groups/no/pull", "ADMIN", PULL, (404, "unknown_group"), ["workers"]),
        ("GET", f"{ADMIN_PREFIX}/state", "PRODUCE", None, (403, "forbidden"), ["admin"]),
        ("GET", "/v1/nothing", "ADMIN", None, (404, "not_found"), ["/v1/nothing"]),
        ("PUT", SEND, "ADMIN", KEYED, (405, "method_not_allowed"), ["PUT", "POST"]),
        ("POST", SEND, "PRODUCE", b"{", (400, "bad_json"), ["body"]),
        ("POST", SEND, "PRODUCE", b"", (400, "bad_json"), ["nothing came"]),
        ("POST", SEND, "PRODUCE", b'{"key":"\xff"}', (400, "bad_json"), ["byte 8", "UTF-8"]),
        ("POST", SEND, "PRODUCE", HALF, (400, "bad_json"), ["byte 8", r"\ud800", "both halves"]),
        ("POST", SEND, "PRODUCE", {**KEYED, "x": 1}, (400, "bad_json"), ["field x"]),
        ("POST", SEND, "PRODUCE", {"key": 1, "value": "v"}, (400, "bad_json"), ["key"]),
        ("POST", SEND, "PRODUCE", {"key": "k"}, (400, "bad_request"), ["value"]),
        (
            "POST", SEND, "PRODUCE", {"value_base64": "?"},
            (400, "bad_request"), ["value_base64: got '?'", "expected base64"],
        ),
        (
            "POST", SEND, "PRODUCE", {**KEYED, "event_time_ms": 10**30},
            (400, "bad_request"), ["event_time_ms"],
        ),
        (
            "POST", SEND, "PRODUCE", {**KEYED, "key": "k" * 1025},
            (400, "bad_request"), ["1025"],
        ),
        (
            "POST", SEND, "PRODUCE", {"value": "v", "slot": 70_000},
            (400, "bad_request"), ["slot", "70000"],
        ),
        (
            "POST", SEND, "PRODUCE", {"key": "k", "value": "v" * 4096},
            (413, "message_too_large"), ["4096", "orders"],
        ),
        ("POST", SEND, "PRODUCE", [], (400, "bad_request"), ["no message", "1 to 10000"]),
        (
            "POST", SEND, "PRODUCE", b" " * (33 * 1024 * 1024),
            (413, "batch_too_large"), ["33554432"],
        ),
        ("POST", f"{GROUP}/acks", "CONSUME", ACKS, (409, "fenced"), ["x"]),
        ("POST", f"{ADMIN_GROUP}/drain", "ADMIN", DRAINS, (400, "bad_request"), ["10001"]),
    ],
)  # fmt: skip
async def test_plain_http(good, peers, method, path, token, body, expected, names):
    payload = {"data": BytesIO(body)} if isinstance(body, bytes) else {"json": body}
    token = getattr(peers, token, token) if token is not None else None
    status, answer = await good.running.call(method, path, token=token, **payload)
    error = answer["error"]
    assert (status, error["code"]) == expected
    assert is_sentence(error["message"], *names), error["message"]
    await good.flows()


async def test_a_partition_that_a_call_of_the_coordinator_names_wrongly(good):
    """The others of the same call are not touched."""
    handoffs = [{**HANDOFF, "partition": name} for name in ("1.9", "2.0", "-1", "1.")]
    results = await good.running.admin("/groups/workers/cancel", {"cancels": handoffs})
    assert [result["error"]["code"] for result in results] == [
        "unknown_partition", "unknown_partition", "bad_request", "bad_request",
    ]  # fmt: skip
    await good.flows()


@pytest.mark.req("SOL-U12")
async def test_a_quota_that_is_used_up(good, peers, monkeypatch):
    """Nothing of the batch is stored, and it may come again when there is room."""
    quota = good.running.broker.quota
    monkeypatch.setattr(quota, "take", lambda sizes: StorageGrant(100, 0))
    bad = await peers.open_producer(good.running, "bad")
    await bad.publish("x", partition=1)
    await bad.offer(1, "x" * 200, partition=1)
    refused, _ = await bad.expect(frames.PublishRefused)
    assert (refused.code, refused.due) == ("quota_exceeded", 1)
    assert is_sentence(refused.message, "1.1", "quota")
    body = {"key": peers.key_of(1), "value": "x" * 200}
    status, answer = await good.running.call("POST", SEND, token=peers.PRODUCE, json=body)
    assert (status, answer["error"]["code"]) == (429, "quota_exceeded")
    assert answer["error"]["retry_after_ms"] == 1000
    async with good.running.session.get(f"{good.running.url}/metrics") as response:
        shown = await response.text()
    names = 'code="quota_exceeded",namespace="default",queue="orders"'
    assert f"partq_publishes_refused_total{{{names}}} 2.0" in shown, "that of plain HTTP, too"
    monkeypatch.setattr(quota, "take", lambda sizes: StorageGrant(None))
    await bad.offer(1, "x", partition=1)
    await bad.expect(frames.Published)
    await good.flows()


# ---- frames of producers ------------------------------------------------------------------------


def good_batch(peers):
    return peers.make_batch(["x"], 1)


def corrupted(data):
    """Break the body, which the checksum covers."""
    return data[:-1] + bytes([data[-1] ^ 1])


def with_header(data, at, value):
    """Write a 32-bit number over a part of the header."""
    return data[:at] + struct.pack("<I", value) + data[at + 4 :]


BAD_BATCHES = {
    "too short": (lambda peers: b"pq", "bad_batch", ["2 bytes"]),
    "broken magic": (lambda peers: b"xx" + good_batch(peers)[2:], "bad_batch", ["magic"]),
    "broken CRC": (lambda peers: corrupted(good_batch(peers)), "bad_batch", ["CRC"]),
    "cut off": (lambda peers: good_batch(peers)[:-1], "bad_batch", ["header says"]),
    "no messages": (lambda peers: with_header(good_batch(peers), 6, 0), "bad_batch", ["messages"]),
    "raw length of 4 GB": (
        lambda peers: with_header(good_batch(peers), 10, 2**32 - 1), "bad_batch", ["expands"],
    ),
    "another partition's key": (
        lambda peers: peers.make_batch(["x"], 2), "wrong_partition", ["slots"],
    ),
    "a large message": (
        lambda peers: peers.make_batch(["x" * 5000], 1), "message_too_large", ["4096"],
    ),
    "a large batch": (
        lambda peers: bytes(16 * 1024 * 1024 + 500_000), "batch_too_large", ["bytes"],
    ),
}  # fmt: skip


@pytest.mark.req("PUL-15", "PUL-16", "PUL-17", "AZR-65")
@pytest.mark.parametrize("name", BAD_BATCHES)
async def test_bad_batches(good, peers, name):
    """Refused by themselves: the connection stays, and the next batch is judged anew."""
    make, code, names = BAD_BATCHES[name]
    bad = await peers.open_producer(good.running, "bad")
    await bad.send(frames.Publish(9, 1, 1, 0), make(peers))
    refused, _ = await bad.expect(frames.PublishRefused)
    assert (refused.request, refused.code) == (9, code)
    assert is_sentence(refused.message, *names), refused.message
    await bad.publish("x", partition=1)
    await good.flows()


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (frames.Publish(9, 1, 99, 0), "unknown_partition"),
        (frames.Publish(9, 7, 0, 0), "unknown_partition"),
        (frames.Publish(9, 1, 1, -1), "bad_request"),
        (frames.Publish(9, 1, 1, 0, -1), "bad_request"),
        (frames.Publish(9, 1, 1, 0, MAX_TTL_MS + 1), "bad_request"),
    ],
)
async def test_publish_frames_that_name_what_is_not_there(good, peers, frame, code):
    bad = await peers.open_producer(good.running, "bad")
    await bad.send(frame, good_batch(peers))
    refused, _ = await bad.expect(frames.PublishRefused)
    assert (refused.request, refused.code) == (9, code)
    await bad.publish("x", partition=1)
    await good.flows()


# ---- frames that end their connection -----------------------------------------------------------

BROKEN = {
    "text": "hello",
    "empty": b"",
    "no frame": b"\x01\x02",
    "a header that is cut off": struct.pack("<I", 100) + b"x",
    "a header of 4 GB": struct.pack("<I", 2**32 - 1) + b"x" * 50,
    "no MessagePack": struct.pack("<I", 1) + b"\xc1",
    "an unknown kind": struct.pack("<I", 2) + b"\x91\x7f",
    "wrong elements": struct.pack("<I", 3) + b"\x92\x01\xa0",
    "one that does not belong here": frames.encode(frames.Revoked(1, 0, 1, 1, 0)),
}


@pytest.mark.parametrize("is_greeted", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("side", ["producer", "consumer"])
@pytest.mark.parametrize("name", BROKEN)
async def test_broken_frames(good, peers, name, side, is_greeted):
    """The connection ends, with a reason; nobody else's does."""
    if is_greeted and side == "producer":
        bad = await peers.open_producer(good.running, "bad")
    elif is_greeted:
        bad = await peers.open_flow(good.running, "n")
    else:
        path, token = (
            (f"{QUEUE}/publish", peers.PRODUCE)
            if side == "producer"
            else (f"{GROUP}/flow", peers.CONSUME)
        )
        bad = await peers.connect(good.running, path, token)
    data = BROKEN[name]
    await (bad.socket.send_str(data) if isinstance(data, str) else bad.socket.send_bytes(data))
    failed, _ = await bad.expect(frames.Failed)
    assert failed.code == "bad_frame"
    assert is_sentence(failed.message, "frame"), failed.message
    await bad.ended()
    await good.flows()


@pytest.mark.parametrize(
    ("path", "token", "frame", "code"),
    [
        ("publish", "PRODUCE", frames.ProducerHello(""), "bad_request"),
        ("publish", "PRODUCE", frames.ProducerHello("p" * 129), "bad_request"),
        ("publish", "PRODUCE", frames.ProducerHello("p\n"), "bad_request"),
        ("publish", "PRODUCE", frames.ProducerHello("p", version=2), "bad_request"),
        ("groups/workers/flow", "CONSUME", frames.Bind("", "i", 10), "bad_request"),
        ("groups/workers/flow", "CONSUME", frames.Bind("m" * 254, "i", 10), "bad_request"),
        ("groups/workers/flow", "CONSUME", frames.Bind("m", "\0", 10), "bad_request"),
        ("groups/workers/flow", "CONSUME", frames.Bind("m", "i", 0), "bad_request"),
        ("groups/workers/flow", "CONSUME", frames.Bind("m", "i", 10**7), "bad_request"),
        ("groups/workers/flow", "CONSUME", frames.Bind("m", "i", 10, version=9), "bad_request"),
    ],
)
async def test_greetings_out_of_bounds(good, peers, path, token, frame, code):
    bad = await peers.connect(good.running, f"{QUEUE}/{path}", getattr(peers, token))
    await bad.send(frame)
    failed, _ = await bad.expect(frames.Failed)
    assert failed.code == code
    assert is_sentence(failed.message)
    await good.flows()


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (frames.Credit(0), "bad_request"),
        (frames.Credit(10**9), "bad_request"),
        (frames.Release(1, 0, 1, 1, 0, -1), "bad_request"),
        (frames.Ack(1, 1, 0, 1, 1, 0, -1, [(n, n + 1) for n in range(50_001)]), "bad_request"),
    ],
)
async def test_frames_of_flows_out_of_bounds(good, peers, frame, code):
    bad = await peers.open_flow(good.running, "n")
    await bad.send(frame)
    failed, _ = await bad.expect(frames.Failed)
    assert failed.code == code
    await good.flows()


@pytest.mark.parametrize(
    ("path", "token", "limit", "expected"),
    [
        ("publish", "PRODUCE", (publish_socket, "HELLO_TIMEOUT_S"), "ProducerHello"),
        ("groups/workers/flow", "CONSUME", (flow, "BIND_TIMEOUT_S"), "Bind"),
    ],
)
async def test_a_connection_that_says_nothing_is_told_why_it_ends(
    good, peers, monkeypatch, path, token, limit, expected
):
    monkeypatch.setattr(*limit, 0.2)
    bad = await peers.connect(good.running, f"{QUEUE}/{path}", getattr(peers, token))
    failed, _ = await bad.expect(frames.Failed)
    assert failed.code == "unavailable"
    assert is_sentence(failed.message, f"no {expected}", "0.2 s")
    await bad.ended()


async def test_a_producer_that_falls_silent_is_told_why_it_ends(good, peers, monkeypatch):
    monkeypatch.setattr(publish_socket, "SILENT_S", 0.2)
    bad = await peers.open_producer(good.running, "bad")
    failed, _ = await bad.expect(frames.Failed)
    assert failed.code == "unavailable"
    assert is_sentence(failed.message, "no frame", "0.2 s")
    await bad.ended()


async def test_acks_that_do_not_fit(good, peers):
    """Refused one by one; the flow continues. (Every kind: test_flows.py.)"""
    bad = await peers.open_flow(good.running, "n")
    token = frames.Assigned(1, 0, 1, 1, 0)
    assert await bad.ack(token, 3) == "fenced"
    assert await bad.ack(token) == "bad_request", "it acknowledges nothing"
    assert await bad.ack(token, -2, [(0, 1)]) == "bad_request"
    await good.flows()


async def test_a_message_that_does_not_decode_is_delivered_as_it_came(good, peers):
    """The broker opens no body: what to do with it is the consumer's business."""
    data = batch.encode([b"\xc1"], [slot_of(peers.key_of(0))])
    bad = await peers.open_producer(good.running, "bad")
    await bad.send(frames.Publish(1, 1, 0, 0), data)
    await bad.expect(frames.Published)
    deliver, payload = await good.flow.find(frames.Deliver)
    assert payload == data
    assert await good.flow.ack(deliver, deliver.stop) == ""
    good.sent += 1
    await good.flows()


# ---- Redis away ---------------------------------------------------------------------------------


@pytest.fixture
def own_redis(tmp_path):
    server = RedisServer()
    server.start(tmp_path / "redis")
    yield server, tmp_path / "redis"
    server.stop()


class TestRedisAway:
    """With a Redis of its own, which stops."""

    @pytest.fixture
    def redis_server(self, own_redis):
        return own_redis[0]

    async def test_every_call_says_so_and_the_stream_goes_on(self, good, peers, own_redis):
        """Publishing is refused as not stored; what was confirmed is there when Redis is back."""
        server, data_dir = own_redis
        server.stop()
        broker = good.running.broker
        await peers.eventually(lambda: not broker.lease.is_valid, "the lease is over")
        body = {"key": peers.key_of(0), "value": "x"}
        status, answer = await good.running.call("POST", SEND, token=peers.PRODUCE, json=body)
        assert (status, answer["error"]["code"]) == (503, "not_stored")
        assert is_sentence(answer["error"]["message"], "1.0", "Redis")
        await good.producer.offer(good.sent, "0")
        refused, _ = await good.producer.expect(frames.PublishRefused)
        assert (refused.code, refused.retry_after_ms) == ("not_stored", 1000)
        status, answer = await good.running.call("GET", f"{QUEUE}/status")
        assert (status, answer["error"]["code"]) == (503, "store_unavailable")
        status, answer = await good.running.call("GET", "/readyz", token=None)
        assert (status, answer["has_lease"]) == (503, False)
        status, _ = await good.running.call("GET", "/healthz", token=None)
        assert status == 200

        server.start(data_dir)
        await peers.eventually(lambda: broker.lease.is_valid, "the lease is renewed")
        await good.flow.find(frames.Assigned)
        await good.flows()
