"""Simulated consumers and producers: the real client library over the simulated network."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar, cast

import aiohttp

from partq.aio import TaskSet
from partq.client.consume.deliveries import Delivery
from partq.client.consumer import Consumer
from partq.client.producer import Producer
from partq.client.sessions.session_consumer import SessionConsumer
from partq.client.transport.answers import read
from partq.client.transport.liveness import Clock
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import CALL_TIMEOUT_S, Session
from partq.core.model import PartitionId
from partq.errors import BadRequestError, FencedError, PartqError, from_code
from partq.lab.simulate.machine.loop import SimLoop
from partq.lab.simulate.machine.network import End
from partq.lab.simulate.oracle.oracle import Oracle
from partq.lab.simulate.processes.brokers import QUEUE
from partq.lab.simulate.processes.mishaps import Mishaps
from partq.wire.calls.replies import plain

CREDIT: Final = 8
"""Small, so that batches are cut and windows wait for credit."""
RESTART_S: Final = 0.5
DELIVERY_TIMEOUT_S: Final = 60.0
STATE_SHARE: Final = 0.9
"""Of the acks of applications that have states, those that leave one."""

T = TypeVar("T")


class SimClientSocket:
    """What the client uses of a WebSocket of aiohttp."""

    def __init__(self, end: End) -> None:
        self.close_code: int | None = None
        self._end = end

    async def send_bytes(self, data: bytes) -> None:
        """Send a frame."""
        self._end.send(data)

    async def receive(self) -> aiohttp.WSMessage:
        """Return the next frame, or the news that there will be none."""
        try:
            data = await self._end.receive()
        except ConnectionResetError:
            return aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None)
        return aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, data, None)

    async def close(self) -> None:
        """End the connection."""
        self._end.close()


class SimSession(Session):
    """The real session's paths, without its wires."""

    async def __aenter__(self) -> "SimSession":
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def get(self, url: str, path: str, kind: type[T]) -> T:
        """Call a broker."""
        async with asyncio.timeout(CALL_TIMEOUT_S):
            answer = await _loop().network.call(_name(url), path, None)
        if "error" in answer:
            error = answer["error"]
            raise from_code(error["code"], error["message"])
        return read(path, answer, kind)

    async def call(self, method: str, url: str, path: str, kind: type[T], body: object = None) -> T:
        """Call a broker, with a body."""
        del method
        async with asyncio.timeout(CALL_TIMEOUT_S):
            answer = await _loop().network.call(_name(url), path, plain(body))
        if "error" in answer:
            error = answer["error"]
            raise from_code(error["code"], error["message"])
        return read(path, answer, kind)

    async def check_rights(self, url: str, path: str) -> bool:
        """Ask nothing: nobody has a token here."""
        return True

    async def connect(self, url: str, path: str) -> aiohttp.ClientWebSocketResponse:
        """Open a connection to a broker."""
        async with asyncio.timeout(CALL_TIMEOUT_S):
            end = await _loop().network.open(_name(url), path)
        return cast(aiohttp.ClientWebSocketResponse, SimClientSocket(end))


def connect_by(client: Consumer | Producer | SessionConsumer, url: str) -> None:
    """Let a client reach its brokers by the simulated network."""
    client._session = SimSession(ConnectionOptions(url, QUEUE))


