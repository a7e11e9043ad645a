"""The network between simulated processes: delays, losses, repeats, cuts, half-open connections.

What a process sends is on its way when it is sent, and arrives in order within a connection. The
other side hears of a connection's end only when that arrives, too: behind a cut it never does.
"""

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Protocol

from partq.lab.simulate.machine.loop import PROCESS, Process, SimLoop

MIN_DELAY_S = 0.0002
TYPICAL_DELAY_S = 0.002
SLOW_S = 0.6
"""How long a slow path delays, at most."""

OUTSIDE = Context()
"""What the network does belongs to no process, and stands still with none."""


Plain = Any
"""What a caller sends or gets, as JSON has it; in a process it may be a struct."""


class Ending(Enum):
    """How the other side of a connection has ended it."""

    CLOSED = "closed"
    """Its process has sent a close frame."""
    RESET = "reset"
    """Its process has died."""


class Port(Protocol):
    """What a process answers, as long as it lives."""

    def call(self, route: str, body: Plain) -> Coroutine[Any, Any, Plain]:
        """Answer a call."""

    def accept(self, route: str, end: "End") -> Coroutine[Any, Any, None]:
        """Serve a connection until it ends."""


@dataclass(slots=True)
class Weather:
    """How bad the network is for everybody at the moment: shares of what goes wrong."""

    lost: float = 0.0
    """Of calls and of their answers, each."""
    repeated: float = 0.0
    """Of calls that arrive a second time, later."""
    reset: float = 0.0
    """Of pipelines to the store whose answer is lost with the connection."""
    slow: float = 0.0
    """Of calls and frames that take long."""


@dataclass(eq=False, slots=True)
class Pipe:
    """One direction of a connection."""

    source: str
    target: str
    end: "End"
    """That what is sent arrives at."""
    last_at: float = 0.0


