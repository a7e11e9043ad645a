"""Calling an application's handler with one message after another: here, or in a thread."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Self

from partq.client.arguments import check_flag
from partq.client.consume import stop_signals
from partq.client.consume.deliveries import Delivery


class Caller:
    """Calls a handler; with `in_thread` in one thread, which ends with the block."""

    def __init__(
        self, handler: Callable[[Delivery], Awaitable[None] | None], *, in_thread: bool
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
        self._thread = _CallThread() if in_thread else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.end()

    async def __call__(self, delivery: Delivery) -> None:
        """Call the handler and wait until it is done with the message."""
        if self._thread is None:
            result = self._handler(delivery)
            if inspect.isawaitable(result):
                await result
            return
        called = self._thread.call(self._handler, delivery)
        try:
            await asyncio.shield(called)
        except asyncio.CancelledError:
            # A thread cannot be stopped. Meanwhile its message must not go to another member.
            if not stop_signals.is_interrupted():
                await asyncio.wait([called])
            raise


class _CallThread:
    """Calls functions one after the other; a call that does not end does not hold up the process.

    An executor's threads would: Python waits for them when it ends.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[..., Any], Delivery] | None]
        self._calls = SimpleQueue()
        threading.Thread(target=self._run, name="partq-run", daemon=True).start()

    def call(self, function: Callable[[Delivery], Any], delivery: Delivery) -> asyncio.Future[Any]:
        """Return what will have the result."""
        future: Future[Any] = Future()
        self._calls.put((future, function, delivery))
        return asyncio.wrap_future(future)

    def end(self) -> None:
        """End the thread once it has done what it was given."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function, delivery = call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function(delivery))
            except BaseException as error:  # noqa: BLE001  raised again where it is awaited
                future.set_exception(error)
            del call, future, function, delivery
