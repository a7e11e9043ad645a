"""An event loop without a clock: time jumps to the next timer, and a process can stand still."""

import asyncio
from asyncio import events
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, TypeVar

T = TypeVar("T")

PROCESS: "ContextVar[Process]" = ContextVar("process")
"""The process whose code is running; tasks and timers inherit it from their starter."""


MIN_PRUNED: Final = 32
"""A process that was given so many tasks looks which of them have ended."""

_ASKED: Final = tuple(
    (module, name, getattr(module, name))
    for module, name in (
        (asyncio, "get_running_loop"),
        (events, "get_running_loop"),
        (events, "_get_running_loop"),
    )
)
"""Where asyncio is asked for the running loop."""

Work = tuple[Callable[..., object], tuple[Any, ...], Context]
"""A callback, its arguments, and the context that says whose it is."""


class Handle:
    """A callback that will run, unless it is cancelled: what asyncio uses of its handles."""

    __slots__ = ("is_cancelled", "when_s", "work")

    def __init__(self, work: Work, when_s: float) -> None:
        self.work = work
        self.when_s = when_s
        self.is_cancelled = False

    def cancel(self) -> None:
        """Do not run."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Say whether it will not run."""
        return self.is_cancelled

    def when(self) -> float:
        """Return the simulated time at which it runs."""
        return self.when_s


class Process:
    """What ends at one kill: a group of tasks with a name."""

    def __init__(self, loop: "SimLoop", name: str) -> None:
        self.name = name
        self.is_alive = True
        self._tasks: list[asyncio.Task[Any]] = []
        """All that have not ended, in their order, and some that have."""
        self._prune_at = MIN_PRUNED
        self.held: deque[Handle | Work] = deque()
        """What wanted to run while the process stood still."""
        self._loop = loop
        self._context = copy_context()
        self._context.run(PROCESS.set, self)
        loop.processes.append(self)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a task as a part of this process."""
        return self._loop.create_task(work, context=self._context.copy())

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return not self.pending()

    def pending(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that have not ended, in their order."""
        return [task for task in self._tasks if not task.done()]

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Let a task end with this process."""
        if len(self._tasks) >= self._prune_at:
            # What has ended is let go now and then: its memory is what the next ones take.
            self._tasks = self.pending()
            self._prune_at = max(MIN_PRUNED, 2 * len(self._tasks))
        self._tasks.append(task)
        if not self.is_alive:
            task.cancel()

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
        """Stop every task. The caller has cut the connections before, so no peer notices it."""
        self.is_alive = False
        self.thaw()
        for task in self.pending():
            task.cancel()


class SimLoop(asyncio.AbstractEventLoop):
    """Runs callbacks in the order in which they came due; nothing else decides anything."""

    def __init__(self) -> None:
        self.ready: deque[Handle | Work] = deque()
        self.processes: list[Process] = []
        """All that there ever were."""
        self.frozen: set[Process] = set()
        self.is_stopped = False
        """Nothing more is to happen: something that must not be has been seen."""
        self.trouble: list[BaseException] = []
        """Errors that nobody has taken: mistakes of the code under test, or of the simulator."""
        self.step_count = 0
        self.network: Any = None
        self.redis: Any = None
        """Where code that runs here finds its machine: `network.Network`, `stored.RedisServer`."""
        # Both are asked for each future: so by what costs least.
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self.get_debug = bool  # type: ignore[method-assign]  # no: it would check timing
        self._now = 0.0
        self._timers: list[tuple[float, int, Handle | Callable[[], object]]] = []
        self._timer_count = 0
        self._is_closed = False

    # ---- driving --------------------------------------------------------------------------------

    def run_until(self, end: float, is_over: Callable[[], bool] | None = None) -> None:
        """Run until simulated time `end`, until stopped, or until `is_over()` between timers."""
        timers, ready = self._timers, self.ready
        self._answer_who_asks()
        try:
            while True:
                if ready:
                    self._run_ready()
                if self.is_stopped or (is_over is not None and is_over()):
                    return
                if not timers or timers[0][0] > end:
                    self._now = max(self._now, end)
                    return
                when, _, what = heappop(timers)
                if when > self._now:
                    self._now = when
                if type(what) is Handle:
                    if not what.is_cancelled:
                        ready.append(what)
                    continue
                self.step_count += 1
                try:
                    what()  # type: ignore[operator]  # no handle, see above
                except Exception as error:  # noqa: BLE001  a mistake of the simulator is told, too
                    self.call_exception_handler({"exception": error})
        finally:
            _set_running_loop(None)
            for module, name, original in _ASKED:
                setattr(module, name, original)

    def _answer_who_asks(self) -> None:
        """Be the running loop of this process.

        Each of some 3,600 callers in a seed would cost a system call: asyncio checks whether the
        process was forked since (Python 3.11).
        """
        _set_running_loop(self)
        for module, name, _ in _ASKED:
            setattr(module, name, lambda: self)

    def _run_ready(self) -> None:
        ready, frozen = self.ready, self.frozen
        take = ready.popleft
        while ready:
            what = take()
            if type(what) is Handle:
                if what.is_cancelled:
                    continue
                callback, args, context = what.work
            else:
                callback, args, context = what  # type: ignore[misc]  # no handle, see above
            if frozen:
                process = context.get(PROCESS)
                if process is not None and process in frozen:
                    process.held.append(what)
                    continue
            self.step_count += 1
            try:
                context.run(callback, *args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001  asyncio's own loop takes them all, too
                self.call_exception_handler({"exception": error})

    def at(self, when: float, deliver: Callable[[], object]) -> None:
        """Call `deliver` at a simulated time, as a part of no process: nothing holds it up."""
        self._timer_count += 1
        heappush(self._timers, (when, self._timer_count, deliver))

    def finish(self) -> None:
        """End every task, so that none complains later that it was forgotten."""
        for process in [*self.frozen]:
            process.thaw()
        for _ in range(20):
            self.is_stopped = False
            pending = [task for process in self.processes for task in process.pending()]
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
    ) -> Handle | None:
        """Run a callback in this instant, after those that came before it.

        With a context that is given it cannot be cancelled: there is no handle then.
        """
        if context is not None:
            # Tasks and futures give theirs, are nine of ten callers, and never cancel.
            self.ready.append((callback, args, context))
            return None
        handle = Handle((callback, args, copy_context()), self._now)
        self.ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        """Run a callback after `delay` simulated seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        """Run a callback at a simulated time."""
        handle = Handle((callback, args, copy_context() if context is None else context), when)
        self._timer_count += 1
        heappush(self._timers, (when, self._timer_count, handle))
        return handle

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Start a task as a part of the process that starts it."""
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=context)
        process = PROCESS.get() if context is None else context[PROCESS]
        process.keep(task)
        return task

    def is_running(self) -> bool:
        """Say yes: its callers are run by it."""
        return not self._is_closed

    def is_closed(self) -> bool:
        """Say whether everything has ended."""
        return self._is_closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an error that nobody has taken."""
        error = context.get("exception")
        if error is not None and not self._is_closed:
            self.trouble.append(error)
            self.is_stopped = True
