"""A real broker on loopback, and bare peers that speak its frames."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from aiohttp import ClientSession, web

from partq.broker.api.app import make_app, make_runner
from partq.broker.api.app_keys import GUARD
from partq.broker.api.tokens import Tokens
from partq.broker.broker import Broker
from partq.broker.peers.peer_client import PeerClient
from partq.core.layout import Layout
from partq.core.model import MemberId, PartitionId
from partq.embedded.provision import provision
from partq.resources import (
    Resources,
    group_document,
    queue_document,
    resources_of,
)
from partq.settings import BrokerSettings
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.members import Members
from partq.testing import eventually, frame_peers
from partq.testing.frame_peers import FlowPeer, Peer, PeerKind, ProducerPeer
from partq.testing.redis_server import RedisServer
from partq.wire import frames
from tests.broker.contract import check_answer
from tests.broker.moved_clocks import MovableClock

UID = "0f3a9c1e"
PRODUCE, CONSUME, ADMIN = "produce-token-0001", "consume-token-0001", "admin-token-000001"
OTHER_GROUP = "consume-token-0002"
WAIT_S, TOKENS_GAP_S = 60.0, 0.05
LEASE_S = 10.0
"""Long enough for a machine that is busy, short enough for the few tests that wait for its end."""

LIMITS = {"maxMessageBytes": 4096, "maxUnackedPerFlow": 1000}


class RunningBroker:
    """A broker and its server, in this process, on a real Redis."""

    def __init__(self, settings: BrokerSettings, store: Store, clock: MovableClock) -> None:
        self.settings = settings
        self.clock = clock
        self.store = store
        self.opened: list[Peer] = []

    async def start(self) -> Self:
        self.peers = PeerClient()
        listening = socket.create_server(("127.0.0.1", 0))  # the broker has to know its URL
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.broker = Broker(self.settings, self.store, url=self.url, clock=self.clock)
        clock = asyncio.get_running_loop().time
        tokens = Tokens(self.settings.tokens_file, clock=clock, reload_gap_s=TOKENS_GAP_S)
        app = self.app = make_app(self.broker, tokens, self.peers)
        self.runner = make_runner(app)
        self.guard = app[GUARD]
        await self.runner.setup()
        await web.SockSite(self.runner, listening).start()
        self.broker.start()
        self.session = ClientSession()
        await eventually(lambda: self.broker.is_ready, "broker ready")
        return self

    async def stop(self) -> None:
        for peer in self.opened:
            await peer.close()
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
            check_answer(method, path, response, text)
            return response.status, json.loads(text) if text else None

    async def admin(self, path: str, body: Any) -> list[dict[str, Any]]:
        status, answer = await self.call("POST", f"/admin/v1/queues/orders{path}", json=body)
        assert status == 200, answer
        results: list[dict[str, Any]] = answer["results"]
        return results

    async def claim_all(self) -> None:
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


LAYOUT = Layout.first(4)


def key_of(partition: int) -> str:
    return frame_peers.key_of(LAYOUT, partition)


def make_batch(values: Sequence[str], partition: int = 0) -> bytes:
    return frame_peers.make_batch(values, key_of(partition))


async def connect(running: RunningBroker, path: str, token: str) -> Peer:
    return await connect_as(Peer, running, path, token)


async def connect_as(
    kind: type[PeerKind], running: RunningBroker, path: str, token: str, **options: Any
) -> PeerKind:
    """Open a WebSocket, which is closed at the end of the test."""
    url = running.url + path
    peer = await frame_peers.connect(running.session, url, token, kind=kind, **options)
    running.opened.append(peer)
    return peer


async def open_producer(running: RunningBroker, producer: str = "p") -> ProducerPeer:
    """Open a producer's connection."""
    path = "/v1/queues/orders/publish"
    peer = await connect_as(ProducerPeer, running, path, PRODUCE, layout=LAYOUT)
    await peer.send(frames.ProducerHello(producer))
    await peer.expect(frames.ProducerWelcome)
    return peer


async def connect_flow(running: RunningBroker) -> FlowPeer:
    """Open the connection of a flow that is not bound yet."""
    path = "/v1/queues/orders/groups/workers/flow"
    return await connect_as(FlowPeer, running, path, CONSUME)


async def open_flow(
    running: RunningBroker, member: str = "m", incarnation: str = "i", credit: int = 1000,
    held: Sequence[tuple[int, int]] = (),
) -> FlowPeer:  # fmt: skip
    """Open a member's flow; `held`: the partitions that it remembers."""
    peer = await connect_flow(running)
    await peer.send(frames.Bind(member, incarnation, credit, list(held)))
    await peer.expect(frames.Bound)
    return peer


CALLS = {"pause": "pauses", "drain": "drains", "commit": "commits", "cancel": "cancels"}


