"""Reads the body of a request, within its bound and the budget of all requests."""

from collections.abc import Callable

from aiohttp import web

from partq.errors import BatchTooLargeError, PartqError
from partq.server.memory import Hold

HOLD = web.RequestKey("hold", Hold)
"""The part of the memory budget that a request holds until its answer is sent."""
IS_ASKED = web.RequestKey("is_asked", bool)
"""Whether the caller waits for `100 Continue` before it sends the body."""
JSON_WEIGHT = 3
"""How many bytes a byte of JSON costs while it is worked on: text, objects, what they become."""


async def read_body(
    request: web.Request,
    limit_bytes: int,
    *,
    narrow: Callable[[bytes], int] | None = None,
    too_large: type[PartqError] = BatchTooLargeError,
) -> bytes:
    """Return the whole body, of at most `limit_bytes`; without a length it counts as it comes.

    `narrow` is given the first bytes that are not blank, and returns the bound that counts from
    there on, `limit_bytes` or less: its refusal is `too_large`.

    Raises:
        BatchTooLargeError, `too_large`: it is larger; as far as its length says so, not read.
        OverloadedError: the requests of the process hold too much already.
        RequestTimeoutError: it did not come in time.
        ConnectionError, web.RequestPayloadError: it was broken off.
    """
    length = request.content_length
    refusal: type[PartqError] = BatchTooLargeError
    _check(length, limit_bytes, refusal)
    hold = request[HOLD]
    if length is not None:
        hold.take(JSON_WEIGHT * length)
    if request.get(IS_ASKED) and not request.content.total_bytes:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    body = bytearray()
    while chunk := await request.content.readany():
        body += chunk
        if length is None:
            hold.take(JSON_WEIGHT * len(chunk))
        if narrow is not None and (start := body[:64].lstrip()):
            limit_bytes, refusal, narrow = min(limit_bytes, narrow(bytes(start))), too_large, None
            _check(length, limit_bytes, refusal)
        _check(len(body), limit_bytes, refusal)
    return bytes(body)


def _check(size: int | None, limit_bytes: int, refusal: type[PartqError]) -> None:
    if size is not None and size > limit_bytes:
        raise refusal(
            f"body: {size} bytes or more; this call takes at most {limit_bytes}: send less at a "
            "time"
        )
