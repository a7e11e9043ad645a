"""Signs of life while the event loop stands still: a separate thread gives them.

A handler that blocks the event loop, as `time.sleep` or a synchronous database call does, lets no
ping out. The process lives all the same, and so do its partitions: for as long as the application
has said. Only the flow is kept, at its broker. On this side its lease runs out, and then nothing is
handed out before what the broker has sent meanwhile is read (`liveness.PeerLease`).
"""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from partq.aio import Signal
from partq.client.consume.process.stall import WARN_S, StallCause, StallWatch, warning_of
from partq.client.transport.broker_connection import BrokerConnection
from partq.client.transport.session import NOT_REACHED, Session, why
from partq.errors import PartqError
from partq.wire.calls.bodies import AliveBody

log = logging.getLogger("partq.client")

BEAT_S = 0.25
"""How often the event loop shows that it runs, and the thread looks."""
STALLED_S = 0.5
"""A loop that shows nothing for this long stands still: the thread speaks for it, at most 1.75 s
after the last ping."""
KEEP_S = 1.0
"""How often it does so. Brokers take a flow for lost after 3 s, however long their leases are."""
ANSWER_S = 2.0
"""How long a call may take before the next: its arrival is what counts, and that comes early."""
STOP_S = 5.0
"""How long the end of the thread is waited for."""


class BeatenFlow(Protocol):
    """A flow that is kept, at its broker."""

    url: str
    number: int
    alive_path: str
    connection: BrokerConnection


class Heartbeat:
    """Keeps the flows of one consumer while its event loop stands still.

    Args:
        session: its brokers and its token.
        flows: returns the flows; called in the thread.
        incarnation: of the member.
        max_processing_s: for how long in one go; then the flows are left to end.
    """

    def __init__(
        self,
        session: Session,
        flows: Callable[[], Sequence[BeatenFlow]],
        *,
        incarnation: str,
        max_processing_s: float,
    ) -> None:
        self._session = session.twin()
        self._flows = flows
        self._incarnation = incarnation
        self._max_processing_s = max_processing_s
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.current_thread()
        self._beat_at = time.monotonic()
        self._stall = StallWatch(gap_s=BEAT_S, now=self._beat_at, cpu_s=time.process_time())
        self._timer = self._loop.call_later(BEAT_S, self._beat)
        self._is_closing = threading.Event()
        self._has_ended = Signal()
        self._calls: dict[BeatenFlow, asyncio.Task[None]] = {}
        self._thread = threading.Thread(target=self._run, name="partq-heartbeat", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """End the thread."""
        self._timer.cancel()
        self._is_closing.set()
        if not await self._has_ended.wait_at_most(STOP_S):
            log.warning("the thread %s has not ended after %.0f s", self._thread.name, STOP_S)

    # ---- in the event loop ----

    def _beat(self) -> None:
        now = time.monotonic()
        stalled_s = now - self._beat_at
        self._beat_at = now
        if stalled_s >= WARN_S:
            log.warning("%s continues after %.1f s", self._name, stalled_s)
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    @property
    def _name(self) -> str:
        return f"the event loop of thread {self._loop_thread.name}"

    # ---- in the thread ----

    def _run(self) -> None:
        try:
            asyncio.run(self._watch())
        except Exception:  # a bug; the consumer continues without
            log.exception("the thread %s has failed", self._thread.name)
        finally:
            with suppress(RuntimeError):  # the event loop was closed first
                self._loop.call_soon_threadsafe(self._has_ended.set)

    async def _watch(self) -> None:
        told: set[StallCause] = set()
        is_given_up = False
        async with self._session:
            while not self._is_closing.is_set() and not self._loop.is_closed():
                await asyncio.sleep(BEAT_S)
                now, cpu_s = time.monotonic(), time.process_time()
                stalled_s = now - self._beat_at
                if stalled_s < STALLED_S:
                    told.clear()
                    is_given_up = False
                    self._stall.runs(now, cpu_s)
                    continue
                cause = self._stall.stands(now, cpu_s, stalled_s, least_s=WARN_S)
                if stalled_s < self._max_processing_s:
                    self._keep_all()
                elif not is_given_up:
                    is_given_up = True
                    log.warning(
                        "%s has stood still for %.1f s, the bound max_processing_s: its partitions "
                        "go to other members",
                        self._name,
                        stalled_s,
                    )
                if cause is not None and cause not in told:
                    told.add(cause)
                    text = warning_of(
                        cause,
                        loop=self._name,
                        stalled_s=stalled_s,
                        where=self._where(),
                        kept_s=self._max_processing_s,
                    )
                    log.warning("%s", text)
            for call in self._calls.values():
                call.cancel()

    def _keep_all(self) -> None:
        for flow in self._flows():
            if flow not in self._calls and flow.connection.is_up:
                call = self._calls[flow] = asyncio.create_task(self._keep(flow))
                call.add_done_callback(lambda _, flow=flow: self._calls.pop(flow))  # type: ignore[misc]

    async def _keep(self, flow: BeatenFlow) -> None:
        """Tell one broker that the process lives, and wait until it is time for the next call."""
        sent_at = time.monotonic()
        body = AliveBody(flow.number, self._incarnation)
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._session.call("POST", flow.url, flow.alive_path, object, body)
        except NOT_REACHED as error:
            log.info("%s%s: %s", flow.url, flow.alive_path, why(flow.url, error))
        except PartqError as error:  # a broker of an earlier version does not know the call
            log.info("%s%s: %s", flow.url, flow.alive_path, error)
        await asyncio.sleep(max(0.0, KEEP_S - (time.monotonic() - sent_at)))

    def _where(self) -> str:
        """Say what the event loop's thread is doing."""
        frame = sys._current_frames().get(self._loop_thread.ident or 0)
        if frame is None:
            return "in an unknown place"
        return f"in {frame.f_code.co_name}() at {frame.f_code.co_filename}:{frame.f_lineno}"
