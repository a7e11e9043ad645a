"""An event loop on a separate thread, for code that is not asynchronous."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from partq.aio import cancel_and_wait

log = logging.getLogger("partq.client")

T = TypeVar("T")

JOIN_S = 10.0


class LoopThread:
    """Runs coroutines while its caller computes; it is running once it is made.

    SystemExit and KeyboardInterrupt in a coroutine are raised by the call that waits for it, as any
    error is. The loop, which others use as well, continues.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._lock = threading.Lock()
        self._must_end = False
        self._thread.start()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return self._loop

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread, where waiting for the loop would never end."""
        return threading.current_thread() is self._thread

    @property
    def has_ended(self) -> bool:
        """Whether `end` was called: nothing can be run any more."""
        return self._loop.is_closed()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine; returns and raises as it does.

        Raises:
            RuntimeError: `end` was called before.
            concurrent.futures.CancelledError: `end` was called meanwhile.
        """
        with self._lock:
            if self._must_end:
                call.close()
                raise RuntimeError(f"thread {self._thread.name!r} has ended: it runs no more calls")
            future = asyncio.run_coroutine_threadsafe(call, self._loop)
        return future.result()

    def call_soon(self, call: Callable[[], object]) -> None:
        """Have the loop make a call; it is not waited for."""
        self._loop.call_soon_threadsafe(call)

    def end(self) -> None:
        """End the loop and its thread; calls of other threads that are under way are cancelled."""
        with self._lock:
            self._must_end = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(JOIN_S)
        with suppress(RuntimeError):  # still running, if that was not long enough
            self._loop.close()

    def _run(self) -> None:
        while not self._must_end:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:  # they end `run_forever`
                log.debug("raised in %s, which continues", self._thread.name, exc_info=error)
        # No call is added any more. A thread that waits for one that is left would never return.
        self._loop.run_until_complete(self._cancel_calls())

    async def _cancel_calls(self) -> None:
        await cancel_and_wait(*asyncio.all_tasks() - {asyncio.current_task()})
