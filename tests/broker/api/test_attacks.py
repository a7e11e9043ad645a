"""What a caller can do with the open port alone: judged by what the broker still has afterwards."""

import asyncio
import json
import logging
import zlib
from io import BytesIO

import pytest
from aiohttp import ClientSession, TCPConnector
from aiohttp.compression_utils import ZLibDecompressor

from partq.wire import frames
from tests.broker.bare_callers import bare_callers, bearer, head

QUEUE = "/v1/queues/orders"
GROUP = f"{QUEUE}/groups/workers"


@pytest.fixture
async def callers():
    async with bare_callers() as open_one:
        yield open_one


def epochs(running):
    return {str(p): owned.broker_epoch for p, owned in running.broker.owned.items()}


# ---- bodies that expand -------------------------------------------------------------------------

PATHS = [
    ("GET", "/healthz"),
    ("POST", "/healthz"),
    ("POST", "/nowhere"),
    ("POST", f"{QUEUE}/messages"),
    ("GET", f"{QUEUE}/publish"),
    ("DELETE", f"{QUEUE}/messages"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_an_encoded_body_is_refused_before_it_comes(running, callers, method, path):
    """Without a token too, and where nothing is served; plain bodies are judged as ever."""
    for encoding in ("gzip", "deflate", "br", "GZIP, identity", "nonsense"):
        caller = await callers(running)
        await caller.send(
            head(method, path, f"Content-Encoding: {encoding}", "Content-Length: 1000000000")
        )
        assert await caller.code() == (415, "unsupported_encoding")
    caller = await callers(running)
    await caller.send(head(method, path, "Content-Encoding: identity", "Content-Length: 0"))
    assert (await caller.answer())[0] in {200, 401, 404, 405}


def bomb(gibibytes):
    """Return a gzip stream of zeros, 1,000 times larger inside."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    start = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return start + block * (1024 * gibibytes - 1)


@pytest.fixture
def inflated(monkeypatch):
    """Count the bytes that the server's library unpacks."""
    count = [0]
    real = ZLibDecompressor.decompress_sync

    def counted(self, *args, **kwargs):
        data = real(self, *args, **kwargs)
        count[0] += len(data)
        return data

    monkeypatch.setattr(ZLibDecompressor, "decompress_sync", counted)
    return count


async def test_a_bomb_is_not_unpacked(running, inflated):
    """1 GiB inside, in 1 MB: nothing of it is made, and every partition stays."""
    before = epochs(running)
    data = bomb(1)
    for path in ("/healthz", "/nowhere", f"{QUEUE}/messages"):
        async with running.session.post(
            running.url + path, data=BytesIO(data), headers={"Content-Encoding": "gzip"}
        ):
            pass
        assert (await running.call("GET", "/healthz", token=None))[0] == 200
    assert inflated == [0]
    assert epochs(running) == before != {}


# ---- callers that take their time ---------------------------------------------------------------

QUICK = {
    "headers_timeout_s": 0.5,
    "body_timeout_s": 0.5,
    "answer_timeout_s": 0.5,
    "idle_timeout_s": 1.0,
}


@pytest.fixture
async def quick(start_broker):
    """A broker whose times are short."""
    broker = await start_broker(**QUICK)
    await broker.claim_all()
    return broker


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"])
async def test_headers_that_do_not_come_end_the_connection(quick, callers, sent):
    caller = await callers(quick)
    await caller.send(sent)
    await caller.ended()


@pytest.mark.parametrize("is_first", [True, False], ids=["first request", "second request"])
async def test_headers_that_drip_end_the_connection(quick, callers, is_first):
    """Each byte comes in time, the last of them never."""
    caller = await callers(quick)
    if not is_first:
        await caller.send(head("GET", "/healthz"))
        assert (await caller.answer())[0] == 200
    ending = asyncio.create_task(caller.ended())
    await caller.send(b"GET /healthz HTTP/1.1\r\nX: ")
    while not ending.done():
        try:
            await caller.send(b"x")
        except ConnectionError:
            break
        await asyncio.wait([ending], timeout=0.05)
    await ending


@pytest.mark.parametrize("framing", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
async def test_a_body_that_does_not_come_is_answered_and_ends(quick, peers, callers, framing):
    caller = await callers(quick)
    lines = (bearer(peers.PRODUCE), "Content-Type: application/json", framing)
    await caller.send(head("POST", f"{QUEUE}/messages", *lines))
    if framing.startswith("Transfer"):
        await caller.send(b"1\r\n{\r\n")
    assert await caller.code() == (408, "request_timeout")
    await caller.ended()


async def test_an_idle_connection_ends(quick, callers):
    caller = await callers(quick)
    await caller.send(head("GET", "/healthz"))
    assert (await caller.answer())[0] == 200
    await caller.ended()


async def test_sockets_that_work_outlive_every_time_limit(quick, peers, callers):
    """A producer and a flow stay, while two connections run into their ends one after another."""
    await quick.assign("m", [0])
    producer = await peers.open_producer(quick)
    flow = await peers.open_flow(quick, "m")
    await producer.publish("a")
    assert await flow.take(1) == ["a"]
    for _ in range(2):
        caller = await callers(quick)
        await caller.send(head("GET", "/healthz"))
        await caller.answer()
        await flow.send(frames.Ping(1))
        await caller.ended()
    await producer.publish("b")
    assert await flow.take(1) == ["b"]


# ---- callers that are many ----------------------------------------------------------------------


async def test_many_connections_without_a_token_push_out_their_own_oldest(
    start_broker, peers, callers
):
    """Probes and producers come through, however many hold on."""
    running = await start_broker(max_connections_per_address=20, headers_timeout_s=60.0)
    await running.claim_all()
    producer = await peers.open_producer(running)
    holders = [await callers(running) for _ in range(60)]
    census = running.guard.census
    await peers.eventually(lambda: census.unknown_count <= 20, "no more than may be")
    for holder in holders[:30]:
        await holder.ended()
    caller = await callers(running)
    await caller.send(head("GET", "/healthz"))
    assert (await caller.answer())[0] == 200
    assert census.unknown_count <= 20
    await producer.publish("a")


async def test_all_connections_together_are_bounded(start_broker, peers, callers):
    """Those without a token get half of them; who has one gets in though they are taken."""
    running = await start_broker(max_connections=16, headers_timeout_s=60.0)
    await running.claim_all()
    holders = [await callers(running) for _ in range(40)]
    census = running.guard.census
    for holder in holders[:30]:
        await holder.ended()
    producer = await peers.open_producer(running)
    await producer.publish("a")
    assert census.known_count + census.unknown_count <= 16
    _, _, text = await plain(running, callers, "/metrics")
    shown = 'partq_connections_cut_total{namespace="default",queue="orders",reason="total"}'
    assert float(text.split(shown)[1].split()[0]) >= 30


async def plain(running, callers, path):
    caller = await callers(running)
    await caller.send(head("GET", path))
    return await caller.answer()


async def test_connections_of_one_token_are_bounded(start_broker, peers, callers):
    running = await start_broker(max_connections_per_token=3)

    async def ask(token):
        caller = await callers(running)
        await caller.send(head("GET", f"{QUEUE}/layout", bearer(token)))
        status, headers, _ = await caller.answer()
        return caller, status, headers.get("retry-after")

    first = [await ask(peers.PRODUCE) for _ in range(3)]
    assert [status for _, status, _ in first] == [200, 200, 200]
    assert (await ask(peers.PRODUCE))[1:] == (429, "1")
    assert (await ask(peers.CONSUME))[1] == 200, "another token has its own"
    await first[0][0].close()

    async def is_let_in():
        return (await ask(peers.PRODUCE))[1] == 200

    await peers.eventually(is_let_in, "the place is free again")


# ---- what belongs to others ---------------------------------------------------------------------

EVERY_GROUP = "every-group-token-01"


@pytest.fixture
def tokens_file(tokens_file):
    rows = json.loads(tokens_file.read_text())
    rows.append({"token": EVERY_GROUP, "queue": "orders", "role": "consume"})
    tokens_file.write_text(json.dumps(rows))
    return tokens_file


async def test_a_token_for_every_group_moves_no_cursor(running, peers):
    """It reads, and it binds where its pod is listed; what a group has not done with stays."""
    producer = await peers.open_producer(running)
    await producer.publish("a", "b", "c")
    where = {"positions": {"1.0": {"offset": 3, "append_broker_epoch": 0}}}
    for token, status in ((EVERY_GROUP, 403), (peers.OTHER_GROUP, 403), (peers.CONSUME, 200)):
        got, answer = await running.call("POST", f"{GROUP}/cursors", token=token, json=where)
        assert got == status, answer
        cursor = (await running.state())["cursor"]
        assert cursor == (3 if status == 200 else 0)
    got, _ = await running.call("POST", f"{QUEUE}/browse", token=EVERY_GROUP, json={})
    assert got == 200


async def test_a_pin_is_moved_and_ended_by_its_own_token_alone(running, peers):
    """Another reader of the same name has a pin of its own."""
    pins = f"{QUEUE}/pins/mine"
    partition = running.broker.owned[peers.partition_id(0)]

    async def held():
        trimmed = await running.broker.log.trim(partition.id, broker_epoch=partition.broker_epoch)
        return trimmed.held

    producer = await peers.open_producer(running)
    await producer.publish("a", "b", "c")
    offsets = {"offsets": {"1.0": 0}}
    assert (await running.call("PUT", pins, token=peers.CONSUME, json=offsets))[0] == 200
    where = {"positions": {"1.0": {"offset": 3, "append_broker_epoch": 0}}}
    assert (await running.call("POST", f"{GROUP}/cursors", token=peers.CONSUME, json=where))[
        0
    ] == 200
    later = {"offsets": {"1.0": 3}}
    assert (await running.call("PUT", pins, token=EVERY_GROUP, json=later))[0] == 200
    assert (await running.call("DELETE", pins, token=EVERY_GROUP))[0] == 200
    assert await held() == 0
    assert (await running.call("DELETE", pins, token=peers.CONSUME))[0] == 200
    assert await held() == 3


async def test_a_member_is_spoken_for_from_its_own_address_alone(running, peers):
    """Numbers of flows are small: who guesses one acknowledges nothing for its member."""
    await running.assign("m", [0])
    await (await peers.open_producer(running)).publish("a")
    body = {"member": "m", "incarnation": "i", "wait_ms": 0}
    _, pulled = await running.call("POST", f"{GROUP}/pull", token=peers.CONSUME, json=body)
    (message,) = pulled["messages"]
    token = {name: message[name] for name in ("partition", "broker_epoch", "epoch", "delivery")}
    acks = [{**token, "offsets": [message["offset"]]}]
    ack = {"member": "m", "flow": pulled["flow"], "acks": acks}
    nack = {"member": "m", "flow": pulled["flow"], "nacks": acks}
    calls = [
        ("POST", f"{GROUP}/acks", ack),
        ("POST", f"{GROUP}/nacks", nack),
        ("POST", f"{GROUP}/pull", body),
        ("DELETE", f"{GROUP}/members/m?flow={pulled['flow']}", None),
        ("POST", f"{GROUP}/members/m/leave", None),
    ]
    elsewhere = TCPConnector(local_addr=("127.0.0.2", 0))
    headers = {"Authorization": f"Bearer {EVERY_GROUP}"}
    async with ClientSession(connector=elsewhere, headers=headers) as other:
        for method, path, content in calls:
            async with other.request(method, running.url + path, json=content) as response:
                answer = await response.json()
                assert (response.status, answer["error"]["code"]) == (403, "forbidden"), path
    state = await running.state()
    assert (state["cursor"], state["in_flight"]) == (0, 1)
    assert (await running.call("POST", f"{GROUP}/acks", token=peers.CONSUME, json=ack))[0] == 200


# ---- what is told, and what is logged -----------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (head("GET", "/healthz"), 200),
        (head("GET", f"{QUEUE}/status"), 401),
        (head("GET", "/nowhere"), 404),
        (b"no http at all\r\n\r\n", 400),
        (head("GET", "/" + "x" * 9000), 400),
        (head("GET", "/healthz", "X: " + "x" * 100_000), 400),
    ],
)
async def test_no_answer_says_what_serves_it(running, callers, caplog, data, status):
    with caplog.at_level(logging.INFO):
        caller = await callers(running)
        await caller.send(data)
        got, headers, text = await caller.answer()
    assert got == status
    assert "server" not in headers
    assert "aiohttp" not in text.lower() + str(headers).lower()
    assert not caplog.records, "a caller's fault is nobody else's line"
    assert headers["content-type"].startswith("application/json")


async def test_clients_that_break_off_leave_no_traceback(running, peers, callers, caplog):
    lines = (bearer(peers.PRODUCE), "Content-Length: 1000")
    with caplog.at_level(logging.DEBUG):
        for _ in range(10):
            caller = await callers(running)
            await caller.send(head("POST", f"{QUEUE}/messages", *lines) + b"{")
            caller.writer.transport.abort()

        def lines_of():
            return [r for r in caplog.records if "broken off" in r.getMessage()]

        await peers.eventually(lambda: len(lines_of()) >= 1, "told to those who debug")
        assert (await running.call("GET", "/healthz", token=None))[0] == 200
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING or r.exc_info]
