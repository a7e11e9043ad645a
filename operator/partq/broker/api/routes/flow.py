"""Consuming over a WebSocket: one flow of one member."""

import asyncio
import logging

from aiohttp import web

from partq.aio import TaskSet, cancel_and_wait
from partq.broker.api.endpoints import CONSUMERS, Calls, EnteredCall, WebSocket
from partq.broker.api.frame_socket import CLOSE_TIMEOUT_S, FrameSocket, first_of
from partq.broker.api.ping_answers import PingAnswers
from partq.broker.broker import Broker
from partq.broker.delivery.credit import MAX_ADDED_CREDIT
from partq.broker.delivery.flow import Flow
from partq.broker.operations.reset import seek
from partq.broker.partition.outbox import Answer
from partq.broker.sessions.session_calls import SessionCalls
from partq.core.cursor.horizon import ACK_SPAN
from partq.core.model import Cause, PartitionId
from partq.errors import (
    BadFrameError,
    BadRequestError,
    ConflictError,
    InternalError,
    PartqError,
    UnavailableError,
)
from partq.wire import frames
from partq.wire.frame import FEATURES

MAX_CLIENT_FRAME_BYTES = frames.MAX_HEADER_BYTES + 16
BIND_TIMEOUT_S = 10.0
MAX_ACK_RANGES = ACK_SPAN // 2
"""More cannot lie apart in what may be delivered above a cursor."""
MAX_OPEN_ACKS = 20_000
"""Acks without an answer, each counted with its ranges; above it the client waits."""
MAX_OPEN_READS = 1000
"""Reads of states without an answer, of one flow; at the limit nothing more is read from it."""
MAX_OPEN_SESSION_CALLS = 1000
"""Accepts, renewals and closes of sessions without an answer, of one flow."""
MAX_CONTROLS = 10_000
"""Frames that the client has not read; above it the client waits."""
MAX_SLEEP_S = 1.0

calls = Calls("flow")
_log = logging.getLogger(__name__)


@calls.add(
    "GET",
    "/v1/queues/{queue}/groups/{group}/flow",
    roles=CONSUMERS,
    answers={101: WebSocket()},
)
async def consume(call: EnteredCall) -> web.WebSocketResponse:
    """Deliver to one member until one side closes."""
    socket = await FrameSocket.open(
        call.request, max_bytes=MAX_CLIENT_FRAME_BYTES, plain="POST .../pull"
    )
    await ConsumerConnection(call.broker, socket, call.group, call.address).run()
    return socket.response


