"""Ends connections whose token was taken away while they were open."""

import asyncio
import logging
from collections.abc import AsyncIterator

from aiohttp import web

from partq.aio import cancel_and_wait
from partq.broker.api.app_keys import TOKENS
from partq.broker.api.call_entry import enter
from partq.broker.api.frame_socket import SOCKETS, FrameSocket
from partq.errors import ForbiddenError, PartqError, UnauthorizedError

_log = logging.getLogger(__name__)


async def watch_tokens(app: web.Application) -> AsyncIterator[None]:
    """Look at the tokens of open connections for as long as the application runs."""
    watching = asyncio.create_task(_watch_forever(app), name="tokens")
    yield
    await cancel_and_wait(watching)


async def _watch_forever(app: web.Application) -> None:
    while True:
        await asyncio.sleep(app[TOKENS].reload_gap_s)
        refused = [
            (socket, error)
            for socket in app[SOCKETS]
            if (error := _refusal(socket.request)) is not None
        ]
        await asyncio.gather(*(_end(socket, error) for socket, error in refused))


def _refusal(request: web.Request) -> PartqError | None:
    """Say why the call that opened a connection would be refused now; None: it would not."""
    try:
        enter(request)
    except (UnauthorizedError, ForbiddenError) as error:
        return error
    return None


async def _end(socket: FrameSocket, error: PartqError) -> None:
    _log.info(
        "%s from %s is closed: its token is no longer valid (%s)",
        socket.request.path,
        socket.request.remote,
        error.code,
    )
    await socket.refuse(error)
