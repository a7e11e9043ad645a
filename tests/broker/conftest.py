"""A real broker on loopback, and bare peers that speak its frames."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, web

from partq.broker.app import make_app
from partq.broker.auth import Tokens
from partq.broker.broker import Broker
from partq.core.hashing import slot_of
from partq.core.layout import Layout
from partq.core.model import MemberId, PartitionId
from partq.embedded.provision import provision
from partq.resources import Resources, parse_resources
from partq.settings import BrokerSettings
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.members import Members
from partq.testing.redis_server import RedisServer
from partq.wire import batch, frames

UID = "0f3a9c1e"
PRODUCE, CONSUME, ADMIN = "produce-token-0001", "consume-token-0001", "admin-token-000001"
OTHER_GROUP = "consume-token-0002"
WAIT_S = 10.0

YAML = """
apiVersion: partq.dev/v1alpha1
kind: PartitionedQueue
metadata: {name: orders}
spec:
  partitions: 4
  limits: {maxMessageBytes: 4096, maxUnackedPerFlow: 1000}
---
apiVersion: partq.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: workers}
spec: {queue: orders}
"""


async def eventually(condition: Callable[[], Any], what: str) -> Any:
    """Wait until a condition holds; it may be a coroutine function."""
    async with asyncio.timeout(WAIT_S):
        while True:
            value = condition()
            if isinstance(value, Awaitable):
                value = await value
            if value:
                return value
            await asyncio.sleep(0.01)
    raise AssertionError(what)


class RunningBroker:
    """A broker and its server, in this process, on a real Redis."""

    def __init__(self, settings: BrokerSettings, store: Store) -> None:
        self.settings = settings
        self.store = store

    async def start(self) -> Self:
        """Start it, and wait until it is ready."""
        self.peers = ClientSession()
        # The application needs the broker, the broker its URL: the port is chosen by binding.
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        self.url = f"http://127.0.0.1:{port}"
        self.broker = Broker(self.settings, self.store, url=self.url)
        tokens = Tokens(self.settings.tokens_file, clock=asyncio.get_running_loop().time)
        self.runner = web.AppRunner(make_app(self.broker, tokens, self.peers))
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", port).start()
        self.broker.start()
        self.session = ClientSession()
        await eventually(lambda: self.broker.is_ready, "broker ready")
        return self

    async def stop(self) -> None:
        """Stop it in order."""
        await self.session.close()
        await self.broker.close()
        await self.runner.cleanup()
        await self.peers.close()

    async def call(
        self, method: str, path: str, *, token: str | None = ADMIN, **kwargs: Any
    ) -> tuple[int, Any]:
        """Make a call; return status and JSON."""
        headers = kwargs.pop("headers", {})
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        async with self.session.request(
            method, self.url + path, headers=headers, **kwargs
        ) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def admin(self, path: str, body: Any) -> list[dict[str, Any]]:
        """Make an admin call; return its results."""
        status, answer = await self.call("POST", f"/admin/v1/queues/orders{path}", json=body)
        assert status == 200, answer
        return answer["results"]

    async def claim_all(self) -> None:
        """Own every partition."""
        names = [str(p) for p in self.broker.config.layout.partitions()]
        for result in await self.admin("/claim", {"partitions": names}):
            assert "error" not in result, result

    async def state(self, partition: int = 0) -> dict[str, Any]:
        """Return the state of a partition for the group, with its broker epoch."""
        _, state = await self.call("GET", "/admin/v1/queues/orders/state")
        row = state["partitions"][f"1.{partition}"]
        return {"broker_epoch": row["broker_epoch"], "end": row["end"], **row["groups"]["workers"]}

    async def assign(self, member: str, partitions: list[int]) -> None:
        """Give partitions that are at nobody to a member."""
        commits = []
        for index in partitions:
            state = await self.state(index)
            commits.append(
                {
                    "partition": f"1.{index}",
                    "broker_epoch": state["broker_epoch"],
                    "epoch": state["epoch"],
                    "attempt": state["attempt"] + 1,
                    "source": state["member"],
                    "target": member,
                    "cause": "unassigned",
                }
            )
        for result in await self.admin("/groups/workers/commit", {"commits": commits}):
            assert "error" not in result, result


class Peer:
    """One WebSocket that speaks frames."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, frame: frames.Frame, payload: bytes = b"") -> None:
        """Send a frame."""
        await self.socket.send_bytes(frames.encode(frame, payload))

    async def receive(self) -> tuple[frames.AnyFrame, bytes]:
        """Receive the next frame."""
        async with asyncio.timeout(WAIT_S):
            message = await self.socket.receive()
        if message.type is not WSMsgType.BINARY:
            raise ConnectionResetError(f"{message.type} {message.data}")
        return frames.decode(message.data)

    async def expect(self, kind: type[Any]) -> tuple[Any, bytes]:
        """Receive frames up to the first of a kind; pongs are passed over."""
        while True:
            frame, payload = await self.receive()
            if isinstance(frame, kind):
                return frame, payload
            assert isinstance(frame, frames.Pong), f"got {frame}, expected {kind.__name__}"

    async def close(self) -> None:
        """Close the connection."""
        await self.socket.close()