class ConsumerConnection:
    """One flow's connection: acks and credit in, deliveries out.

    What a client can make wait here is bounded: above the bounds nothing more is read from it.
    """

    def __init__(self, broker: Broker, socket: FrameSocket, group: str, address: str) -> None:
        self._broker = broker
        self._socket = socket
        self._group = group
        self._address = address
        self._open_acks = 0
        self._open_reads = 0
        """Reads of states that have no answer: each may be a task that waits for the store."""
        self._seeks = TaskSet()
        self._sought: set[PartitionId] = set()
        """The partitions of the seeks that have no answer."""
        self._pings = PingAnswers(broker.lease)
        self._room = asyncio.Event()
        self._sessions: SessionCalls | None = None

    async def run(self) -> None:
        """Bind, then serve until the connection ends; a broken frame ends it, with a reason."""
        flow: Flow | None = None
        sender: asyncio.Task[None] | None = None
        states = self._broker.ack_handler.states
        try:
            async with asyncio.timeout(BIND_TIMEOUT_S):
                flow = await self._bind()
            flow.on_closed = self._end
            self._sessions = SessionCalls(self._broker.sessions, flow, self._room.set)
            sender = asyncio.create_task(self._send_forever(flow))
            await self._broker.flow_registry.bind_all(flow)
            while not flow.is_closed:
                frame, _ = await self._socket.receive()
                self._handle(flow, frame)
                while self._is_full(flow):
                    self._room.clear()
                    await self._room.wait()
                if states.is_full and not flow.is_closed:
                    await states.wait_for_room()
        except ConnectionError:
            pass
        except TimeoutError:
            await self._fail(
                UnavailableError(
                    f"no Bind came and was carried out within {BIND_TIMEOUT_S:g} s; connect again, "
                    "and send it first"
                )
            )
        except PartqError as error:
            await self._fail(error)
        finally:
            self._pings.close()
            if flow is not None:
                self._broker.flow_registry.lose(flow, may_return=not self._socket.was_cut)
            if self._sessions is not None:
                await self._sessions.end()
            await cancel_and_wait(sender)
            await self._socket.close()
            await self._end_seeks()

    async def _bind(self) -> Flow:
        received, _ = await self._socket.receive()
        frame = first_of(frames.Bind, received)
        flow = await self._broker.flow_registry.open(
            group=self._group,
            member=frame.member,
            incarnation=frame.incarnation,
            address=self._address,
            kind="flow",
            credit=frame.credit,
            credit_bytes=frame.credit_bytes,
            priority=frame.priority,
            wants_standing=frame.wants_standing,
            takes_lanes=frame.takes_lanes,
            takes_turns=frame.takes_turns,
            takes_sessions=frame.takes_sessions,
            ranges=frame.ranges,
        )
        lease_ms = int(self._broker.settings.lease_ttl_s * 1000)
        flow.send(
            frames.Bound(
                self._broker.id,
                flow.number,
                lease_ms,
                takes_begun=True,
                counts_bytes=True,
                takes_seeks=True,
                takes_dead_letters=True,
                takes_withholds=True,
                takes_in_progress=True,
                takes_lanes=True,
                takes_states=True,
                takes_sessions=self._broker.sessions.locked_ms(self._group) > 0,
                features=list(FEATURES),
            )
        )
        return flow

    def _handle(self, flow: Flow, frame: frames.AnyFrame) -> None:
        flow.last_seen = self._broker.clock()
        match frame:
            case frames.Ack():
                self._broker.ack_handler.ack(flow, frame, self._answer(flow, frame))
            case frames.Nack():
                self._broker.ack_handler.nack(flow, frame, self._answer(flow, frame))
            case frames.InProgress():
                self._broker.ack_handler.extend(flow, frame, self._answer(flow, frame))
            case frames.Credit(messages, size_bytes):
                if not (
                    0 <= messages <= MAX_ADDED_CREDIT and size_bytes >= 0 and messages + size_bytes
                ):
                    raise BadRequestError(
                        f"credit of {messages} messages, {size_bytes} bytes; expected 0 to "
                        f"{MAX_ADDED_CREDIT} messages, 0 or more bytes, and one of both above 0"
                    )
                flow.take_credit(messages, size_bytes)
            case frames.Ping(nonce):
                self._pings.answer(lambda: flow.send(frames.Pong(nonce)))
            case frames.Release():
                self._broker.ack_handler.release(flow, frame)
            case frames.Returned():
                _check_ranges(frame)
                self._broker.ack_handler.take_returned(flow, frame)
            case frames.Withhold():
                self._broker.ack_handler.withhold(flow, frame)
            case frames.Begun():
                _check_ranges(frame)
                self._broker.ack_handler.begin(flow, frame)
            case frames.Seek():
                self._seek(flow, frame)
            case frames.ReadState():
                self._read_state(flow, frame)
            case (
                frames.AcceptSession()
                | frames.RenewSession()
                | frames.CloseSession()
                | frames.CancelAccept()
            ) if self._sessions is not None:
                self._sessions.handle(frame)
            case frames.Leave():
                self._broker.flow_registry.leave(flow)
            case _:
                raise BadFrameError(
                    f"frame: {type(frame).__name__} does not belong here; expected a consumer's"
                )

    def _answer(self, flow: Flow, frame: frames.Ack | frames.Nack | frames.InProgress) -> Answer:
        """Return what takes the answer to an ack or the like; until then it counts as open."""
        _check_ranges(frame)
        weight = 1 + len(frame.ranges)
        self._open_acks += weight

        def answer(error: PartqError | None) -> None:
            self._open_acks -= weight
            self._room.set()
            answered = (
                frames.AckConfirmed(frame.request)
                if error is None
                else frames.AckRefused(frame.request, error.code, error.message)
            )
            if isinstance(frame, frames.Nack):
                # The Rewound that it brings may wait for audit records of deliveries, and comes
                # before the answer: else the client hands out what is taken back.
                flow.send_behind(PartitionId(frame.generation, frame.partition), answered)
            else:
                flow.send(answered)

        return answer

    def _read_state(self, flow: Flow, frame: frames.ReadState) -> None:
        """Have the state of a key read; until the answer it counts as open."""
        self._open_reads += 1

        def answer(state: bytes | PartqError | None) -> None:
            self._open_reads -= 1
            self._room.set()
            flow.send(
                frames.StateRefused(frame.request, state.code, state.message)
                if isinstance(state, PartqError)
                else frames.State(frame.request, state)
            )

        self._broker.ack_handler.read_state(flow, frame, answer)

    def _seek(self, flow: Flow, frame: frames.Seek) -> None:
        """Move a cursor beside what comes meanwhile; one seek of a partition at a time."""
        partition = PartitionId(frame.generation, frame.partition)
        if partition in self._sought:
            error = ConflictError(
                f"partition {partition}: a seek of this connection is under way; nothing was moved "
                "by this one: wait for its answer"
            )
            flow.send(_refusal(frame, error))
            return
        self._sought.add(partition)
        self._open_acks += 1
        self._seeks.start(self._answer_seek(flow, frame, partition))

    async def _answer_seek(self, flow: Flow, frame: frames.Seek, partition: PartitionId) -> None:
        try:
            cursor = await seek(self._broker, flow, frame)
        except PartqError as error:
            flow.send(_refusal(frame, error))
        except Exception:  # noqa: BLE001 - without an answer the partition stands still
            _log.exception("partition %s: a seek of %s has failed", partition, flow.group)
            failure = InternalError(
                f"partition {partition}: the broker has failed in a seek, so the cursor of "
                f"{flow.group} may have moved; its log says why: seek again, that moves it in any "
                "case"
            )
            flow.send(_refusal(frame, failure))
        else:
            flow.send(frames.Sought(frame.request, cursor))
        finally:
            self._sought.discard(partition)
            self._open_acks -= 1
            self._room.set()

    async def _end_seeks(self) -> None:
        """Let what has begun come to its end: one that is cut short costs a claim."""
        try:
            if self._seeks:
                await asyncio.wait(self._seeks)
        finally:
            await self._seeks.close()

    def _is_full(self, flow: Flow) -> bool:
        return not flow.is_closed and (
            self._open_acks > MAX_OPEN_ACKS
            or self._open_reads >= MAX_OPEN_READS
            or (self._sessions is not None and self._sessions.open_count >= MAX_OPEN_SESSION_CALLS)
            or flow.control_count > MAX_CONTROLS
        )

    def _end(self) -> None:
        """End the connection of a lost flow, by force if the client does not read."""
        self._room.set()
        asyncio.get_running_loop().call_later(2 * CLOSE_TIMEOUT_S, self._socket.cut)

    async def _send_forever(self, flow: Flow) -> None:
        clock = self._broker.clock
        lease = self._broker.lease
        metrics, waits = self._broker.metrics, self._broker.delivery_waits
        try:
            while not flow.is_closed:
                flow.wake.clear()
                control = flow.next_control()
                if control is not None:
                    await self._send(flow, control)
                    self._room.set()
                    continue
                if lease.is_valid and (recorded := flow.unrecorded.next()) is not None:
                    await self._send(flow, recorded)
                    self._room.set()
                    continue
                may_take = lease.is_valid and not flow.unrecorded.is_full
                taken = flow.next_delivery(clock()) if may_take else None
                if isinstance(taken, tuple):
                    consumed, entry, window = taken
                    header = flow.deliver_header(consumed, entry, window)
                    if not header.kept_bytes or window.new_from < window.stop:
                        cause = Cause(window.cause).name.lower()
                        metrics.delivered(flow.group, cause, window.messages)
                        if window.cause == Cause.NONE:
                            waits.add(flow.group, consumed.partition, entry.at_ms)
                    if not flow.hold(consumed, header, entry, window):
                        data = b"" if header.kept_bytes else entry.data
                        await self._send(flow, frames.encode(header, data))
                elif taken is None:
                    await flow.wake.wait()
                else:
                    await self._wait_until(flow, taken - clock())
        except ConnectionError:
            return  # the reader sees the end as well
        finally:
            # What ends the flow is told before the connection closes.
            if flow.is_closed:
                await self._flush_controls(flow)
                await self._socket.close()

    async def _send(self, flow: Flow, data: bytes) -> None:
        flow.is_sending = True
        try:
            await self._socket.send(data)
        finally:
            flow.is_sending = False

    async def _flush_controls(self, flow: Flow) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                while (control := flow.next_control()) is not None:
                    await self._socket.send(control)
        except (ConnectionError, TimeoutError):
            return

    async def _wait_until(self, flow: Flow, delay_s: float) -> None:
        # The event loop does not count the time that a machine is suspended.
        await flow.wake.wait_at_most(min(max(0.0, delay_s), MAX_SLEEP_S))

    async def _fail(self, error: PartqError) -> None:
        failed = frames.Failed(error.code, error.message, _retry_after_ms(error))
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._socket.send(frames.encode(failed))
        except (ConnectionError, TimeoutError):
            return


def _check_ranges(
    frame: frames.Ack | frames.Nack | frames.InProgress | frames.Begun | frames.Returned,
) -> None:
    if len(frame.ranges) > MAX_ACK_RANGES:
        raise BadRequestError(
            f"{type(frame).__name__}: {len(frame.ranges)} ranges; at most {MAX_ACK_RANGES}"
        )


def _refusal(frame: frames.Seek, error: PartqError) -> frames.SeekRefused:
    return frames.SeekRefused(frame.request, error.code, error.message, _retry_after_ms(error))


def _retry_after_ms(error: PartqError) -> int:
    return int((error.retry_after_s or 0) * 1000)