class Handoff:
    """One attempt to hand a partition from m to n, called as a coordinator calls it."""

    def __init__(self, running: RunningBroker, token: dict[str, Any]) -> None:
        self.running = running
        self.token = token

    @classmethod
    async def begin(
        cls, running: RunningBroker, attempt: int | None = None, *, partition: int = 0
    ) -> Self:
        state = await running.state(partition)
        token = {name: state[name] for name in ("broker_epoch", "epoch")}
        token |= {"partition": f"1.{partition}", "attempt": attempt or state["attempt"] + 1}
        return cls(running, token)

    async def call(self, name: str, body: dict[str, Any], changes: dict[str, Any]) -> Any:
        items = [{**self.token, **changes}]
        (result,) = await self.running.admin(
            f"/groups/workers/{name}", {CALLS[name]: items, **body}
        )
        return {"code": result.get("error", {}).get("code", ""), **result}

    async def pause(self, **changes: Any) -> Any:
        return await self.call("pause", {}, {"lease_ms": 20_000, "drain_ms": 20_000, **changes})

    async def drain(self, wait_ms: int = 10_000, **changes: Any) -> Any:
        return await self.call("drain", {"wait_ms": wait_ms}, changes)

    async def commit(self, **changes: Any) -> Any:
        return await self.call("commit", {}, {"source": "m", "target": "n", "cause": "", **changes})

    async def cancel(self, **changes: Any) -> Any:
        return await self.call("cancel", {}, changes)


class Scene:
    """Member m holds partition 1.0 and has three messages in hand."""

    async def set(self, running: RunningBroker) -> Self:
        self.running = running
        await running.assign("m", [0])
        self.producer = await open_producer(running)
        self.source = await open_flow(running, "m")
        self.assigned, _ = await self.source.expect(frames.Assigned)
        await self.producer.publish("a", "b", "c")
        self.held, _ = await self.source.deliver()
        return self

    async def handoff(self, attempt: int | None = None) -> Handoff:
        return await Handoff.begin(self.running, attempt)

    async def paused(self, **changes: Any) -> Handoff:
        """Begin a handoff whose pause is in force, and known to the source."""
        handoff = await self.handoff()
        assert (await handoff.pause(**changes))["code"] == ""
        await self.source.expect(frames.Paused)
        return handoff

    async def trim(self) -> int:
        """Publish and take some more, until the first messages are trimmed; return what is left."""
        for value in "defg":
            await self.producer.publish(value)
        await self.source.take(4)

        async def trimmed() -> int:
            return (await self.running.broker.partitions.read(PartitionId(1, 0))).trimmed

        return await eventually(trimmed, "something is trimmed")

    async def target(self) -> FlowPeer:
        return await open_flow(self.running, "n", "j")


class Gate:
    """Holds the calls of one method back until it is opened."""

    def __init__(self, target: Any, name: str) -> None:
        self._call = getattr(target, name)
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        setattr(target, name, self._pass)

    async def is_reached(self) -> None:
        """Wait until the first call is held back."""
        await eventually(self.reached.is_set, "the call that is held back")

    async def _pass(self, *args: Any, **kwargs: Any) -> Any:
        self.reached.set()
        await self.opened.wait()
        return await self._call(*args, **kwargs)


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


def queue_and_group(*more: dict[str, Any], **spec: Any) -> Resources:
    """Declare a queue of four partitions and one group; `spec`: what is different of the queue."""
    queue = queue_document("orders", **{"partitions": 4, "limits": LIMITS, **spec})
    return resources_of(queue, group_document("workers", "orders"), *more)


@pytest.fixture
def resources() -> Resources:
    """One queue of four partitions, one group."""
    return queue_and_group()


@pytest.fixture
def clock() -> MovableClock:
    """The clock of all brokers of a test."""
    return MovableClock()


@pytest.fixture
def lease_ttl_s() -> float:
    """How long the lease of a broker lasts, unless its test says otherwise."""
    return LEASE_S


StartBroker = Callable[..., Awaitable[RunningBroker]]


@pytest.fixture
async def start_broker(
    redis_server: RedisServer,
    key_prefix: str,
    store: Store,
    tokens_file: Path,
    resources: Resources,
    clock: MovableClock,
    lease_ttl_s: float,
) -> AsyncIterator[StartBroker]:
    """Start brokers of the queue, each with a store of its own; members m and n are listed."""
    queue = resources.queues[0]
    await provision(store, queue, resources, uid=UID)
    members = Members(store, Keys(key_prefix, "default", "orders", UID))
    for name in ("m", "n") if resources.groups else ():
        await members.list_member("workers", MemberId(name), "127.0.0.1")
    running: list[RunningBroker] = []
    stores: list[Store] = []

    async def start(name: str = "orders-0", **overrides: Any) -> RunningBroker:
        own = await Store.open(redis_server.url, prefix=key_prefix, timeout_s=60.0)
        stores.append(own)
        settings = BrokerSettings(
            queue="orders",
            queue_uid=UID,
            redis_url=redis_server.url,
            key_prefix=key_prefix,
            broker_id=name,
            tokens_file=tokens_file,
            **{"lease_ttl_s": lease_ttl_s, **overrides},
        )
        broker = await RunningBroker(settings, own, clock).start()
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


@pytest.fixture
async def producer(running: RunningBroker) -> AsyncIterator[ProducerPeer]:
    """A producer's connection to it."""
    peer = await open_producer(running)
    yield peer
    await peer.close()


@pytest.fixture
async def scene(running: RunningBroker) -> Scene:
    """Member m in the middle of its work."""
    return await Scene().set(running)


def partition_id(index: int) -> PartitionId:
    return PartitionId(1, index)


@pytest.fixture
def peers() -> Any:
    """Everything above that a test calls, in one place."""
    return SimpleNamespace(**{name: globals()[name] for name in PEER_NAMES})


PEER_NAMES = (
    "LEASE_S",
    "Gate",
    "Handoff",
    "ADMIN",
    "CONSUME",
    "OTHER_GROUP",
    "PRODUCE",
    "connect",
    "connect_as",
    "connect_flow",
    "eventually",
    "key_of",
    "make_batch",
    "open_flow",
    "open_producer",
    "partition_id",
)
