"""Runs an application of aiohttp behind a guard."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

from aiohttp import web
from aiohttp.http import HttpVersion11, StreamWriter
from multidict import CIMultiDict, CIMultiDictProxy

from partq.errors import UnsupportedEncodingError
from partq.excerpts import excerpt
from partq.server.body import HOLD, IS_ASKED
from partq.server.connection import Connection
from partq.server.guard import Guard
from partq.server.memory import Hold

LINGERING_S = 2.0
"""How long the rest of a body that nobody wants is read, so that its sender sees the answer."""

Handler = Callable[[Any], Awaitable[web.StreamResponse]]


class GuardedRunner(web.AppRunner):
    """Serves an application; nothing that a caller sends is inflated."""

    __slots__ = ("_guard",)

    def __init__(
        self, app: web.Application, guard: Guard, *, shutdown_timeout: float = 60.0
    ) -> None:
        super().__init__(app, access_log=None, shutdown_timeout=shutdown_timeout)
        self._guard = guard

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _Server(made.request_handler, made.request_factory, self._guard)


class _Server(web.Server):
    def __init__(self, handler: Handler, factory: Callable[..., Any], guard: Guard) -> None:
        super().__init__(self._serve, request_factory=self._make)
        self._handler = handler
        self._factory = factory
        self._guard = guard

    def __call__(self) -> web.RequestHandler:
        return Connection(
            self,
            guard=self._guard,
            loop=self._guard.loop,
            access_log=None,
            keepalive_timeout=self._guard.limits.idle_s,
            lingering_time=LINGERING_S,
            auto_decompress=False,
        )

    def _make(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> Any:
        """Make a request whose answer does not say what serves it.

        aiohttp would ask for the body before anybody has looked at the request.
        """
        expects: list[str] = []
        if "Expect" in message.headers:  # which are a plain dict where no HTTP came
            headers = CIMultiDict(message.headers)
            expects = headers.popall("Expect")
            message = message._replace(headers=CIMultiDictProxy(headers))
        writer = _Writer(protocol, self._guard.loop)
        request = self._factory(message, payload, protocol, writer, task)
        request[IS_ASKED] = message.version >= HttpVersion11 and any(
            each.strip().lower() == "100-continue" for each in expects
        )
        return request

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast(Connection, request.protocol)  # of the factory above
        connection.begin()
        with Hold(self._guard.memory) as hold:
            request[HOLD] = hold
            try:
                return await self._answer(request, connection, hold)
            finally:
                connection.end()

    async def _answer(
        self, request: web.BaseRequest, connection: Connection, hold: Hold
    ) -> web.StreamResponse:
        timer: asyncio.TimerHandle | None = None
        content = request.content
        if not content.is_eof():
            delay_s = self._guard.limits.body_s
            timer = self._guard.loop.call_later(delay_s, connection.end_body, content)
            content.on_eof(timer.cancel)
        try:
            encoded = _encoding(request)
            response: web.StreamResponse = (
                await self._handler(request) if encoded is None else self._guard.refuse(encoded)
            )
        finally:
            if timer is not None:
                timer.cancel()
        if not response.prepared:
            await self._send(request, response, connection, hold)
        return response

    async def _send(
        self,
        request: web.BaseRequest,
        response: web.StreamResponse,
        connection: Connection,
        hold: Hold,
    ) -> None:
        """Send an answer; a caller that does not read it is cut off."""
        if isinstance(response, web.Response) and isinstance(response.body, bytes):
            hold.force(len(response.body))
        with suppress(ConnectionError):  # aiohttp sees that as well
            try:
                async with asyncio.timeout(self._guard.limits.answer_s):
                    await response.prepare(request)
                    await response.write_eof()
            except TimeoutError:
                self._guard.on_cut("answer")
                connection.cut()


class _Writer(StreamWriter):
    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        headers.popall("Server", None)
        await super().write_headers(status_line, headers)


def _encoding(request: web.BaseRequest) -> UnsupportedEncodingError | None:
    """Return why a body is not taken: it is encoded, or sent in something else than chunks."""
    encodings = request.headers.getall("Content-Encoding", ())
    if any(each.strip().lower() not in {"", "identity"} for each in encodings):
        return UnsupportedEncodingError(
            f"Content-Encoding {excerpt(', '.join(encodings))!r}: bodies are taken as they are, "
            "without an encoding; send it without the header"
        )
    transfer = ", ".join(request.headers.getall("Transfer-Encoding", ()))
    if transfer and transfer.strip().lower() != "chunked":
        return UnsupportedEncodingError(
            f"Transfer-Encoding {excerpt(transfer)!r}: bodies are taken with a length, or in "
            "chunks and nothing besides; send it with Content-Length, or with chunked alone"
        )
    return None