@dataclass(eq=False)
class End:
    """One end of a connection of frames."""

    network: "Network"
    process: Process
    pipe: Pipe = field(init=False)
    inbox: deque[bytes] = field(default_factory=deque)
    is_open: bool = True
    ending: Ending | None = None
    """How the other side has ended it; None: it has not, or its end has not arrived."""
    waiter: asyncio.Future[None] | None = None
    on_sent: Callable[[bytes], None] | None = None
    """Told of each frame as it is sent."""

    def send(self, data: bytes) -> None:
        """Put a frame on its way.

        Raises:
            ConnectionResetError: this end is closed.
        """
        if not self.is_open:
            raise ConnectionResetError("closed")
        if self.process.is_alive:
            if self.on_sent is not None:
                self.on_sent(data)
            self.network.forward(self.pipe, data)

    async def receive(self) -> bytes:
        """Return the next frame.

        Raises:
            ConnectionResetError: the connection has ended.
        """
        while not self.inbox:
            if not self.is_open:
                raise ConnectionResetError("closed by the other side")
            self.waiter = self.network.loop.create_future()
            await self.waiter
        return self.inbox.popleft()

    def close(self) -> None:
        """End the connection; the other side hears of it behind everything that was sent."""
        if self.is_open:
            if self.process.is_alive:
                self.network.forward(self.pipe, Ending.CLOSED)
            self.shut()

    def shut(self) -> None:
        """End this side only."""
        self.is_open = False
        self.network.ends[self.process.name].pop(self, None)
        self.wake()

    def arrive(self, data: bytes | Ending) -> None:
        """Take what the other side has sent, or how it has ended."""
        if not self.is_open:
            return
        if isinstance(data, Ending):
            self.ending = data
            self.shut()
            return
        self.inbox.append(data)
        self.wake()

    def wake(self) -> None:
        """Let the waiter look again."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Network:
    """Carries calls and frames; owns no process."""

    def __init__(self, loop: SimLoop, rng: random.Random) -> None:
        self.loop = loop
        self.weather = Weather()
        self.ports: dict[str, tuple[Process, Port]] = {}
        """The process that answers under a name."""
        self.ends: defaultdict[str, dict[End, None]] = defaultdict(dict)
        self._rng = rng
        self._cut: set[tuple[str, str]] = set()
        self._slow: set[str] = set()
        self._parked: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._calls: defaultdict[str, dict[asyncio.Future[Plain], None]] = defaultdict(dict)

    # ---- paths ----------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Let nothing pass from one process to another; it waits, as TCP makes it wait."""
        self._cut.add((source, target))

    def mend(self, source: str, target: str) -> None:
        """Let pass again, first what waits."""
        self._cut.discard((source, target))
        for release in self._parked.pop((source, target), []):
            release()

    def slow_down(self, name: str) -> None:
        """Make everything from and to a process slow."""
        self._slow.add(name)

    def speed_up(self, name: str) -> None:
        """End that."""
        self._slow.discard(name)

    def delay_s(self, source: str, target: str) -> float:
        """Return how long one thing takes on the path."""
        slow, share = self._slow, self.weather.slow
        is_slow = slow and (source in slow or target in slow)
        if is_slow or (share and self._rng.random() < share):
            return MIN_DELAY_S + (SLOW_S - MIN_DELAY_S) * self._rng.random()
        return MIN_DELAY_S + (TYPICAL_DELAY_S - MIN_DELAY_S) * self._rng.random()

    def pass_on(
        self, source: str, target: str, deliver: Callable[[], None], not_before: float = 0.0
    ) -> float:
        """Call `deliver` when it arrives at the target; return when that is."""
        at = self.loop.time() + self.delay_s(source, target)
        if at < not_before:
            at = not_before

        def arrive() -> None:
            if self._cut and (source, target) in self._cut:
                self._parked.setdefault((source, target), []).append(deliver)
            else:
                deliver()

        self.loop.at(at, arrive)
        return at

    def is_answer_lost(self) -> bool:
        """Say, by chance, whether the store's next answer is lost with its connection."""
        share = self.weather.reset
        return share > 0 and self._rng.random() < share

    async def arrival(self, source: str, target: str) -> None:
        """Wait for as long as one thing takes on the path."""
        arrived = self.loop.create_future()
        self.pass_on(source, target, lambda: None if arrived.done() else arrived.set_result(None))
        await arrived

    # ---- connections ----------------------------------------------------------------------------

    async def open(self, name: str, route: str) -> End:
        """Open a connection from the running process; behind a cut this waits.

        Raises:
            ConnectionRefusedError: nobody listens there.
        """
        process = PROCESS.get()
        await self.arrival(process.name, name)
        listening = self.ports.get(name)
        if listening is None or not process.is_alive:
            raise ConnectionRefusedError(name)
        server, port = listening
        here, there = End(self, process), End(self, server)
        here.pipe = Pipe(process.name, name, there)
        there.pipe = Pipe(name, process.name, here)
        for end in (here, there):
            self.ends[end.process.name][end] = None
        server.start(port.accept(route, there))
        return here

    def forward(self, pipe: Pipe, data: bytes | Ending) -> None:
        """Carry a frame, or the end, behind what was sent before."""
        pipe.last_at = self.pass_on(
            pipe.source, pipe.target, lambda: pipe.end.arrive(data), pipe.last_at
        )

    def disconnect(self, process: Process, *, is_silent: bool) -> None:
        """Forget a process that was killed; with `is_silent` nobody hears that it is gone."""
        for end in [*self.ends[process.name]]:
            if end.process is process:
                if not is_silent:
                    self.forward(end.pipe, Ending.RESET)
                end.shut()
        listening = self.ports.get(process.name)
        if listening is not None and listening[0] is process:
            del self.ports[process.name]
            for answer in [*self._calls.pop(process.name, {})]:
                if not is_silent and not answer.done():
                    answer.set_exception(ConnectionResetError(process.name))

    # ---- calls ----------------------------------------------------------------------------------

    async def call(self, name: str, route: str, body: Plain) -> Plain:
        """Make a call from the running process; without an answer it waits until it is cancelled.

        Raises:
            ConnectionError: nobody listens there, or the listener has died meanwhile.
        """
        source = PROCESS.get().name
        answer: asyncio.Future[Plain] = self.loop.create_future()
        rng, weather = self._rng, self.weather
        if rng.random() < weather.lost:
            return await answer
        is_answer_lost = rng.random() < weather.lost

        def arrive() -> None:
            listening = self.ports.get(name)
            if listening is None:
                self._reply(name, source, answer, ConnectionRefusedError(name))
                return
            process, port = listening
            self._calls[name][answer] = None
            work = process.start(port.call(route, body))
            work.add_done_callback(ended, context=OUTSIDE)

        def ended(work: asyncio.Task[Plain]) -> None:
            self._calls[name].pop(answer, None)
            if not work.cancelled() and not is_answer_lost:
                self._reply(name, source, answer, work.exception() or work.result())
            elif not work.cancelled():
                work.exception()

        self.pass_on(source, name, arrive)
        if rng.random() < weather.repeated:
            later = self.loop.time() + rng.uniform(0.0, 2.0)
            self.loop.at(later, partial(self.pass_on, source, name, arrive))
        return await answer

    def _reply(self, name: str, source: str, answer: asyncio.Future[Plain], outcome: Plain) -> None:
        def arrive() -> None:
            if answer.done():
                return
            if isinstance(outcome, BaseException):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        self.pass_on(name, source, arrive)