class Application:
    """What runs in a consumer's container: takes, works, acknowledges."""

    def __init__(
        self,
        group: str,
        member: str,
        urls: str,
        watcher: Oracle,
        mishaps: Mishaps,
        rng: random.Random,
        clock: Clock,
        on_exit: Callable[[], None],
        work_s: float,
        priority: int,
        has_states: bool,
    ) -> None:
        self.work_s = work_s
        """How long it works on a message, at most."""
        self._has_states = has_states
        """It reads the state of each key, and leaves one with each ack."""
        self._priority = priority
        self._active: set[PartitionId] = set()
        self._group = group
        self._urls = urls
        self._member = member
        self._watcher = watcher
        self._mishaps = mishaps
        self._rng = rng
        self._clock = clock
        self._on_exit = on_exit
        self._consumer: Consumer | None = None
        self._is_leaving = False
        self._nacks = TaskSet()

    async def run(self) -> None:
        """Consume until told to leave; whatever ends it otherwise, its container starts again."""
        while True:
            try:
                await self._consume()
            except (PartqError, OSError):
                if self._is_leaving:
                    break
                await asyncio.sleep(RESTART_S)
            else:
                break
        self._on_exit()

    @property
    def incarnation(self) -> str | None:
        """That of its consumer; None: it has none yet."""
        return self._consumer._membership.incarnation if self._consumer is not None else None

    def leave(self) -> None:
        """Take SIGTERM."""
        self._is_leaving = True
        if self._consumer is not None:
            self._consumer.leave()

    async def _consume(self) -> None:
        life = object()
        made = Consumer(
            self._urls,
            queue=QUEUE,
            group=self._group,
            member=self._member,
            priority=self._priority,
            on_active=self._active.add,
            on_inactive=self._active.discard,
            credit=CREDIT,
            handle_signals=False,
            leave_timeout_s=10.0,
            max_processing_s=0,  # simulated time has no threads
            clock=self._clock,
        )
        connect_by(made, self._urls)
        async with made as consumer:
            self._consumer = consumer
            if self._is_leaving:
                consumer.leave()
            self._watcher.waits(life)
            try:
                async for delivery in consumer:
                    self._watcher.handed(self._group, self._member, life, delivery)
                    await self._work(consumer, delivery)
                    self._watcher.waits(life)
            finally:
                await self._nacks.close()

    async def _work(self, consumer: Consumer, delivery: Delivery) -> None:
        if self._has_states:
            try:
                self._watcher.read_state(self._group, delivery, await delivery.state())
            except FencedError:
                return  # it is redelivered
        hang_s = self._mishaps.hang()
        if hang_s:
            self._watcher.taken_back(self._group, delivery)
        await asyncio.sleep(self._rng.uniform(0.0, self.work_s) + hang_s)
        if self._mishaps.must_nack(self._group, int(delivery.value)):
            self._watcher.taken_back(self._group, delivery)
            nack = self._nack(consumer, delivery)
            if delivery.slot is None or self._rng.random() < 0.5:
                await nack
            else:  # in a group of order Key other keys go on before the answer
                self._nacks.start(nack)
                await asyncio.sleep(0)
            return
        self._watcher.finished(self._group, delivery)
        await self._ack(consumer, delivery)

    @staticmethod
    async def _nack(consumer: Consumer, delivery: Delivery) -> None:
        with suppress(PartqError):  # refused: it is redelivered in any case
            await consumer.nack(delivery)

    async def _ack(self, consumer: Consumer, delivery: Delivery) -> None:
        style = self._rng.random()
        if self._has_states:
            self._watcher.leaves(self._group, delivery, has_state=style < STATE_SHARE)
        try:
            if self._has_states and style < STATE_SHARE:
                state = delivery.value
                await consumer.ack(delivery, confirmed=style < STATE_SHARE / 4, state=state)
            elif self._has_states:
                await consumer.ack(delivery)
            elif style < 0.5:
                consumer.ack_nowait(delivery)
            elif style < 0.65:
                await consumer.ack(delivery)
            elif style < 0.8:
                await self._ack_all_before(consumer, delivery)
            else:
                await consumer.ack(delivery, confirmed=True)
        except PartqError:
            return  # refused, it or one before: the messages are redelivered, here or elsewhere

    @staticmethod
    async def _ack_all_before(consumer: Consumer, delivery: Delivery) -> None:
        try:
            await consumer.ack_cumulative(delivery, confirmed=True)
        except BadRequestError:  # the group has the order Key
            await consumer.ack(delivery, confirmed=True)


def _loop() -> SimLoop:
    return cast(SimLoop, asyncio.get_running_loop())


def _name(url: str) -> str:
    return url.removeprefix("http://")
