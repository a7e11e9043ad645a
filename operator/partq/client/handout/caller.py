"""Calling an application's handler with messages: here, or in threads."""

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import Any, Self

from partq.client.arguments import check_flag
from partq.client.consume.deliveries import Delivery
from partq.client.consume.process import stop_signals

log = logging.getLogger("partq.client")

UNRAISABLE = (StopIteration, asyncio.CancelledError)
"""Raised in a coroutine they would say something else: it returns, or its task was cancelled."""


class Caller:
    """Calls a handler; with `in_thread` in threads, which end with the block.

    Args:
        handler: what is called with each message.
        in_thread: whether it is called in a thread.
        max_threads: as many calls are made at once.
        ended_late: called with a message whose call in a thread was cancelled, which a thread
            cannot be, and has returned after that.
        processing: returns the context of a call; None: calls need no context.
    """

    def __init__(
        self,
        handler: Callable[[Delivery], Awaitable[None] | None],
        *,
        in_thread: bool,
        max_threads: int = 1,
        ended_late: Callable[[Delivery], None],
        processing: Callable[[Delivery], AbstractContextManager[None]] | None = None,
    ) -> None:
        if not callable(handler):
            raise TypeError(f"run: got {type(handler).__name__}, expected a function")
        check_flag("run: in_thread", in_thread)
        if in_thread and inspect.iscoroutinefunction(handler):
            raise TypeError(
                f"run: {handler!r} is a coroutine function, which runs in the event loop; leave "
                "in_thread out, or give a plain function"
            )
        self._handler = handler
        self._processing = processing
        self._ended_late = ended_late
        self._threads = _CallThreads(max_threads) if in_thread else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._threads is not None:
            self._threads.end()

    async def __call__(self, delivery: Delivery) -> None:
        """Call the handler and wait until it is done with the message."""
        if self._threads is None:
            with self._context(delivery):
                result = self._handler(delivery)
                if inspect.isawaitable(result):
                    await result
            return
        called = self._threads.call(self._call_in_thread, delivery)
        try:
            error = await asyncio.shield(called)
        except asyncio.CancelledError:
            # A thread cannot be stopped. Meanwhile its message must not go to another member.
            if not stop_signals.is_interrupted():
                await asyncio.wait([called])
            if called.done() and not called.cancelled():
                self._end_late(delivery, called.result())
            raise
        if isinstance(error, UNRAISABLE):
            raise RuntimeError(f"{delivery!r}: the handler has raised {error!r}") from error
        if error is not None:
            raise error

    def _end_late(self, delivery: Delivery, error: BaseException | None) -> None:
        if error is None:
            self._ended_late(delivery)
        else:
            log.error("%r: the handler has failed in a cancelled run", delivery, exc_info=error)

    def _context(self, delivery: Delivery) -> AbstractContextManager[None]:
        return nullcontext() if self._processing is None else self._processing(delivery)

    def _call_in_thread(self, delivery: Delivery) -> object:
        with self._context(delivery):
            return self._handler(delivery)


_Ended = Future[BaseException | None]


class _CallThreads:
    """Calls functions in as many threads as calls are made at once.

    A call that does not end does not hold up the process. An executor's threads would: Python waits
    for them when it ends.
    """

    def __init__(self, max_threads: int) -> None:
        self._calls: SimpleQueue[tuple[_Ended, Callable[[Delivery], Any], Delivery] | None]
        self._calls = SimpleQueue()
        self._max_threads = max_threads
        self._thread_count = 0
        self._open_count = 0
        """Calls that have not ended."""

    def call(
        self, function: Callable[[Delivery], Any], delivery: Delivery
    ) -> "asyncio.Future[BaseException | None]":
        """Return a future whose result is what the function raises; None: it has returned."""
        future: _Ended = Future()
        self._open_count += 1
        if self._thread_count < min(self._open_count, self._max_threads):
            self._thread_count += 1
            threading.Thread(target=self._run, name="partq-run", daemon=True).start()
        self._calls.put((future, function, delivery))
        result = asyncio.wrap_future(future)
        result.add_done_callback(self._ended)
        return result

    def end(self) -> None:
        """End the threads once they have done what they were given."""
        for _ in range(self._thread_count):
            self._calls.put(None)

    def _ended(self, _: object) -> None:
        self._open_count -= 1

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function, delivery = call
            if not future.set_running_or_notify_cancel():
                continue
            raised: BaseException | None = None
            try:
                function(delivery)
            except BaseException as error:  # noqa: BLE001  raised again where it is awaited
                raised = error
            # Not as its exception: a future of asyncio takes none that is in `UNRAISABLE`.
            future.set_result(raised)
            del call, future, function, delivery, raised
