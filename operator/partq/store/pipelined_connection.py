"""One connection to Redis that carries the calls of many tasks in shared round trips.

Calls that come while a pipeline is under way form the next one. So the appends of all partitions
share round trips and fsyncs, and a call waits for at most the pipeline before it.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from partq.aio import cancel_and_wait
from partq.errors import PartqError, SettingsError, StoreFullError, StoreUnavailableError
from partq.store.fail_point import FailPoint
from partq.store.lua import Script
from partq.store.retries import RETRY_AFTER_S

Reply = Any
"""What Redis answers: int, bytes, None or a list of them; the caller knows which."""

MAX_WAITING_COUNT = 20_000
"""Calls that may wait for the connection; more are refused."""
MAX_PIPELINE_COUNT = 500
MAX_PIPELINE_BYTES = 32 * 1024 * 1024
"""A pipeline ends with the call that reaches this."""

WAIT_MS = 1000
"""How long a replica may take to have what was written; then the outcome is unknown."""

# With these the server has refused the command before it did anything.
_REFUSALS = (AskError, ClusterDownError, MasterDownError, MovedError, TryAgainError)
_NOT_SERVED = (ClusterDownError, MasterDownError, MovedError)
_REFUSAL_TEXTS = ("BUSY", "MISCONF", "NOREPLICAS")
FORBIDDEN = (AuthenticationError, NoPermissionError)
"""The server answers, and refuses the user or the password."""
_DEMOTED = "-READONLY "
"""Stands in the text of a script's error of Redis 6.2, behind where the script failed."""


def pack(*command: str | bytes | int) -> list[bytes]:
    """Return a command as it goes over the wire, in pieces: large arguments are not copied."""
    pieces = [b"*%d\r\n" % len(command)]
    for part in command:
        data = part if type(part) is bytes else str(part).encode()
        pieces += (b"$%d\r\n" % len(data), data, b"\r\n")
    return pieces


_NO_LINGER = struct.pack("ii", 1, 0)
"""Closing resets the connection, and the kernel forgets what it has not sent."""

_WAIT = pack("WAIT", 1, WAIT_MS)


@dataclass(eq=False, slots=True)
class PendingCommand:
    """One command on its way."""

    operation: str
    command: list[bytes]
    """As it goes over the wire, in pieces."""
    run_epoch: int
    """The server's run that the caller knew when it made the call."""
    answer: asyncio.Future[Reply]
    script: Script | None = None
    wait_s: float = 0.0
    """How long the command itself may block, in seconds, on top of the time-out."""
    needs_replica: bool = False
    """Whether the answer is held back until a replica has what was written, if there is one."""


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """An open connection and the run of the server behind it."""

    connection: AbstractConnection
    link: int
    """The server's, from before the connection was opened."""


class ServerPort(Protocol):
    """The server that a connection leads to."""

    run_epoch: int
    """Grows whenever a connection finds another run of the server."""
    link: int
    """Grows whenever the connections opened so far are of no use any more."""
    replica_count: int
    """How many replicas follow it, as it said last."""

    async def connect(self) -> OpenConnection:
        """Open a connection; raises StoreUnavailableError, or SettingsError: it is of no use."""

    def leave(self) -> None:
        """Note that the server is a replica now: no connection to it is usable any more."""

    def doubt(self, slot: int | None) -> None:
        """Note that the server is silent or refuses: another may serve by now.

        `slot`: the Redis Cluster slot that it called another's, if any.
        """


