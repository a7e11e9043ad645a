"""A scripted peer: it speaks the broker's frames, and each test decides what it says."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientTimeout, WSMsgType, web

from partq.client.transport import broker_connection, session
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.testing.local_broker import LocalBroker
from partq.wire import batch, frames
from partq.wire.layout_record import lineage_form, ranges_form, times_form
from tests.client.member import LEASE_MS, Member
from tests.even_shares import even_shares

WAIT_S = 60.0


class Connection:
    """One WebSocket of a client, as the broker sees it."""

    def __init__(self, request: web.Request, socket: web.WebSocketResponse) -> None:
        self.request = request
        self.socket = socket
        self.first: Any = None
        self.answers_pings = True
        self.pinged = asyncio.Event()
        """Set when the client pings."""
        self._frames: asyncio.Queue[tuple[frames.AnyFrame, bytes] | None] = asyncio.Queue()

    async def serve(self) -> None:
        """Read until the client closes."""
        async for message in self.socket:
            if message.type is not WSMsgType.BINARY:
                continue
            frame, payload = frames.decode(message.data)
            if isinstance(frame, frames.Ping):
                self.pinged.set()
                if self.answers_pings:
                    await self.send(frames.Pong(frame.nonce))
            else:
                self._frames.put_nowait((frame, payload))
        self._frames.put_nowait(None)

    async def send(self, *sent: frames.Frame, payload: bytes = b"") -> None:
        """Send frames; `payload` goes with each."""
        for frame in sent:
            await self.socket.send_bytes(frames.encode(frame, payload))

    async def next(self, kind: type = frames.Frame) -> Any:
        """Return the client's next frame, which is of `kind`; pings are answered elsewhere."""
        return (await self.next_with_payload(kind))[0]

    async def next_with_payload(self, kind: type = frames.Frame) -> tuple[Any, bytes]:
        """Return the client's next frame and its payload."""
        async with asyncio.timeout(WAIT_S):
            received = await self._frames.get()
        assert received is not None, "the client has closed the connection"
        assert isinstance(received[0], kind), received[0]
        return received

    async def closed(self) -> None:
        """Wait until the client has closed the connection; frames before that are dropped."""
        async with asyncio.timeout(WAIT_S):
            while await self._frames.get() is not None:
                pass

    def is_quiet(self) -> bool:
        """Say whether no frame waits to be looked at."""
        return self._frames.empty()

    async def drop(self) -> None:
        """End the connection without a word."""
        assert self.request.transport is not None
        self.request.transport.abort()


