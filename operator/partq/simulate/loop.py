"""An event loop without a clock: time jumps to the next timer, and a process can stand still."""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

PROCESS: "ContextVar[Process]" = ContextVar("process")
"""Whose code is running; tasks and timers inherit it from who starts them."""


class Process:
    """What ends at one kill: a group of tasks with a name."""

    def __init__(self, loop: "SimLoop", name: str) -> None:
        self.name = name
        self.is_alive = True
        self.tasks: list[asyncio.Task[Any]] = []
        """All that were ever started, in their order."""
        self.held: deque[asyncio.Handle] = deque()
        """What wanted to run while the process stood still."""
        self._loop = loop
        self._context = copy_context()
        self._context.run(PROCESS.set, self)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a task as a part of this process."""
        return self._loop.create_task(work, context=self._context.copy())

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return all(task.done() for task in self.tasks)

    def freeze(self) -> None:
        """Stand still, as after SIGSTOP."""
        self._loop.frozen.add(self)

    def thaw(self) -> None:
        """Go on with everything that has come due meanwhile."""
        if self in self._loop.frozen:
            self._loop.frozen.discard(self)
            self._loop.ready.extend(self.held)
            self.held.clear()

    def end(self) -> None:
        """Stop every task; who keeps the connections has cut them before, so nobody hears of it."""
        self.is_alive = False
        self.thaw()
        for task in [*self.tasks]:
            task.cancel()


class SimLoop(asyncio.AbstractEventLoop):
    """Runs callbacks in the order in which they came due; nothing else decides anything."""

    def __init__(self) -> None:
        self.ready: deque[asyncio.Handle] = deque()
        self.frozen: set[Process] = set()
        self.trouble: list[BaseException] = []
        """Errors that nobody has taken: mistakes of the code under test, or of the simulator."""
        self.step_count = 0
        self.network: Any = None
        self.redis: Any = None
        """Where whoever runs here finds the world: `network.Network` and `stored.RedisServer`."""
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._is_closed = False

    # ---- driving --------------------------------------------------------------------------------

    def run_until(self, end: float, is_over: Callable[[], bool] | None = None) -> None:
        """Run until simulated time `end`, or until `is_over()`, which is asked between instants."""
        asyncio.events._set_running_loop(self)
        try:
            while True:
                self._run_ready()
                if is_over is not None and is_over():
                    return
                timers = self._timers
                while timers and timers[0][2].cancelled():
                    heapq.heappop(timers)
                if not timers or timers[0][0] > end:
                    self._now = max(self._now, end)
                    return
                self._now = now = max(self._now, timers[0][0])
                while timers and timers[0][0] <= now:
                    handle = heapq.heappop(timers)[2]
                    if not handle.cancelled():
                        self.ready.append(handle)
        finally:
            asyncio.events._set_running_loop(None)

    def _run_ready(self) -> None:
        ready = self.ready
        while ready:
            handle = ready.popleft()
            if handle._cancelled:
                continue
            if self.frozen:
                process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
                if process is not None and process in self.frozen:
                    process.held.append(handle)
                    continue
            self.step_count += 1
            handle._run()

    def finish(self) -> None:
        """End every task, so that none complains later that it was forgotten."""
        for process in [*self.frozen]:
            process.thaw()
        for _ in range(20):
            pending = [task for task in asyncio.all_tasks(self) if not task.done()]
            if not pending:
                break
            for task in pending:
                task.cancel()
            self.run_until(self._now + 60.0)
        self._is_closed = True

    # ---- what asyncio asks of a loop ------------------------------------------------------------

    def time(self) -> float:
        """Return simulated seconds since the start."""
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback in this instant, after those that came before it."""
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback after `delay` simulated seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at a simulated time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing: cancelled timers are dropped when their time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Start a task as a part of the process that starts it."""
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=context)
        process = PROCESS.get(None) if context is None else context.get(PROCESS)
        if process is not None:
            process.tasks.append(task)
            if not process.is_alive:
                task.cancel()
        return task

    def get_debug(self) -> bool:
        """Say no: what debugging would check is timing."""
        return False

    def is_running(self) -> bool:
        """Say yes: whoever asks is run by it."""
        return not self._is_closed

    def is_closed(self) -> bool:
        """Say whether everything has ended."""
        return self._is_closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an error that nobody has taken."""
        error = context.get("exception")
        if error is not None and not self._is_closed:
            self.trouble.append(error)
