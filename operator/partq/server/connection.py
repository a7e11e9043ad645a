"""One connection of a server: how long its caller may take, and what is logged of it."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from partq.errors import BadRequestError, PartqError, RequestTimeoutError
from partq.server.frame_meter import FrameMeter
from partq.server.guard import Guard
from partq.server.memory import Hold

_OF_CALLERS = (HttpProcessingError, ConnectionError, web.RequestPayloadError, PartqError)
"""Errors that concern only the caller and are not logged."""


class Connection(web.RequestHandler):
    """aiohttp's connection, with an end to everything that a caller can draw out.

    aiohttp itself ends one that is idle. The time for the headers begins with their first byte.
    """

    __slots__ = ("_due", "_guard", "_is_idle", "_meter", "on_lost")

    def __init__(self, manager: web.Server, *, guard: Guard, **kwargs: Any) -> None:
        super().__init__(manager, **kwargs)
        self._guard = guard
        self._due: asyncio.TimerHandle | None = None
        self._is_idle = True
        self._meter: FrameMeter | None = None
        self.on_lost: Callable[[], None] | None = None
        """Called when the caller has gone: for the handler of a call that waits."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, or drop it where there are too many."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        if self._guard.census.enter(self, address):
            self._begin_headers()
        else:
            self.cut()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection."""
        self._guard.census.leave(self)
        self._stop_clock()
        if self._meter is not None:
            self._meter.close()
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        """Take bytes; the first ones of a request begin its time."""
        super().data_received(data)
        if self._is_idle and self._due is None and data:
            self._begin_headers()

    def set_parser(self, parser: Any, *args: Any, **kwargs: Any) -> None:
        """Read frames of a WebSocket from here on; what they hold is counted."""
        self._meter = FrameMeter(parser, Hold(self._guard.memory), self._end_frame)
        super().set_parser(cast(Any, self._meter), *args, **kwargs)

    def take_frame(self, size_bytes: int) -> None:
        """Note that a message of so many bytes was taken from a WebSocket."""
        if self._meter is not None:
            self._meter.take(size_bytes)

    def begin(self) -> None:
        """Note that the headers of a request are complete."""
        self._is_idle = False
        self._stop_clock()

    def end(self) -> None:
        """Note that a request is answered."""
        self._is_idle = True

    def cut(self) -> None:
        """Drop the connection at once; a repeat does nothing."""
        if self.transport is not None:
            self.transport.abort()

    def identify(self, token: str) -> bool:
        """Note whose connection it is; return whether the token may have one more."""
        return self._guard.census.identify(self, token)

    def end_body(self, content: Any) -> None:
        """Let the reader of the body see that it does not come in time."""
        self._guard.on_cut("body")
        limit_s = self._guard.limits.body_s
        content.set_exception(
            RequestTimeoutError(f"the body did not come within {limit_s:g} s; send it faster")
        )

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """Log an error; a fault of the caller is one line at the level debug."""
        error = kwargs.get("exc_info")
        if isinstance(error, _OF_CALLERS):
            self.logger.debug("a caller's fault: %s: %s", type(error).__name__, error)
        else:
            super().log_exception(*args, **kwargs)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP in the shape of every other error.

        The parser's own text repeats what came, which may be a token, and is not sent.
        """
        response = super().handle_error(request, status, exc, message)
        if status != BAD_REQUEST:
            return response
        refusal = self._guard.refuse(BadRequestError(f"no HTTP request: {_parse_problem(exc)}"))
        refusal.force_close()
        return refusal

    def _end_frame(self) -> None:
        self._guard.on_cut("memory")
        self.cut()

    def _begin_headers(self) -> None:
        self._due = self._guard.loop.call_later(self._guard.limits.headers_s, self._end_headers)

    def _end_headers(self) -> None:
        self._due = None
        if self._is_idle:
            self._guard.on_cut("headers")
            self.cut()

    def _stop_clock(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


BAD_REQUEST = 400
MAX_LINE_BYTES = 8190
"""The longest path, query or header that aiohttp reads."""
MAX_HEADERS = 128
"""The most headers of a request that aiohttp reads."""


def _parse_problem(error: BaseException | None) -> str:
    """Return why a request could not be read, without a byte of it."""
    if isinstance(error, LineTooLong):
        return (
            f"got a path, query or header above {MAX_LINE_BYTES} bytes, expected at most that: "
            "shorten it, or send it in the body where the call takes it there"
        )
    if "Too many headers" in str(error):
        return f"got more than {MAX_HEADERS} headers, expected at most that: send fewer"
    return (
        "got bytes that HTTP/1.1 does not know, expected a request line and headers, each as "
        "`Name: value` without a blank before the colon: send it by a library for HTTP, and use "
        "https:// only where the broker has a certificate"
    )