class Peer:
    """A server on loopback in the place of a broker."""

    def __init__(self) -> None:
        self.url = ""
        self.partition_count = 2
        self.layout: Layout | None = None
        """Of a queue whose partition count has changed."""
        self.owners: dict[str, str] | None = None
        self.brokers: dict[str, str] = {}
        self.groups = ["workers"]
        self.keyless_policy = "Random"
        self.max_message_bytes = 10_000
        self.max_unacked_per_flow = 10_000
        self.due: dict[str, int] = {}
        self.refusal: tuple[int, str] | None = None
        self.was_asked = asyncio.Event()
        """Set when a client asks for the layout."""
        self._producers: asyncio.Queue[Connection] = asyncio.Queue()
        self._flows: asyncio.Queue[Connection] = asyncio.Queue()

    async def start(self) -> web.AppRunner:
        """Listen."""
        app = web.Application()
        app.router.add_get("/v1/queues/{queue}/layout", self._layout)
        app.router.add_get("/v1/queues/{queue}/producers/{producer}", self._due)
        app.router.add_get("/v1/queues/{queue}/publish", self._accept(self._producers))
        app.router.add_get("/v1/queues/{queue}/groups/{group}/flow", self._accept(self._flows))
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self.brokers = {"broker-0": self.url}
        return runner

    async def producer(self, *, max_in_flight: int = 5, lease_ms: int = LEASE_MS) -> Connection:
        """Take the next connection of a producer and welcome it."""
        connection = await self.raw_producer()
        welcome = frames.ProducerWelcome("broker-0", lease_ms, 10_000, max_in_flight)
        await connection.send(welcome)
        return connection

    async def raw_producer(self) -> Connection:
        """Take the next connection of a producer, after its first frame."""
        async with asyncio.timeout(WAIT_S):
            connection = await self._producers.get()
        connection.first = await connection.next(frames.ProducerHello)
        return connection

    async def flow(self, *, lease_ms: int = LEASE_MS) -> Connection:
        """Take the next flow and bind it."""
        connection = await self.raw_flow()
        await connection.send(frames.Bound("broker-0", 1, lease_ms))
        return connection

    async def raw_flow(self) -> Connection:
        """Take the next flow, after its first frame."""
        async with asyncio.timeout(WAIT_S):
            connection = await self._flows.get()
        connection.first = await connection.next(frames.Bind)
        return connection

    def _accept(self, waiting: asyncio.Queue[Connection]):
        async def handle(request: web.Request) -> web.WebSocketResponse:
            socket = web.WebSocketResponse(max_msg_size=32 * 1024 * 1024)
            await socket.prepare(request)
            connection = Connection(request, socket)
            waiting.put_nowait(connection)
            await connection.serve()
            return socket

        return handle

    async def _layout(self, request: web.Request) -> web.Response:
        self.was_asked.set()
        if self.refusal is not None:
            status, code = self.refusal
            return web.json_response({"error": {"code": code, "message": "no"}}, status=status)
        layout = self.layout or Layout.first(self.partition_count)
        owners = self.owners
        if owners is None:
            owners = {str(each): "broker-0" for each in layout.partitions()}
        return web.json_response(
            {
                "queue": request.match_info["queue"],
                "namespace": "default",
                "uid": "0f3a9c1e",
                **_generations(layout),
                "brokers": [{"broker": name, "url": url} for name, url in self.brokers.items()],
                "owners": owners,
                "limits": {
                    "max_message_bytes": self.max_message_bytes,
                    "max_unacked_per_flow": self.max_unacked_per_flow,
                },
                "keyless_policy": self.keyless_policy,
                "groups": self.groups,
            }
        )

    async def _due(self, _: web.Request) -> web.Response:
        due = {f"1.{index}": 0 for index in range(self.partition_count)} | self.due
        return web.json_response({"due": due, "unavailable": []})


def _generations(layout: Layout) -> dict[str, object]:
    if layout.generation == 1:
        return {"generations": [{"generation": 1, "partitions": layout.partition_count}]}
    return {
        "generations": [],
        "generation": layout.generation,
        "table": ranges_form(layout.table.slots),
        "lineage": lineage_form(layout.lineage),
        "retired": times_form(layout.retired),
    }


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clients wait for answers as long as tests do.

    Here client and peer share one event loop: where the machine is busy, the client would give up
    on an answer that the test was about to send. What happens then, tests ask for by a shorter one.
    """
    for module, name in (
        (session, "CALL_TIMEOUT_S"),
        (broker_connection, "CALL_TIMEOUT_S"),
        (session, "VIEW_TIMEOUT_S"),
    ):
        monkeypatch.setattr(module, name, WAIT_S)
    monkeypatch.setattr(session, "FETCH_TIMEOUT", ClientTimeout(total=WAIT_S))


class Clock:
    """A clock that a test can advance; otherwise it stands."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """A peer with two partitions and one group, `workers`."""
    scripted = Peer()
    runner = await scripted.start()
    yield scripted
    await runner.cleanup()


@pytest.fixture
async def other_peer() -> AsyncIterator[Peer]:
    """A second broker."""
    scripted = Peer()
    runner = await scripted.start()
    yield scripted
    await runner.cleanup()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def values():
    """Return the values in the bytes of a batch."""
    return lambda data: [message.value for message in batch.decode(data)]


@pytest.fixture
def stored_batch():
    """Return the bytes of a batch with these values."""

    def make(*contents: bytes) -> bytes:
        messages = [batch.Message("k", content) for content in contents]
        return batch.encode(batch.encode_messages(messages), [0] * len(messages))

    return make


@pytest.fixture
def partition() -> PartitionId:
    return PartitionId(1, 0)


@pytest.fixture
async def member(peer: Peer) -> AsyncIterator[Member]:
    """A consumer that is open."""
    member = Member(peer)
    async with member.consumer:
        yield member


@pytest.fixture
async def brokers():
    """Two real ones that own four partitions each."""
    async with LocalBroker(queue="orders", partitions=8, broker_count=2) as local:
        await even_shares(local.queue)
        yield local
