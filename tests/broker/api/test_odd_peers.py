"""Brokers that ask other brokers, and get an answer that no broker gives."""

from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from partq.broker.dead_letters import forwarder
from partq.testing import eventually
from tests.broker.api import test_endless_peers
from tests.broker.conftest import CONSUME, PRODUCE, key_of
from tests.broker.dead_letters import test_dead_letters

resources = test_dead_letters.resources
start_target, target = test_dead_letters.start_target, test_dead_letters.target
pair = test_endless_peers.pair
QUEUE = "/v1/queues/orders"
DEEP = "[" * 50_000
ODD = [
    "<html>",
    "null",
    "[]",
    "502",
    "{}",
    DEEP,
    '{"error": "bad gateway"}',
    '{"error": {"message": "no code"}}',
    '{"error": {"code": "unavailable", "message": "m", "retry_after_ms": "soon"}}',
]
ODD_RESULTS = [
    *ODD,
    '{"results": []}',
    '{"results": 5}',
    '{"results": [5]}',
    '{"results": [{}]}',
    '{"results": [{"partition": 1, "offset": 0}]}',
    '{"results": [{"partition": "one", "offset": 0}]}',
    '{"results": [{"error": null}]}',
]
ODD_PARTITIONS = [
    *ODD,
    '{"partitions": 5}',
    '{"partitions": {}}',
    '{"partitions": {"1.0": 5}}',
    '{"partitions": {"1.0": {"groups": 5}}}',
    '{"partitions": {"1.0": {"error": "bad gateway"}}}',
]


class OddPeer:
    """A server at the address of a broker: its answers are given one after another."""

    def __init__(self):
        self.answers = []
        self.paths = []
        self.status = 502
        self.headers = {}

    async def answer(self, request):
        self.paths.append(request.path)
        text = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return web.Response(
            status=self.status,
            text=text,
            content_type="application/json",
            headers=self.headers,
        )


@asynccontextmanager
async def in_place_of(other):
    """Answer at the address of a broker, which keeps its lease."""
    port = int(other.url.rpartition(":")[2])
    await other.runner.cleanup()
    peer = OddPeer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", peer.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield peer
    finally:
        await runner.cleanup()


async def test_the_broker_of_a_dead_letter_queue(running, target, monkeypatch):
    """The letter waits, and is sent again until the answer is one."""
    monkeypatch.setattr(forwarder, "LONGEST_WAIT_S", 0.01)
    monkeypatch.setattr(forwarder, "FIRST_WAIT_S", 0.01)
    failed = running.broker.failed
    lost = '{"error": {"code": "data_loss", "message": "m"}}'
    async with in_place_of(target) as peer:
        # Twice: what a broker's own log lacks is believed when it is read again.
        peer.answers = [*ODD, '{"is_stored_before": 5}', lost, lost, lost, ODD[0]]
        await running.assign("m", [0])
        await test_dead_letters.publish(running, "bad")
        await test_dead_letters.fail(running)
        await test_dead_letters.fail(running)
        outbox = test_dead_letters.consumed(running).outbox
        await eventually(lambda: len(peer.answers) == 1 or failed.done(), "all were given")
        assert not failed.done(), "the answer ended the broker"
        assert len(outbox.letters) == 1
        await eventually(lambda: "usable" in outbox.trouble.message, "the last one is told")
        peer.status, peer.answers = 201, ['{"is_stored_before": false, "offset": 0}']
        await eventually(lambda: not outbox.letters or failed.done(), "it is sent")
        assert not failed.done()


async def publish(running):
    body = {"key": key_of(0), "value": "a"}
    return await running.call("POST", f"{QUEUE}/messages", token=PRODUCE, json=body)


async def look_up(running):
    body = {"partitions": ["1.0"], "to": "latest"}
    return await running.call("POST", f"{QUEUE}/positions", token=CONSUME, json=body)


async def see(running):
    return await running.call("GET", f"{QUEUE}/groups/workers/picture")


async def test_an_owner_that_stores_messages(pair):
    """Whether they are stored is unknown."""
    running, other = pair
    async with in_place_of(other) as peer:
        for text in ODD_RESULTS:
            peer.answers = [text]
            status, answer = await publish(running)
            assert (status, answer["error"]["code"]) == (504, "outcome_unknown"), text[:50]


async def test_an_owner_that_is_asked_about_a_partition(pair):
    running, other = pair
    async with in_place_of(other) as peer:
        for text in ODD_PARTITIONS[:-2] + ODD_PARTITIONS[-1:]:
            peer.answers = [text]
            status, answer = await look_up(running)
            assert status == 200, text[:50]
            assert answer["partitions"]["1.0"]["error"]["code"] == "unavailable", text[:50]


async def test_a_broker_that_is_asked_for_its_state(pair):
    running, other = pair
    async with in_place_of(other) as peer:
        peer.status = 200
        for text in [*ODD, *ODD_PARTITIONS[-3:-1]]:
            peer.answers = [text]
            status, answer = await see(running)
            assert status == 200, text[:50]
            assert answer["brokers"]["orders-1"].keys() == {"error"}, text[:50]


async def test_an_owner_that_is_asked_for_messages(pair):
    running, other = pair
    assert (await publish(running))[0] == 201
    pages = ['{"rows": 5}', '{"rows": [], "next": 0}', '{"rows": [{}], "next": 0, "why": "end"}']
    async with in_place_of(other) as peer:
        for text in [f'{{"partitions": {{"1.0": {page}}}}}' for page in pages]:
            peer.answers = [text]
            status, answer = await running.call(
                "POST",
                f"{QUEUE}/browse",
                token=CONSUME,
                json={"partitions": ["1.0"], "is_merged": True},
            )
            assert status == 200, text
            assert answer["unavailable"]["1.0"]["code"] == "unavailable", text


@pytest.mark.parametrize("call", [publish, look_up, see])
async def test_nobody_is_sent_elsewhere(pair, call):
    """The token is not for whoever is named there."""
    running, other = pair
    async with in_place_of(other) as peer:
        peer.status, peer.headers, peer.answers = 307, {"Location": "/elsewhere"}, ["{}"]
        await call(running)
        assert len(peer.paths) == 1
        assert peer.paths[0] != "/elsewhere"


async def test_no_dead_letter_is_sent_elsewhere(running, target):
    own = running.broker
    async with in_place_of(target) as peer:
        peer.status, peer.headers, peer.answers = 307, {"Location": "/elsewhere"}, ["{}"]
        await running.assign("m", [0])
        await test_dead_letters.publish(running, "bad")
        await test_dead_letters.fail(running)
        await test_dead_letters.fail(running)
        await eventually(lambda: len(peer.paths) > 1 or own.failed.done(), "it is sent again")
        assert set(peer.paths) == {f"/v1/queues/{test_dead_letters.TARGET}/dead-letters"}
