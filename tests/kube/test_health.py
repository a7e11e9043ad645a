"""The operator's port for probes and metrics, which callers of every namespace may reach."""

import asyncio

import pytest

from partq.kube.health import HealthServer, ProcessHealth

WAIT_S = 60.0


@pytest.fixture
async def port():
    server = HealthServer(ProcessHealth(lambda: 0.0), lambda: b"metric 1\n")
    yield await server.start("127.0.0.1", 0)
    await server.close()


async def ask(port, *lines):
    """Send a request without its body; return the answer, once the server has closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write("\r\n".join([*lines, "Host: x", "Connection: close", "", ""]).encode())
        async with asyncio.timeout(WAIT_S):
            return (await reader.read()).decode()
    finally:
        writer.close()


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/nowhere"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_encoded_body_is_refused_before_it_comes(port, method, path):
    answer = await ask(
        port, f"{method} {path} HTTP/1.1", "Content-Encoding: gzip", "Content-Length: 100000000"
    )
    assert answer.startswith("HTTP/1.1 415 ")
    assert "without an encoding" in answer


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/nowhere"])
async def test_no_answer_says_what_serves_it(port, path):
    answer = await ask(port, f"GET {path} HTTP/1.1")
    assert "aiohttp" not in answer
    assert "Python" not in answer


async def test_metrics_ask_for_their_token():
    """They name every queue; probes tell nothing, and need none."""
    token = "0123456789abcdef"
    server = HealthServer(ProcessHealth(lambda: 0.0), lambda: b"metric 1\n", token=token)
    port = await server.start("127.0.0.1", 0)
    try:
        right, wrong = f"Authorization: Bearer {token}", "Authorization: Bearer wrong"
        for lines in ((), (wrong,), (f"Authorization: {token}",), (right, wrong), (right, right)):
            answer = await ask(port, "GET /metrics HTTP/1.1", *lines)
            assert answer.startswith("HTTP/1.1 401 ")
            assert "metric 1" not in answer
        answer = await ask(port, "GET /metrics HTTP/1.1", right)
        assert answer.endswith("metric 1\n")
        assert (await ask(port, "GET /healthz HTTP/1.1")).startswith("HTTP/1.1 200 ")
    finally:
        await server.close()


async def test_what_is_no_http_is_told_in_text(port):
    assert (await ask(port, "no http")).splitlines()[0].endswith(" 400 Bad Request")


async def test_headers_that_do_not_come_end_the_connection(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\n")
    async with asyncio.timeout(WAIT_S):
        assert await reader.read() == b""
    writer.close()
