"""One WebSocket to one broker, kept open: greeting, pings, reading, writing, reconnecting."""

import asyncio
import logging
from collections import deque
from typing import Protocol

import aiohttp

from partq.aio import Backoff, cancel_and_wait
from partq.client.transport import tasks
from partq.client.transport.liveness import Clock, PeerLease
from partq.client.transport.outage import Outage
from partq.client.transport.retries import retry_backoff
from partq.client.transport.session import CALL_TIMEOUT_S, NOT_REACHED, Session, is_final, why
from partq.errors import (
    BadFrameError,
    InternalError,
    PartqError,
    UnavailableError,
    from_code,
)
from partq.wire import frames

log = logging.getLogger("partq.client")

PING_S = 1.0
HANG_UP = b""
"""In the place of a frame: the connection ends here."""
_CLOSED = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED)


class ConnectionHandler(Protocol):
    """What a connection tells its owner; nothing of it may block."""

    def hello(self) -> frames.Frame:
        """Return the first frame of a new connection."""

    def welcomed(self, frame: frames.AnyFrame) -> float:
        """Take the answer to `hello`; return the lease in seconds. Raises: InternalError."""

    def received(self, frame: frames.AnyFrame, payload: bytes) -> None:
        """Take a frame. An error ends the connection, which is then opened again."""

    def lost(self, error: PartqError) -> None:
        """Forget what depends on the connection; it was welcomed before. Called once for each."""

    def failing(self, error: PartqError, for_s: float) -> None:
        """Learn that no connection comes about, for the same reason since `for_s` seconds."""

    def refused(self, error: PartqError) -> None:
        """Learn that the broker refuses for good; the connection has ended."""