@dataclass(eq=False, slots=True)
class PipelinedConnection:
    """Sends calls in the order of their coming; owns one connection and the task that serves it."""

    server: ServerPort
    timeout_s: float
    fail_point: FailPoint | None
    _waiting: deque[PendingCommand] = field(default_factory=deque, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _in_flight: list[PendingCommand] = field(default_factory=list, init=False)
    _connected: OpenConnection | None = field(default=None, init=False)
    _writer: asyncio.StreamWriter | None = field(default=None, init=False)
    """Of the connection."""
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _is_closed: bool = field(default=False, init=False)

    def submit(self, call: PendingCommand) -> None:
        """Send `call` with the next pipeline; the outcome comes by `call.answer`.

        Raises:
            StoreUnavailableError: closed, or too many calls wait; it is certainly not sent.
        """
        if self._is_closed:
            raise not_sent("the connection is closed")
        if len(self._waiting) >= MAX_WAITING_COUNT:
            raise not_sent(f"{MAX_WAITING_COUNT} calls wait already")
        self._waiting.append(call)
        self._wake.set()
        if self._task is None:
            self._task = asyncio.create_task(self._serve())

    async def close(self) -> None:
        """Fail every call that has no answer yet, and close the connection."""
        self._is_closed = True
        try:
            await cancel_and_wait(self._task)
        finally:
            await self._disconnect()

    async def _serve(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    await self._exchange()
        finally:
            # However it ends, nobody waits without end; after a failure the next call starts again.
            self._task = None
            _fail(self._in_flight, "the connection was closed", is_sent=True)
            _fail(self._waiting, "the connection was closed", is_sent=False)
            self._in_flight = []
            self._waiting.clear()

    async def _exchange(self) -> None:
        """Send the calls that wait, as one pipeline, and hand out the answers."""
        try:
            connection = await self._connection()
        except StoreUnavailableError as error:
            calls = list(self._waiting)
            self._waiting.clear()
            _fail(calls, error.message, is_sent=False, is_forbidden=error.is_forbidden)
            self.server.doubt(None)
            return
        except SettingsError as error:
            calls = list(self._waiting)
            self._waiting.clear()
            for call in calls:
                _resolve(call, error)
            return
        self._in_flight = calls = self._take()
        if not calls:
            return
        try:
            async with asyncio.timeout(self.timeout_s + max(call.wait_s for call in calls)):
                if self.fail_point is not None:
                    for call in calls:
                        self.fail_point.hit("before", call.operation)
                missing = await self._round_trip(connection)
                if missing:
                    await self._load_and_repeat(connection, missing)
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            await self._disconnect()
            _fail(calls, f"{type(error).__name__} {error}", is_sent=True)
            self.server.doubt(None)
        self._in_flight = []

    def _take(self) -> list[PendingCommand]:
        """Return the next pipeline's calls.

        A call that was made before the server's restart was known speaks of a past that the
        server may have forgotten: it is never sent.
        """
        calls: list[PendingCommand] = []
        stale: list[PendingCommand] = []
        size = 0
        run_epoch = self.server.run_epoch
        while self._waiting and len(calls) < MAX_PIPELINE_COUNT and size < MAX_PIPELINE_BYTES:
            call = self._waiting.popleft()
            if call.answer.done():  # its caller has gone away
                continue
            if call.run_epoch != run_epoch:
                stale.append(call)
                continue
            calls.append(call)
            size += sum(map(len, call.command))
        _fail(stale, "Redis was restarted or replaced since the call was made", is_sent=False)
        return calls

    async def _round_trip(self, connection: AbstractConnection) -> list[PendingCommand]:
        """Send the calls in flight, and return those whose script the server does not know.

        With replicas a WAIT goes behind them. It covers all that the server had written before it,
        so also what a repeat finds to be stored already.
        """
        calls = self._in_flight
        pieces = [piece for call in calls for piece in call.command]
        waits = self.server.replica_count > 0 and any(call.needs_replica for call in calls)
        if waits:
            pieces += _WAIT
        await connection.send_packed_command(pieces, check_health=False)
        missing = []
        held: list[tuple[PendingCommand, Reply]] = []
        for call in calls:
            outcome: Reply
            try:
                outcome = await connection.read_response()
            except NoScriptError:
                missing.append(call)
                continue
            except ResponseError as error:
                outcome = _from_reply(call.operation, error)
                if _is_demoted(error):
                    self.server.leave()
                elif isinstance(error, _NOT_SERVED):
                    self.server.doubt(error.slot_id if isinstance(error, MovedError) else None)
            if self.fail_point is not None:
                self.fail_point.hit("after", call.operation)
            if waits and call.needs_replica:
                held.append((call, outcome))
            else:
                _resolve(call, outcome)
        if waits:
            await _resolve_held(connection, held)
        return missing

    async def _load_and_repeat(
        self, connection: AbstractConnection, missing: list[PendingCommand]
    ) -> None:
        """Send calls again that did nothing, as the server did not know their scripts."""
        scripts = {call.script for call in missing if call.script is not None}
        pieces = [piece for script in scripts for piece in pack("SCRIPT", "LOAD", script.source)]
        await connection.send_packed_command(pieces, check_health=False)
        for _ in scripts:
            await connection.read_response()
        self._in_flight = missing
        still_missing = await self._round_trip(connection)
        _fail(still_missing, "Redis forgets scripts as they are loaded", is_sent=False)

    async def _connection(self) -> AbstractConnection:
        connected = self._connected
        if connected is not None and connected.link != self.server.link:
            # A channel has met another server, or one that serves no more: this connection is over.
            await self._disconnect()
            connected = None
        if connected is None or not connected.connection.is_connected:
            connected = self._connected = await self.server.connect()
            # redis-py has no public way to it, and lets go of it when it closes by itself.
            self._writer = getattr(connected.connection, "_writer", None)
        return connected.connection

    async def _disconnect(self) -> None:
        connected, self._connected = self._connected, None
        writer, self._writer = self._writer, None
        if writer is not None:
            _abort(writer)
        if connected is not None:
            with suppress(RedisError, OSError):
                await connected.connection.disconnect(nowait=True)


def _abort(writer: asyncio.StreamWriter) -> None:
    """Drop what was written and has not left: nobody waits for what would come of it.

    A graceful close would keep sending it, for minutes, to a server that answers nobody. What the
    server has received is carried out all the same.
    """
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0 and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()


async def _resolve_held(
    connection: AbstractConnection, held: Sequence[tuple[PendingCommand, Reply]]
) -> None:
    """Hand out the answers that were held back, once a replica has what was written."""
    try:
        count, reason = await connection.read_response(), f"no replica has it after {WAIT_MS} ms"
    except ResponseError as error:
        count, reason = 0, f"Redis answers WAIT with {error}"
    for call, outcome in held:
        if count or isinstance(outcome, PartqError):
            _resolve(call, outcome)
        else:
            _fail([call], reason, is_sent=True)


def _resolve(call: PendingCommand, outcome: Reply) -> None:
    if call.answer.done():
        return
    if isinstance(outcome, PartqError):
        call.answer.set_exception(outcome)
    else:
        call.answer.set_result(outcome)


def _fail(
    calls: "Sequence[PendingCommand] | deque[PendingCommand]",
    reason: str,
    *,
    is_sent: bool,
    is_forbidden: bool = False,
) -> None:
    for call in calls:
        if not call.answer.done():
            call.answer.set_exception(
                StoreUnavailableError(
                    f"store, {call.operation}: no answer: {reason}",
                    retry_after_s=RETRY_AFTER_S,
                    is_outcome_known=not is_sent,
                    is_forbidden=is_forbidden,
                )
            )


def not_sent(reason: str) -> StoreUnavailableError:
    """Return the error of a call that was certainly not sent."""
    return StoreUnavailableError(
        f"store: {reason}", retry_after_s=RETRY_AFTER_S, is_outcome_known=True
    )


def _is_demoted(error: ResponseError) -> bool:
    """Tell whether the server has refused a call because it is a replica: nothing was written."""
    return isinstance(error, ReadOnlyError) or _DEMOTED in str(error)


def _from_reply(operation: str, error: ResponseError) -> PartqError:
    """Translate an error that Redis answered to one call."""
    text = str(error)
    if isinstance(error, OutOfMemoryError) or "OOM command not allowed" in text:
        return StoreFullError(
            f"store, {operation}: Redis is at its maxmemory; nothing was written; "
            "consume, delete or raise maxmemory",
            retry_after_s=1.0,
        )
    return StoreUnavailableError(
        f"store, {operation}: Redis answers {text}",
        retry_after_s=RETRY_AFTER_S,
        is_outcome_known=isinstance(error, _REFUSALS)
        or text.startswith(_REFUSAL_TEXTS)
        or _is_demoted(error),
        is_forbidden=isinstance(error, FORBIDDEN),
    )
