"""A consumer that unsubscribes: the group is gone, or nothing has happened."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from partq import (
    ConflictError,
    Consumer,
    ForbiddenError,
    Message,
    Producer,
    UnknownGroupError,
)
from partq.client.group_removal import GroupRemoval
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker

WAIT_S = 60.0


@pytest.fixture
async def broker():
    async with LocalBroker(groups=["workers", "audit"], broker_count=2) as local:
        yield local


def consumer_of(broker, **more):
    token = broker.tokens.consume
    return Consumer(broker.url, queue="orders", group="workers", token=token, **more)


async def test_the_last_consumer_of_a_group_ends_it(broker):
    token = broker.tokens.produce
    async with Producer(broker.url, queue="orders", token=token) as producer:
        await (await producer.send_many([Message(f"k{n}", b"") for n in range(40)]))
    admin = broker.tokens.admin
    async with consumer_of(broker) as first:
        await anext(first)
        with pytest.raises(ForbiddenError):
            await first.unsubscribe()
        async with consumer_of(broker, member="second") as second:
            await eventually(lambda: second.partitions, "the second member has its share")
            with pytest.raises(ConflictError, match="also connected: second"):
                await first.unsubscribe(token=admin)
            # Both go on: nothing has happened.
            await eventually(lambda: first.partitions and second.partitions, "both have a share")
        await eventually(lambda: len(first.partitions) == 4, "the first one has all again")
        await first.unsubscribe(token=admin)
        assert first.partitions == frozenset()
        with pytest.raises(StopAsyncIteration):
            await anext(first)
        with pytest.raises(RuntimeError, match="was closed"):
            await first.unsubscribe(token=admin)
    with pytest.raises(UnknownGroupError):
        async with consumer_of(broker, connect_timeout_s=0):
            pass


async def test_before_it_is_open_a_consumer_cannot_unsubscribe(broker):
    with pytest.raises(RuntimeError, match="not open"):
        await consumer_of(broker).unsubscribe(token=broker.tokens.admin)


class Operated:
    """A broker on Kubernetes, as far as it is asked."""

    def __init__(self, **spec):
        self.asked = []
        self.spec = spec
        self.born = 7

    async def answer(self, request):
        self.asked.append((request.method, request.path, request.headers["Authorization"]))
        if request.method == "POST":
            self.asked.append(await request.json())
            self.born = 8  # it is removed, the answer is lost, and it is made again
            return web.json_response({"error": {"code": "unavailable", "message": "m"}}, status=503)
        return web.json_response(
            {
                "now_ms": 0, "queue_spec": {}, "group_spec": self.spec, "partitions": [],
                "members": {}, "heirs": {}, "assignment": {}, "handoffs": {}, "past": {},
                "waiting": {}, "brokers": {}, "born": self.born,
            }
        )  # fmt: skip


@asynccontextmanager
async def session_at(broker):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", broker.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        options = ConnectionOptions(url, "orders", token="mine")
        async with Session(options).twin("other") as session, asyncio.timeout(WAIT_S):
            yield session
    finally:
        await runner.cleanup()


async def test_a_group_of_a_resource_stays():
    broker = Operated(uid="0f3a9c1e")
    async with session_at(broker) as session:
        with pytest.raises(ConflictError, match="kubectl delete consumergroup workers"):
            await GroupRemoval(session, "workers", "me").check()
    path = "/v1/queues/orders/groups/workers/picture"
    assert broker.asked == [("GET", path, "Bearer other")]


async def test_a_group_that_was_made_again_under_the_name_is_not_removed():
    """The answer of the removal was lost: what it looks at next is another group."""
    broker = Operated()
    async with session_at(broker) as session:
        removal = GroupRemoval(session, "workers", "me")
        await removal.check()
        await removal.remove(WAIT_S)
    assert [each for each in broker.asked if isinstance(each, dict)] == [{"born": 7}]
