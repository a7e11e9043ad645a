"""What a server says to bytes that are no request: the limit, and nothing of what came."""

import asyncio
import json

import pytest

from partq.testing.local_broker import LocalBroker
from tests.client.member import WAIT_S

SECRET = b"SECRETTOKEN"


@pytest.fixture(scope="module")
def url():
    with LocalBroker(partitions=1) as local:
        yield local.url


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        pytest.param(
            b"Authorization : Bearer " + SECRET, "without a blank before the colon", id="a blank"
        ),
        pytest.param(b"X: " + SECRET * 800, "expected at most that: shorten it", id="a long one"),
        pytest.param(
            b"\r\n".join(b"X-%d: %s" % (number, SECRET) for number in range(200)),
            "got more than 128 headers, expected at most that: send fewer",
            id="too many",
        ),
    ],
)
async def test_the_refusal_repeats_nothing_and_says_what_is_expected(url, headers, says):
    host, port = url.removeprefix("http://").split(":")
    async with asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /v1/queues/orders HTTP/1.1\r\nHost: a\r\n" + headers + b"\r\n\r\n")
        answer = await reader.read()
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 400 " in head
    assert SECRET[:4] not in answer
    error = json.loads(body)["error"]
    assert (error["code"], says in error["message"]) == ("bad_request", True), error
