"""Simulated consumers of sessions: each accepts some, works on them in order, and closes them."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

from partq.client.consume.deliveries import Delivery
from partq.client.sessions.locked_session import LockedSession
from partq.client.sessions.session_consumer import SessionConsumer
from partq.client.transport.liveness import Clock
from partq.errors import (
    FencedError,
    NoSessionError,
    PartqError,
    SessionLockedError,
    UnavailableError,
)
from partq.lab.simulate.machine.loop import Process
from partq.lab.simulate.oracle.facts import GROUP
from partq.lab.simulate.oracle.keys.session_deliveries import SessionDeliveries
from partq.lab.simulate.oracle.oracle import Oracle
from partq.lab.simulate.processes.brokers import QUEUE
from partq.lab.simulate.processes.clients import (
    CREDIT,
    RESTART_S,
    STATE_SHARE,
    connect_by,
)
from partq.lab.simulate.processes.mishaps import Mishaps

CLERKS: Final = 2
"""How many sessions an application works on at a time."""
NAMED_SHARE: Final = 0.25
"""Of the accepts, those of a session by its name."""
KEYS: Final = 6
BREAK_SHARE: Final = 0.1
"""Of the messages, those with which a clerk leaves its session, without a word of them."""
RENEW_SHARE: Final = 0.2
"""Of the messages, those before which a clerk renews its lock."""


class Clerks:
    """What runs in a container: accepts sessions, works, acknowledges, closes."""

    def __init__(
        self,
        member: str,
        urls: str,
        watcher: Oracle,
        mishaps: Mishaps,
        rng: random.Random,
        clock: Clock,
        process: Process,
        on_exit: Callable[[], None],
        work_s: float,
        *,
        has_states: bool,
    ) -> None:
        self.work_s = work_s
        """How long it works on a message, at most."""
        self._member = member
        self._urls = urls
        self._watcher = watcher
        self._sessions = cast(SessionDeliveries, watcher.shared)
        self._mishaps = mishaps
        self._rng = rng
        self._clock = clock
        self._process = process
        self._on_exit = on_exit
        self._has_states = has_states
        self._consumer: SessionConsumer | None = None
        self._is_leaving = False

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
        return self._consumer.incarnation if self._consumer is not None else None

    def leave(self) -> None:
        """Take SIGTERM."""
        self._is_leaving = True
        if self._consumer is not None:
            self._consumer.leave()

    async def _consume(self) -> None:
        life = object()
        made = SessionConsumer(
            self._urls,
            queue=QUEUE,
            group=GROUP,
            member=self._member,
            idle_s=self._rng.choice((0.1, 0.3, 1.0)),
            max_lock_s=self._rng.choice((1.0, 3600.0, 3600.0)),
            credit=CREDIT,
            handle_signals=False,
            max_processing_s=0,  # simulated time has no threads
            clock=self._clock,
        )
        connect_by(made, self._urls)
        async with made as consumer:
            self._consumer = consumer
            if self._is_leaving:
                consumer.leave()
            await asyncio.gather(*(self._serve(consumer, life) for _ in range(CLERKS)))

    async def _serve(self, consumer: SessionConsumer, life: object) -> None:
        while not consumer.is_leaving:
            named = None
            if self._rng.random() < NAMED_SHARE:
                named = f"k{self._rng.randrange(KEYS)}"
            timeout_s = self._rng.choice((0.0, 0.3, 0.3, 5.0)) if named is None else 0.1
            try:
                session = await consumer.accept(named, timeout_s=timeout_s)
            except (NoSessionError, SessionLockedError, UnavailableError):
                await asyncio.sleep(self._rng.uniform(0.01, 0.1))
                continue
            except RuntimeError:
                return  # it leaves
            self._sessions.entered(session, self._process)
            with suppress(PartqError):  # what is not done is redelivered
                async with session:
                    await self._work_on(session, life)
            await asyncio.sleep(self._rng.uniform(0.0, 0.05))

    async def _work_on(self, session: LockedSession, life: object) -> None:
        async for message in session:
            self._watcher.handed(GROUP, self._member, life, message)
            if self._rng.random() < RENEW_SHARE:
                await session.renew()
            if self._has_states:
                self._watcher.read_state(GROUP, message, await session.state())
            hang_s = self._mishaps.hang()
            if hang_s:
                self._watcher.taken_back(GROUP, message)
            await asyncio.sleep(self._rng.uniform(0.0, self.work_s) + hang_s)
            if self.work_s and self._rng.random() < BREAK_SHARE:
                return
            if self._mishaps.must_nack(GROUP, int(message.value)):
                self._watcher.taken_back(GROUP, message)
                await session.nack(message)
                continue
            self._watcher.finished(GROUP, message)
            with suppress(FencedError):  # of this or one before: it is redelivered
                await self._ack(session, message)

    async def _ack(self, session: LockedSession, message: Delivery) -> None:
        style = self._rng.random()
        if self._has_states:
            self._watcher.leaves(GROUP, message, has_state=style < STATE_SHARE)
        if self._has_states and style < STATE_SHARE:
            state = message.value
            await session.ack(message, confirmed=style < STATE_SHARE / 4, state=state)
        elif style < 0.5:
            session.ack_nowait(message)
        else:
            await session.ack(message, confirmed=style > 0.8)
