"""Calls of other brokers: what is read of an answer is bounded, as a caller's body is."""

from collections.abc import Mapping
from typing import Any

from aiohttp import ClientPayloadError, ClientResponse, ClientSession, ClientTimeout

from partq.broker.tls import BrokerTls
from partq.server.body import JSON_WEIGHT
from partq.server.memory import Hold
from partq.wire.calls import replies

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""The most that an answer about many partitions may have."""
_ENVELOPE_BYTES = 64 * 1024
_RESULT_BYTES = 2048
"""More than an error of one message has."""
_CONNECT_TIMEOUT_S = 2.0


def open_session() -> ClientSession:
    """Return what calls other brokers; nothing that they answer is inflated."""
    return ClientSession(auto_decompress=False)


def max_bytes(count: int) -> int:
    """Return how long an answer about `count` messages may be."""
    return _ENVELOPE_BYTES + count * _RESULT_BYTES


async def call_peer(
    session: ClientSession,
    tls: BrokerTls | None,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    timeout_s: float,
    json: Any = None,
    data: bytes | None = None,
    limit_bytes: int = MAX_ANSWER_BYTES,
    hold: Hold | None = None,
) -> tuple[int, dict[str, Any]]:
    """Return the status of another broker's answer, and its JSON object.

    Args:
        session: of `open_session`.
        tls: says whose certificates are trusted; None: the system's.
        method: of HTTP.
        url: of the call.
        headers: of the call, with its token. No redirect takes them elsewhere.
        timeout_s: for the whole call, in seconds.
        json: its body; None: it has none, or `data`.
        data: its body, as it is.
        limit_bytes: how long the answer may be.
        hold: of the call that it is made for; the answer counts there.

    Raises:
        ClientError, TimeoutError: there is no answer in time.
        ClientPayloadError: it is longer; the rest is not read.
        OverloadedError: the requests of the process hold too much already; the same.
        ValueError: it is no JSON object.
    """
    async with session.request(
        method,
        url,
        json=json,
        data=data,
        headers=headers,
        ssl=tls.trusted if tls is not None else True,
        timeout=ClientTimeout(total=timeout_s, sock_connect=_CONNECT_TIMEOUT_S),
        allow_redirects=False,
    ) as response:
        return response.status, await _read(response, limit_bytes, hold)


async def _read(response: ClientResponse, limit_bytes: int, hold: Hold | None) -> dict[str, Any]:
    text = bytearray()
    async for chunk in response.content.iter_any():
        if len(text) + len(chunk) > limit_bytes:
            raise ClientPayloadError(f"the answer has more than {limit_bytes} bytes")
        if hold is not None:
            hold.take(JSON_WEIGHT * len(chunk))
        text += chunk
    try:
        return replies.parse_object(text)
    except ValueError as error:
        raise ValueError(f"status {response.status}: {error}") from error
