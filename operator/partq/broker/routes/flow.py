"""Consuming over a WebSocket: one flow of one member."""

import asyncio

from aiohttp import WSMsgType, web

from partq.broker.auth import Role
from partq.broker.broker import Broker
from partq.broker.flow import Flow
from partq.broker.routes.access import enter, group_of, peer
from partq.core.model import Cause
from partq.errors import BadFrameError, BadRequestError, PartqError
from partq.wire import frames

MAX_CLIENT_FRAME_BYTES = frames.MAX_HEADER_BYTES + 16
BIND_TIMEOUT_S = 10.0
MAX_CREDIT = 10_000_000

routes = web.RouteTableDef()


@routes.get("/v1/queues/{queue}/groups/{group}/flow")
async def consume(request: web.Request) -> web.WebSocketResponse:
    """Deliver to one member until one side closes."""
    broker, _ = enter(request, {Role.CONSUME, Role.ADMIN})
    group = await group_of(request, broker)
    socket = web.WebSocketResponse(max_msg_size=MAX_CLIENT_FRAME_BYTES, compress=False)
    await socket.prepare(request)
    await Consuming(broker, socket, group, peer(request)).run()
    return socket


class Consuming:
    """One flow's connection: acks and credit in, deliveries out."""

    def __init__(
        self, broker: Broker, socket: web.WebSocketResponse, group: str, address: str
    ) -> None:
        self._broker = broker
        self._socket = socket
        self._group = group
        self._address = address

    async def run(self) -> None:
        """Bind, then serve until the connection ends; a broken frame ends it, with a reason."""
        flow: Flow | None = None
        sender: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(BIND_TIMEOUT_S):
                flow = await self._bind()
            sender = asyncio.create_task(self._send_forever(flow))
            await self._broker.binder.take_up(flow)
            while not flow.is_closed:
                self._handle(flow, await self._receive())
        except (ConnectionError, TimeoutError):
            pass
        except PartqError as error:
            await self._fail(error)
        finally:
            if flow is not None:
                self._broker.binder.lose(flow)
            if sender is not None:
                sender.cancel()
                await asyncio.gather(sender, return_exceptions=True)
            await self._socket.close()

    async def _bind(self) -> Flow:
        frame = await self._receive()
        if not isinstance(frame, frames.Bind):
            raise BadFrameError(f"frame: got {type(frame).__name__}, expected Bind first")
        if frame.version != frames.PROTOCOL_VERSION:
            raise BadRequestError(
                f"protocol version {frame.version}; this broker speaks {frames.PROTOCOL_VERSION}"
            )
        flow = await self._broker.binder.bind(
            group=self._group,
            member=frame.member,
            incarnation=frame.incarnation,
            address=self._address,
            kind="flow",
            credit=frame.credit,
        )
        lease_ms = int(self._broker.settings.lease_ttl_s * 1000)
        flow.send(frames.Bound(self._broker.id, flow.number, lease_ms))
        return flow

    async def _receive(self) -> frames.AnyFrame:
        message = await self._socket.receive()
        if message.type is WSMsgType.BINARY:
            return frames.decode(message.data)[0]
        if message.type is WSMsgType.TEXT:
            raise BadFrameError("frame: got text, expected binary")
        if message.type is WSMsgType.ERROR:
            raise BadFrameError(f"frame: {self._socket.exception()}")
        raise ConnectionResetError

    def _handle(self, flow: Flow, frame: frames.AnyFrame) -> None:
        flow.last_seen = self._broker.clock()
        match frame:
            case frames.Ack(request):
                self._broker.binder.ack(
                    flow, frame, lambda error: self._answer_ack(flow, request, error)
                )
            case frames.Credit(messages):
                if not 0 < messages <= MAX_CREDIT:
                    raise BadRequestError(f"credit {messages}; expected 1 to {MAX_CREDIT}")
                flow.credit = min(flow.credit + messages, MAX_CREDIT)
                flow.notice_all()
            case frames.Ping(nonce):
                self._broker.lease.after_renewal(lambda: flow.send(frames.Pong(nonce)))
            case frames.Release():
                self._broker.binder.release(flow, frame)
            case frames.Leave():
                self._broker.binder.leave(flow)
            case _:
                raise BadFrameError(f"frame: {type(frame).__name__} does not belong here")

    def _answer_ack(self, flow: Flow, request: int, error: PartqError | None) -> None:
        if error is None:
            flow.send(frames.AckConfirmed(request))
        else:
            flow.send(frames.AckRefused(request, error.code, error.message))

    async def _send_forever(self, flow: Flow) -> None:
        clock = self._broker.clock
        lease = self._broker.lease
        metrics = self._broker.metrics
        try:
            while not flow.is_closed:
                flow.wake.clear()
                control = flow.next_control()
                if control is not None:
                    await self._socket.send_bytes(control)
                    continue
                taken = flow.next_delivery(clock()) if lease.is_valid else None
                if isinstance(taken, tuple):
                    subscription, entry, window = taken
                    cause = Cause(window.cause).name.lower()
                    metrics.delivered(flow.group, cause, window.messages)
                    header = flow.deliver_header(subscription, entry, window)
                    await self._socket.send_bytes(frames.encode(header, entry.data))
                elif taken is None:
                    await flow.wake.wait()
                else:
                    await self._wait_until(flow, taken - clock())
        except ConnectionError:
            return  # the reader sees the end as well
        finally:
            # What ends the flow is told before the connection closes.
            if flow.is_closed and not self._socket.closed:
                await self._flush_controls(flow)
                await self._socket.close()

    async def _flush_controls(self, flow: Flow) -> None:
        try:
            async with asyncio.timeout(1.0):
                while (control := flow.next_control()) is not None:
                    await self._socket.send_bytes(control)
        except (ConnectionError, TimeoutError):
            return

    async def _wait_until(self, flow: Flow, delay_s: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, delay_s)):
                await flow.wake.wait()
        except TimeoutError:
            return

    async def _fail(self, error: PartqError) -> None:
        retry_after_ms = int((error.retry_after_s or 0) * 1000)
        failed = frames.Failed(error.code, error.message, retry_after_ms)
        try:
            async with asyncio.timeout(1.0):
                await self._socket.send_bytes(frames.encode(failed))
        except (ConnectionError, TimeoutError):
            return
