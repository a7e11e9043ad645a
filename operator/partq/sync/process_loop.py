"""One event loop per process, on a thread that all blocking clients of the process share."""

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from typing import Any, Generic, Protocol, TypeVar

from partq.client.transport.loop_thread import LoopThread
from partq.sync.latch import Latch

log = logging.getLogger("partq.sync")

T = TypeVar("T")


class _Client(Protocol):
    def close(self) -> None:
        """Close the client; it may be called again."""


class _ProcessState:
    """What this process has; a child of a fork begins without it, as it has no threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: LoopThread | None = None
        self.open_clients: dict[_Client, None] = {}

    def reset(self) -> None:
        """Forget what the parent has."""
        self.lock = threading.Lock()
        self.thread = None
        self.open_clients = {}


_state = _ProcessState()
os.register_at_fork(after_in_child=_state.reset)


def _close_all() -> None:
    """Close what was left open when the interpreter ends."""
    for client in list(_state.open_clients):
        try:
            client.close()
        except Exception as error:  # noqa: BLE001 - nobody is left to raise it to
            log.error("closed at the end of the process: %s", error)


atexit.register(_close_all)


class LoopPortal:
    """Runs the calls of one client in the loop of its process.

    Args:
        name: of the client, for the errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pid: int | None = None
        self._thread: LoopThread | None = None
        self._is_closed = False
        self._interrupted: set[asyncio.Task[Any]] = set()
        """Interrupted calls that have not ended; only the loop reads and changes it."""

    def open(self, client: _Client) -> None:
        """Begin; the loop starts with the first client, and `client` is closed at exit."""
        with _state.lock:
            if _state.thread is None:
                _state.thread = LoopThread("partq-sync")
            self._thread = _state.thread
            self._pid = os.getpid()
            self._is_closed = False
            _state.open_clients[client] = None

    def forget(self, client: _Client) -> None:
        """Note that a client is closed."""
        self._is_closed = True
        with _state.lock:
            _state.open_clients.pop(client, None)

    @property
    def is_open(self) -> bool:
        """Whether the client was opened; it may be closed again."""
        return self._thread is not None

    @property
    def is_forked(self) -> bool:
        """Whether the client was opened by the parent of this process."""
        return self._pid is not None and self._pid != os.getpid()

    def run(self, call: Callable[[], Awaitable[T]], *, is_last: bool = False) -> T:
        """Make a call in the loop and wait for it; what interrupts the wait cancels the call.

        Args:
            call: what to make.
            is_last: it closes the client, and may be repeated.

        Raises:
            RuntimeError: the client is not open, was closed, was opened before a fork, or the
                caller is a callback, which runs in the loop itself.
        """
        made = LoopCall(self._checked(is_last=is_last).loop, call)
        try:
            return made.result()
        except BaseException:  # Ctrl-C, for example
            made.interrupt()
            raise

    def make(self, call: Callable[[], T]) -> T:
        """Make a call that waits for nothing, in the loop; a callback may make it, too.

        Raises: as `run`, but for callbacks and closed clients.
        """
        thread = self._checked(may_be_loop=True, is_last=True)
        if thread.is_current:
            return call()

        async def made() -> T:
            return call()

        return self.run(made, is_last=True)

    def handout(
        self, call: Callable[[], Awaitable[T]], untaken: Callable[[T], None]
    ) -> "LoopCall[T]":
        """Return a call that takes messages; its method `result` makes it, as `run` does.

        It begins once the interrupted ones before it have ended, as the order of a key needs.

        Args:
            call: what to make.
            untaken: called in the loop with what an interrupted call has returned.
        """
        return LoopCall(self._checked().loop, call, untaken, self._interrupted)

    def call_soon(self, call: Callable[[], Any]) -> None:
        """Have the loop make a call; it is not waited for. Raises as `run`, but for callbacks."""
        self._checked(may_be_loop=True, is_last=True).call_soon(call)

    def _checked(self, *, may_be_loop: bool = False, is_last: bool = False) -> LoopThread:
        if self._thread is None:
            raise RuntimeError(f"{self._name} is not open; use it inside `with`, or call open()")
        if self.is_forked:
            raise RuntimeError(
                f"{self._name} was opened by process {self._pid}, and this is process "
                f"{os.getpid()}, forked from it: open another one after the fork"
            )
        if self._is_closed and not is_last:
            raise RuntimeError(f"{self._name} was closed; open it again, or open another one")
        if self._thread.is_current and not may_be_loop:
            raise RuntimeError(
                f"{self._name}: got a blocking call in a callback, expected one from another "
                "thread: callbacks run in the event loop, which the call would wait for"
            )
        return self._thread


class LoopCall(Generic[T]):
    """One call that a thread makes in the loop.

    A signal handler, Ctrl-C for example, may raise in the thread at any time, also when the call
    has ended in the loop and `result` was about to return. So its caller writes:

    ```python
    made = portal.handout(...)
    try:
        return made.result()
    except BaseException:
        made.interrupt()
        raise
    ```

    Between `made.result()` and `return` Python runs a signal handler inside the `try` only.

    Args:
        loop: where it is made.
        call: what to make.
        untaken: called in the loop with what it has returned, if it was interrupted.
        interrupted: interrupted calls that have not ended: it waits for them, and becomes one.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        call: Callable[[], Awaitable[T]],
        untaken: Callable[[T], None] | None = None,
        interrupted: set[asyncio.Task[Any]] | None = None,
    ) -> None:
        self._loop = loop
        self._call = call
        self._untaken = untaken
        self._interrupted = interrupted
        self._task: asyncio.Task[T] | None = None
        self._is_interrupted = False
        self._outcome = Latch()
        self._ended = Latch()

    def result(self) -> T:
        """Make the call and wait for it; return or raise what it does."""
        self._loop.call_soon_threadsafe(self._begin)
        self._outcome.wait()
        if self._task is None or self._task.cancelled():
            raise CancelledError
        return self._task.result()

    def interrupt(self) -> None:
        """Cancel the call if it is under way; give back what it has returned, or returns still."""
        self._loop.call_soon_threadsafe(self._interrupt)

    def wait_ended(self) -> None:
        """Wait until an interrupted call has ended."""
        self._ended.wait()

    # ---- in the loop ----

    def _begin(self) -> None:
        if not self._is_interrupted:
            self._task = self._loop.create_task(self._made())
            self._task.add_done_callback(self._end)

    async def _made(self) -> T:
        while self._interrupted:
            await asyncio.wait(self._interrupted)
        return await self._call()

    def _end(self, task: "asyncio.Task[T]") -> None:
        self._outcome.open()
        if self._is_interrupted:
            self._give_back(task)
        self._ended.open()

    def _interrupt(self) -> None:
        if self._is_interrupted:
            return
        self._is_interrupted = True
        if self._task is None:
            self._ended.open()
        elif self._ended.is_open:
            self._give_back(self._task)
        else:
            if self._interrupted is not None:
                self._interrupted.add(self._task)
            self._task.cancel()

    def _give_back(self, task: "asyncio.Task[T]") -> None:
        if self._interrupted is not None:
            self._interrupted.discard(task)
        if self._untaken is not None and not task.cancelled() and task.exception() is None:
            self._untaken(task.result())
