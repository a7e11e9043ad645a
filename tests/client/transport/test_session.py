"""Finding a broker that answers, and what its answers mean."""

import asyncio

import pytest
from aiohttp import web

from partq.client.transport import session as session_module
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session
from partq.errors import (
    ForbiddenError,
    InternalError,
    PartqError,
    QuotaExceededError,
    SettingsError,
    UnauthorizedError,
    UnavailableError,
)

BUSY = '{"error": {"code": "unavailable", "message": "m", "retry_after_ms": %s}}'


@pytest.fixture
async def serve():
    """Return a function that serves a handler under every path and returns its URL."""
    runners = []

    async def start(handler):
        app = web.Application()
        app.router.add_get("/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start
    for runner in runners:
        await runner.cleanup()


def session_to(url):
    return Session(ConnectionOptions(url, "orders", token="t"))


@pytest.mark.parametrize("port", ["99999", "x"])
def test_a_port_that_is_none_is_refused_at_once(port):
    with pytest.raises(SettingsError, match="expected a port from 1 to 65535"):
        session_to(f"http://127.0.0.1:{port}")


async def test_what_speaks_no_http_is_said_so():
    async def answer_as_redis(reader, writer):
        await reader.readline()
        writer.write(b"-NOAUTH Authentication required.\r\n")
        writer.close()

    async with await asyncio.start_server(answer_as_redis, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with session_to(f"http://{host}:{port}") as session:
            with pytest.raises(UnavailableError) as caught:
                await session.ask("GET", "/status", object)
    said = f"no broker answers: http://{host}:{port}: what answers there does not speak HTTP; "
    assert caught.value.message == said + "expected the port of a broker"


async def test_a_frozen_broker_is_asked_last_once_it_is_known(peer, serve, monkeypatch):
    asked = 0

    async def hang(_):
        nonlocal asked
        asked += 1
        await asyncio.sleep(60)

    monkeypatch.setattr(session_module, "VIEW_TIMEOUT_S", 0.05)
    frozen = await serve(hang)
    async with session_to(f"{frozen},{peer.url}") as session:
        for _ in range(3):
            assert (await session.layout(session.seeds)).layout.partition_count == 2
    assert asked == 1


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, {"error": {"code": "unauthorized", "message": "no"}}, UnauthorizedError),
        (401, "a proxy's page", UnauthorizedError),
        (403, "a proxy's page", ForbiddenError),
        (429, {"error": {"code": "quota_exceeded", "message": "full"}}, QuotaExceededError),
        (502, "a proxy's page", UnavailableError),
        (200, "no JSON", InternalError),
        (200, "[" * 50_000, InternalError),
        (502, "[" * 50_000, UnavailableError),
        (502, '{"error": {"code": [], "message": "m"}}', UnavailableError),
        (503, BUSY % ("1" + "0" * 400), UnavailableError),
        (503, BUSY % "1e999", UnavailableError),
    ],
)
async def test_an_answer_becomes_the_error_that_it_names(serve, status, body, error):
    async def refuse(_):
        if isinstance(body, str):
            return web.Response(status=status, text=body)
        return web.json_response(body, status=status)

    async with session_to(await serve(refuse)) as session:
        with pytest.raises(error):
            await session.get(session.seeds[0], "/layout", object)


async def test_advice_to_wait_is_kept(serve):
    async def refuse(_):
        error = {"code": "broker_closing", "message": "wait", "retry_after_ms": 1500}
        return web.json_response({"error": error}, status=503)

    async with session_to(await serve(refuse)) as session:
        with pytest.raises(PartqError) as caught:
            await session.get(session.seeds[0], "/layout", object)
    assert caught.value.retry_after_s == 1.5


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"generations": []},
        {
            "generations": [{"generation": 1, "partitions": 1}],
            "brokers": [],
            "owners": {},
            "limits": {"max_message_bytes": 1, "max_unacked_per_flow": 1},
            "keyless_policy": "Astrology",
            "groups": [],
        },
    ],
)
async def test_an_unusable_layout_counts_as_no_answer(serve, body):
    async def nonsense(_):
        return web.json_response(body)

    async with session_to(await serve(nonsense)) as session:
        with pytest.raises(UnavailableError, match="layout"):
            await session.layout(session.seeds)


async def test_a_session_is_used_inside_its_block():
    with pytest.raises(RuntimeError, match="async with"):
        await session_to("http://127.0.0.1:9").get("http://127.0.0.1:9", "/layout", object)
