"""What a broker reads of another one's answer: it is bounded, as a caller's body is."""

from typing import Any

from aiohttp import ClientPayloadError, ClientResponse, ClientSession

from partq.server.body import JSON_WEIGHT
from partq.server.memory import Hold
from partq.wire import replies

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""The most that an answer about many partitions may have."""
_ENVELOPE_BYTES = 64 * 1024
_RESULT_BYTES = 2048
"""More than an error of one message has."""


def open_session() -> ClientSession:
    """Return what calls other brokers; nothing that they answer is inflated."""
    return ClientSession(auto_decompress=False)


def max_bytes(count: int) -> int:
    """Return how long an answer about `count` messages may be."""
    return _ENVELOPE_BYTES + count * _RESULT_BYTES


async def read_answer(
    response: ClientResponse, limit_bytes: int = MAX_ANSWER_BYTES, hold: Hold | None = None
) -> dict[str, Any]:
    """Return the JSON object of an answer of at most `limit_bytes`.

    Called inside of `async with`, which ends the connection of an answer that was not read.

    `hold`: of the call that it is read for; what comes counts there.

    Raises:
        ClientPayloadError: it is longer; the rest is not read.
        OverloadedError: the requests of the process hold too much already; the same.
        ValueError: it is no JSON object.
    """
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