async def connect(running: RunningBroker, path: str, token: str) -> Peer:
    """Open a WebSocket."""
    return Peer(
        await running.session.ws_connect(
            running.url + path, headers={"Authorization": f"Bearer {token}"}, max_msg_size=0
        )
    )


async def open_producer(running: RunningBroker, producer: str = "p") -> Peer:
    """Open a producer's connection."""
    peer = await connect(running, "/v1/queues/orders/publish", PRODUCE)
    await peer.send(frames.ProducerHello(producer))
    await peer.expect(frames.ProducerWelcome)
    return peer


async def open_flow(
    running: RunningBroker, member: str = "m", incarnation: str = "i", credit: int = 1000
) -> Peer:
    """Open a member's flow."""
    peer = await connect(running, "/v1/queues/orders/groups/workers/flow", CONSUME)
    await peer.send(frames.Bind(member, incarnation, credit))
    await peer.expect(frames.Bound)
    return peer


LAYOUT = Layout.first(4)


def key_of(partition: int, number: int = 0) -> str:
    """Return a key that lives in a partition."""
    found = (k for k in (f"k{n}" for n in range(10_000)) if LAYOUT.partition_for(k).index == partition)
    for _ in range(number):
        next(found)
    return next(found)


def make_batch(values: list[str], partition: int = 0) -> bytes:
    """Return a batch of text messages under one key of a partition."""
    key = key_of(partition)
    messages = [batch.encode_message(batch.Message(key, v.encode())) for v in values]
    return batch.encode(messages, [slot_of(key)] * len(messages))


def values_of(frame: frames.Deliver, payload: bytes) -> list[str]:
    """Return the texts that a delivery holds, without those to skip."""
    skipped = {o for start, stop in frame.skip for o in range(start, stop)}
    decoded = batch.decode(payload, frame.start - frame.first_offset, frame.stop - frame.first_offset)
    return [m.value.decode() for o, m in enumerate(decoded, frame.start) if o not in skipped]


@pytest.fixture
def tokens_file(tmp_path: Path) -> Path:
    """Tokens of every role."""
    path = tmp_path / "tokens.json"
    path.write_text(
        json.dumps(
            [
                {"token": PRODUCE, "queue": "orders", "role": "produce"},
                {"token": CONSUME, "queue": "orders", "role": "consume", "groups": ["workers"]},
                {"token": OTHER_GROUP, "queue": "orders", "role": "consume", "groups": ["others"]},
                {"token": ADMIN, "queue": "orders", "role": "admin"},
            ]
        )
    )
    return path


@pytest.fixture
def resources() -> Resources:
    """One queue of four partitions, one group."""
    return parse_resources(YAML)


StartBroker = Callable[..., Awaitable[RunningBroker]]


@pytest.fixture
async def start_broker(
    redis_server: RedisServer,
    key_prefix: str,
    store: Store,
    tokens_file: Path,
    resources: Resources,
) -> AsyncIterator[StartBroker]:
    """Start brokers of the queue, each with a store of its own; members m and n are listed."""
    queue = resources.queues[0]
    await provision(store, queue, resources, uid=UID)
    members = Members(store, Keys(key_prefix, "default", "orders", UID))
    for name in ("m", "n"):
        await members.list_member("workers", MemberId(name), "127.0.0.1")
    running: list[RunningBroker] = []
    stores: list[Store] = []

    async def start(name: str = "orders-0", **overrides: Any) -> RunningBroker:
        own = await Store.open(redis_server.url, prefix=key_prefix)
        stores.append(own)
        settings = BrokerSettings(
            queue="orders",
            queue_uid=UID,
            redis_url=redis_server.url,
            key_prefix=key_prefix,
            broker_id=name,
            tokens_file=tokens_file,
            **{"lease_ttl_s": 1.0, **overrides},
        )
        broker = await RunningBroker(settings, own).start()
        running.append(broker)
        return broker

    yield start
    for broker in running:
        await broker.stop()
    for own in stores:
        await own.close()


@pytest.fixture
async def running(start_broker: StartBroker) -> RunningBroker:
    """One broker that owns every partition."""
    broker = await start_broker()
    await broker.claim_all()
    return broker


def partition_id(index: int) -> PartitionId:
    """Return a partition of generation 1."""
    return PartitionId(1, index)


@pytest.fixture
def peers() -> Any:
    """Everything above that a test calls, in one place."""
    return SimpleNamespace(**{name: globals()[name] for name in PEER_NAMES})


PEER_NAMES = (
    "connect",
    "eventually",
    "key_of",
    "make_batch",
    "open_flow",
    "open_producer",
    "partition_id",
    "values_of",
)
