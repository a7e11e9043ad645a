"""Publishing over a WebSocket: batch by batch, as the library does."""

import asyncio
from collections import deque

from aiohttp import web

from partq.broker.api.endpoints import PRODUCERS, Calls, EnteredCall, WebSocket
from partq.broker.api.frame_socket import CLOSE_TIMEOUT_S, FrameSocket, first_of
from partq.broker.api.ping_answers import PingAnswers
from partq.broker.broker import Broker
from partq.broker.operations.publish.quota_refusal import quota_refusal
from partq.core.model import PartitionId
from partq.core.producer_series import MAX_EXACT_INTEGER, check_producer_id
from partq.errors import (
    BadFrameError,
    BadRequestError,
    NotOwnerError,
    NotStoredError,
    PartqError,
    UnavailableError,
)
from partq.store.records.log import AppendResult
from partq.wire import frames
from partq.wire.batch import MAX_BATCH_BYTES
from partq.wire.frame import FEATURES

MAX_FRAME_BYTES = MAX_BATCH_BYTES + frames.MAX_HEADER_BYTES
MAX_IN_FLIGHT = 5
"""Batches of one producer without an answer, per partition: the store remembers so many."""
HELLO_TIMEOUT_S = 10.0
MAX_ANSWERS = 1000
"""Answers that the producer has not read; above it nothing more is read from it."""
SILENT_S = 30.0
"""A producer pings each second; one that is silent for this long is gone."""

calls = Calls("publish")


@calls.add("GET", "/v1/queues/{queue}/publish", roles=PRODUCERS, answers={101: WebSocket()})
async def publish(call: EnteredCall) -> web.WebSocketResponse:
    """Store batches until the producer closes."""
    socket = await FrameSocket.open(
        call.request, max_bytes=MAX_FRAME_BYTES, plain="POST .../messages"
    )
    await ProducerConnection(call.broker, socket).run()
    return socket.response