class BrokerConnection:
    """Keeps one connection open until it is closed or refused for good."""

    def __init__(
        self, session: Session, url: str, path: str, handler: ConnectionHandler, clock: Clock
    ) -> None:
        self.url = url
        self._session = session
        self._path = path
        self._handler = handler
        self._clock = clock
        self.is_failing = False
        """Whether the last connection has ended, or the last try to make one has failed."""
        self._is_retired = False
        self._lease: PeerLease | None = None
        self._outbox: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._outage = Outage(url, clock)
        self._task = tasks.start(self._run(), f"the connection to {url}", handler.refused)

    @property
    def is_up(self) -> bool:
        """Whether frames can be sent now."""
        return self._lease is not None

    def is_valid(self) -> bool:
        """Say whether the broker is proven to be alive, by the clock of this moment."""
        return self._lease is not None and self._lease.is_valid(self._clock())

    def send(self, frame: frames.Frame, payload: bytes = b"") -> bool:
        """Queue a frame; False, and nothing done, when the connection is down."""
        if self._lease is None:
            return False
        self._outbox.append(frames.encode(frame, payload))
        self._wake.set()
        return True

    def retire(self) -> None:
        """Let this connection be the last one: it is not opened again."""
        self._is_retired = True

    def hang_up(self) -> None:
        """End the connection once what is queued is written."""
        self.retire()
        self._outbox.append(HANG_UP)
        self._wake.set()

    async def hung_up(self, timeout_s: float) -> None:
        """Wait until a connection that hangs up has ended; at most this many seconds."""
        if self._outbox and self._outbox[-1] == HANG_UP:
            await asyncio.wait([self._task], timeout=timeout_s)

    async def close(self) -> None:
        """End the connection; what is queued is dropped."""
        await cancel_and_wait(self._task)

    async def _run(self) -> None:
        backoff = retry_backoff()
        while not self._is_retired:
            advice_s = None
            try:
                await self._connect(backoff)
            except PartqError as error:
                self.is_failing = True
                if is_final(error):
                    self._handler.refused(error)
                    return
                advice_s = error.retry_after_s
                self._failed(error)
            except NOT_REACHED as error:
                self.is_failing = True
                self._failed(UnavailableError(why(self.url, error)))
            if not self._is_retired:
                await asyncio.sleep(backoff.next_s(advice_s))

    def _failed(self, error: PartqError) -> None:
        log.info("%s%s: %s", self.url, self._path, error)
        if not self._is_retired:  # the end that was wanted is no failure
            self._handler.failing(error, self._outage.note(error))

    async def _connect(self, backoff: Backoff) -> None:
        websocket = await self._session.connect(self.url, self._path)
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await websocket.send_bytes(frames.encode(self._handler.hello()))
                frame, _ = await _receive(websocket)
            self._lease = lease = PeerLease(self._handler.welcomed(frame), self._clock())
            self.is_failing = False
            try:
                await self._serve(websocket, lease)
            finally:
                if lease.is_proven:  # a welcome alone does not show that the connection works
                    backoff.reset()
        finally:
            await websocket.close()

    async def _serve(self, websocket: aiohttp.ClientWebSocketResponse, lease: PeerLease) -> None:
        parts = [
            asyncio.create_task(self._read(websocket, lease)),
            asyncio.create_task(self._write(websocket)),
            asyncio.create_task(self._keep_alive(lease)),
        ]
        reason: PartqError = UnavailableError(
            f"broker {self.url}: the connection was cut; it is opened again"
        )
        try:
            done, _ = await asyncio.wait(parts, return_when="FIRST_COMPLETED")
            ended = [part for part in parts if part in done]
            for failed in filter(None, (part.exception() for part in ended)):
                if not isinstance(failed, (PartqError, *NOT_REACHED)):
                    raise failed
                reason = failed if isinstance(failed, PartqError) else _unreached(failed)
        finally:
            await cancel_and_wait(*parts)
            self._lease = None
            self.is_failing = True
            self._outbox.clear()
            self._handler.lost(reason)
        raise reason

    async def _read(self, websocket: aiohttp.ClientWebSocketResponse, lease: PeerLease) -> None:
        received = self._handler.received
        while True:
            frame, payload = await _receive(websocket)
            if isinstance(frame, frames.Pong):
                lease.answered(frame.nonce)
                self._outage.end()
            received(frame, payload)

    async def _write(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            while self._outbox:
                data = self._outbox.popleft()
                if data == HANG_UP:
                    raise UnavailableError(
                        f"broker {self.url}: this client has left; make another one"
                    )
                await websocket.send_bytes(data)
            self._wake.clear()
            await self._wake.wait()

    async def _keep_alive(self, lease: PeerLease) -> None:
        every_s = min(PING_S, lease.length_s / 3)
        due_at = self._clock()
        while True:
            now = self._clock()
            # Late, as the event loop stood still, or the process, or it sleeps with its machine.
            lease.stood_still(max(0.0, now - due_at))
            if lease.is_over(now):
                raise UnavailableError(
                    f"broker {self.url}: no ping was answered for {lease.length_s:g} s, its "
                    "lease; the connection is opened again"
                )
            # In front of what is queued: a long queue is no sign of a dead broker.
            self._outbox.appendleft(frames.encode(frames.Ping(lease.ping(now))))
            self._wake.set()
            wait_s = min(every_s, lease.lost_at - now)
            due_at = now + wait_s
            await asyncio.sleep(wait_s)


async def _receive(
    websocket: aiohttp.ClientWebSocketResponse,
) -> tuple[frames.AnyFrame, bytes]:
    message = await websocket.receive()
    if message.type in _CLOSED:
        raise UnavailableError(
            f"the broker closed the connection (code {websocket.close_code}); it is opened again"
        )
    if message.type is not aiohttp.WSMsgType.BINARY:
        raise InternalError(
            f"the broker sent a WebSocket message of type {message.type!s}, expected binary; use "
            "a client of the broker's version"
        )
    try:
        frame, payload = frames.decode(message.data)
    except BadFrameError as error:
        raise InternalError(
            f"the broker sent no frame of this protocol: {error}; use a client of the broker's "
            "version"
        ) from error
    if isinstance(frame, frames.Failed):
        retry_after_s = frame.retry_after_ms / 1000 if frame.retry_after_ms else None
        raise from_code(frame.code, frame.message, retry_after_s=retry_after_s)
    return frame, payload


def _unreached(error: BaseException) -> UnavailableError:
    return UnavailableError(
        f"the connection was lost: {str(error) or type(error).__name__}; it is opened again"
    )
