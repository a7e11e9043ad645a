"""A WebSocket of frames that ends within a bounded time, whatever the other side does."""

import asyncio
from contextlib import suppress
from typing import Self, TypeVar

from aiohttp import WSCloseCode, WSMsgType, web

from partq.errors import BadFrameError, BadRequestError, PartqError
from partq.excerpts import excerpt
from partq.server.connection import Connection
from partq.wire import frames

SOCKETS: web.AppKey[set["FrameSocket"]] = web.AppKey("sockets", set)
"""Every open connection of the application."""
CLOSE_TIMEOUT_S = 1.0
"""How long a client has to take what is on its way to it, and to answer a close."""


First = TypeVar("First", frames.Bind, frames.ProducerHello)


def first_of(kind: type[First], frame: frames.AnyFrame) -> First:
    """Return the frame that a connection has begun with.

    Raises:
        BadFrameError: it is of another kind.
        BadRequestError: it is of another version of the protocol.
    """
    if not isinstance(frame, kind):
        raise BadFrameError(f"frame: got {type(frame).__name__}, expected {kind.__name__} first")
    if frame.version != frames.PROTOCOL_VERSION:
        raise BadRequestError(
            f"protocol version {frame.version}; this broker speaks {frames.PROTOCOL_VERSION}: "
            "use a client of the broker's version"
        )
    return frame


class FrameSocket:
    """One connection, of a producer or of a consumer."""

    def __init__(self, request: web.Request, socket: web.WebSocketResponse) -> None:
        self.response = socket
        self.request = request
        """The request that opened it, whose token must still be valid."""
        self._socket = socket
        self.was_cut = False
        """The client's side has ended without a word, as the death of its process does."""

    @classmethod
    async def open(cls, request: web.Request, *, max_bytes: int, plain: str) -> Self:
        """Accept a connection whose frames have at most `max_bytes`.

        `plain`: which call does the same over plain HTTP.

        Raises:
            BadRequestError: the call asks for no WebSocket.
        """
        socket = web.WebSocketResponse(
            max_msg_size=max_bytes, compress=False, timeout=CLOSE_TIMEOUT_S
        )
        if not socket.can_prepare(request).ok:
            raise BadRequestError(
                f"GET {excerpt(request.path)}: got a plain call, expected the upgrade to a "
                "WebSocket "
                "(Upgrade: websocket, Connection: Upgrade, Sec-WebSocket-Version: 13 and a "
                f"Sec-WebSocket-Key); use a client of WebSockets, or {plain} over plain HTTP"
            )
        await socket.prepare(request)
        self = cls(request, socket)
        request.app[SOCKETS].add(self)
        return self

    async def receive(self) -> tuple[frames.AnyFrame, bytes]:
        """Return the next frame and its payload.

        Raises:
            BadFrameError: it is no frame of the protocol.
            ConnectionResetError: the connection has ended.
        """
        message = await self._socket.receive()
        if message.type is WSMsgType.BINARY:
            if isinstance(self.request.protocol, Connection):
                self.request.protocol.take_frame(len(message.data))
            return frames.decode(message.data)
        if message.type is WSMsgType.TEXT:
            raise BadFrameError("frame: got text, expected binary")
        if message.type is WSMsgType.ERROR:
            raise BadFrameError(f"frame: {self._socket.exception()}")
        self.was_cut = message.type is not WSMsgType.CLOSE
        raise ConnectionResetError

    async def send(self, data: bytes) -> None:
        """Send a frame; waits for as long as the client does not read.

        Raises:
            ConnectionError: the connection has ended.
        """
        await self._socket.send_bytes(data)

    async def close(self, code: int = WSCloseCode.OK) -> None:
        """End the connection; one whose client does not read any more is cut off."""
        self.request.app[SOCKETS].discard(self)
        try:
            async with asyncio.timeout(2 * CLOSE_TIMEOUT_S):
                await self._socket.close(code=code)
        except (ConnectionError, TimeoutError):
            self.cut()

    async def refuse(self, error: PartqError) -> None:
        """Tell the client why it is cut off, and end the connection."""
        failed = frames.encode(frames.Failed(error.code, error.message))
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.send(failed)
        await self.close(WSCloseCode.POLICY_VIOLATION)

    def cut(self) -> None:
        """Drop the connection at once; a repeat does nothing."""
        if self.request.transport is not None:
            self.request.transport.abort()


async def close_all(app: web.Application) -> None:
    """End every connection, as the broker shuts down."""
    await asyncio.gather(*(socket.close(WSCloseCode.GOING_AWAY) for socket in [*app[SOCKETS]]))