class ProducerConnection:
    """One producer's connection: batches in, answers out."""

    def __init__(self, broker: Broker, socket: FrameSocket) -> None:
        self._broker = broker
        self._socket = socket
        self._producer = ""
        self._layout = 0
        self._in_flight: dict[PartitionId, int] = {}
        self._answers: deque[bytes] = deque()
        self._pings = PingAnswers(broker.lease)
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._is_open = True

    async def run(self) -> None:
        """Serve until the connection ends; a broken frame ends it, with a reason."""
        sender = asyncio.create_task(self._send_forever())
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                hello, _ = await self._socket.receive()
            self._greet(hello)
            while True:
                async with asyncio.timeout(SILENT_S):
                    frame, payload = await self._socket.receive()
                    self._handle(frame, payload)
                    while len(self._answers) > MAX_ANSWERS:
                        self._room.clear()
                        await self._room.wait()
        except ConnectionError:
            pass
        except TimeoutError:
            limit_s = SILENT_S if self._producer else HELLO_TIMEOUT_S
            wanted = (
                "frame came, or no answer was read," if self._producer else "ProducerHello came"
            )
            error = UnavailableError(
                f"no {wanted} within {limit_s:g} s; connect again, say ProducerHello first, and "
                "ping each second"
            )
            self._answer(frames.Failed(error.code, error.message))
        except PartqError as error:
            self._answer(frames.Failed(error.code, error.message))
        finally:
            self._is_open = False
            self._pings.close()
            self._wake.set()
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await sender
            except TimeoutError:
                self._socket.cut()
            await self._socket.close()

    def _greet(self, received: frames.AnyFrame) -> None:
        hello = first_of(frames.ProducerHello, received)
        check_producer_id(hello.producer, "producer")
        if not 0 <= hello.layout <= MAX_EXACT_INTEGER:
            raise BadRequestError(
                f"producer: layout {hello.layout}; expected 0 to {MAX_EXACT_INTEGER}"
            )
        self._producer, self._layout = hello.producer, hello.layout
        self._answer(
            frames.ProducerWelcome(
                self._broker.id,
                int(self._broker.settings.lease_ttl_s * 1000),
                self._broker.config.max_message_bytes,
                MAX_IN_FLIGHT,
                list(FEATURES),
            )
        )

    def _handle(self, frame: frames.AnyFrame, payload: bytes) -> None:
        match frame:
            case frames.Publish():
                self._publish(frame, payload)
            case frames.Ping(nonce):
                self._pings.answer(lambda: self._answer(frames.Pong(nonce)))
            case frames.ProducerHello():
                self._greet(frame)
            case _:
                raise BadFrameError(
                    f"frame: {type(frame).__name__} does not belong here; expected a producer's"
                )

    def _publish(self, frame: frames.Publish, payload: bytes) -> None:
        partition = PartitionId(frame.generation, frame.partition)
        try:
            self._check(frame, partition)
        except PartqError as error:
            self._refuse(frame, error)
            return
        self._in_flight[partition] = self._in_flight.get(partition, 0) + 1
        try:
            self._broker.publish(
                partition,
                payload,
                producer=self._producer,
                first=frame.first,
                reply=lambda outcome: self._reply(frame, partition, outcome),
                ttl_ms=frame.ttl_ms,
                age_ms=frame.age_ms,
                fixed_generation=self._layout,
                message_id=frame.message_id,
                due_ms=frame.due_ms,
                after_ms=frame.after_ms,
            )
        except PartqError as error:
            self._reply(frame, partition, error)

    def _check(self, frame: frames.Publish, partition: PartitionId) -> None:
        if frame.first < 0:
            raise BadRequestError(f"publish: first number {frame.first}; expected 0 or more")
        if not 0 <= frame.age_ms <= MAX_EXACT_INTEGER:
            raise BadRequestError(
                f"publish: first sent {frame.age_ms} ms ago; expected 0 to {MAX_EXACT_INTEGER}"
            )
        count = self._in_flight.get(partition, 0)
        if count >= MAX_IN_FLIGHT:
            # Not final: a producer that resends all after a `Moved` may be ahead of the answers.
            raise NotStoredError(
                f"publish: {count} batches of partition {partition} are without an answer; "
                f"at most {MAX_IN_FLIGHT} may be: send it again after an answer"
            )

    def _reply(
        self, frame: frames.Publish, partition: PartitionId, outcome: AppendResult | PartqError
    ) -> None:
        self._in_flight[partition] -= 1
        if not self._in_flight[partition]:
            del self._in_flight[partition]
        if isinstance(outcome, NotOwnerError):
            owner = self._broker.claims.owner_url(partition)
            broker, url = owner if owner is not None else ("", "")
            self._answer(frames.Moved(*partition, broker, url))
        elif isinstance(outcome, PartqError):
            self._refuse(frame, outcome)
        elif outcome.status in {"stored", "duplicate", "parked"}:
            is_duplicate, entry = outcome.status == "duplicate", max(0, outcome.entry)
            self._answer(frames.Published(frame.request, outcome.offset, is_duplicate, entry=entry))
        elif outcome.status == "known_id":
            self._answer(
                frames.Published(
                    *(frame.request, outcome.offset),
                    is_duplicate=True,
                    is_known=True,
                    entry=max(0, outcome.entry),
                )
            )
        elif outcome.status == "quota_exceeded":
            self._refuse(frame, quota_refusal(self._broker, partition, outcome), outcome.due)
        else:
            self._broker.metrics.refused(outcome.status)
            self._answer(
                frames.PublishRefused(
                    frame.request, outcome.status, _sentence(outcome, frame), 0, outcome.due
                )
            )

    def _refuse(self, frame: frames.Publish, error: PartqError, due: int = -1) -> None:
        self._broker.metrics.refused(error.code)
        retry_after_ms = int((error.retry_after_s or 0) * 1000)
        self._answer(
            frames.PublishRefused(frame.request, error.code, error.message, retry_after_ms, due)
        )

    def _answer(self, frame: frames.Frame) -> None:
        if self._is_open or isinstance(frame, frames.Failed):
            self._answers.append(frames.encode(frame))
            self._wake.set()

    async def _send_forever(self) -> None:
        try:
            while self._is_open or self._answers:
                self._wake.clear()
                while self._answers:
                    await self._socket.send(self._answers.popleft())
                    self._room.set()
                if self._is_open:
                    await self._wake.wait()
        except ConnectionError:
            return  # the reader sees the end as well


def _sentence(result: AppendResult, frame: frames.Publish) -> str:
    where = f"partition {frame.generation}.{frame.partition}"
    match result.status:
        case "resend_from":
            return f"{where}: messages below {result.due} are stored; send again from there"
        case "out_of_sequence":
            return f"{where}: got number {frame.first}, {result.due} is due; send again from there"
        case "number_reused":
            return (
                f"{where}: number {frame.first} came before with other messages, which are stored; "
                f"these are not: send them under {result.due}"
            )
        case _ if frame.first == 0:
            return (
                f"{where}: no record of this producer; records were removed since the batch was "
                f"first sent, {frame.age_ms} ms ago, so it may or may not be stored; take a new "
                "producer id"
            )
        case _:
            return (
                f"{where}: no record of this producer, got number {frame.first}, expected 0; take "
                "a new producer id if nothing is in doubt"
            )
