"""Background tasks that cannot die unseen."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TypeVar

from partq.errors import InternalError, PartqError

log = logging.getLogger("partq.client")

T = TypeVar("T")
MAKE_TIMEOUT_S = 1.0
"""How long a call from another thread waits for a turn of the event loop."""


def start(
    work: Coroutine[None, None, None], name: str, on_failure: Callable[[PartqError], None]
) -> asyncio.Task[None]:
    """Run `work` as a task that the caller cancels; a bug in it is logged and reported."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s has failed", name, exc_info=error)
            on_failure(InternalError(f"{name} has failed: {error!r}"))

    task = asyncio.create_task(work, name=name)
    task.add_done_callback(ended)
    return task


class EnteredLoop:
    """The event loop in which a client was entered, once: all calls have to come from there.

    Args:
        name: of the client, for the errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._was_closed = False

    @property
    def is_entered(self) -> bool:
        """Whether the client was entered; it may be closed again."""
        return self._loop is not None

    def enter(self) -> None:
        """Learn that the client is entered here. Raises RuntimeError: it was before."""
        if self._loop is not None:
            raise RuntimeError(f"{self._name} was entered before: make another one")
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    def close(self) -> None:
        """Learn that the client was closed; before it was entered that means nothing."""
        self._was_closed = self.is_entered

    def make(self, call: Callable[[], T]) -> T:
        """Make a call in the loop, from whichever thread: what it reads must not change meanwhile.

        At once in the loop itself, and where no loop runs it.

        Raises:
            RuntimeError: the client was entered before this process was forked.
            TimeoutError: the loop has not made it within `MAKE_TIMEOUT_S`.
        """
        loop = self._loop
        if loop is not None and self._pid != os.getpid():
            raise RuntimeError(
                f"{self._name} was opened by process {self._pid}, and this is process "
                f"{os.getpid()}, forked from it: open another one after the fork"
            )
        if loop is None or not loop.is_running() or loop is _running_loop():
            return call()
        made: Future[T] = Future()

        def make() -> None:
            if made.set_running_or_notify_cancel():
                try:
                    made.set_result(call())
                except BaseException as error:  # noqa: BLE001  raised again in the other thread
                    made.set_exception(error)

        try:
            loop.call_soon_threadsafe(make)
        except RuntimeError:  # it was closed in this moment
            return call()
        try:
            return made.result(MAKE_TIMEOUT_S)
        except TimeoutError:
            made.cancel()
            raise TimeoutError(
                f"{self._name}: its event loop has stood still for {MAKE_TIMEOUT_S:g} s; ask again"
            ) from None

    def check_not_closed(self) -> None:
        """Refuse what a client cannot do that was closed; raises RuntimeError, also as `check`."""
        self.check()
        if self._was_closed:
            raise RuntimeError(f"{self._name} was closed: make another one")

    def check(self) -> None:
        """Refuse a call from elsewhere; before the client is entered, any may come.

        Raises:
            RuntimeError: it comes from another event loop, or from a thread without one.
        """
        running = _running_loop()
        if self._loop is not None and self._loop is not running:
            raise RuntimeError(
                f"{self._name} belongs to the event loop that entered it; from another thread use "
                "asyncio.run_coroutine_threadsafe(..., loop), and loop.call_soon_threadsafe for "
                "what is not awaited"
            )


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
