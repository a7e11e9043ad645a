"""Calling an application's handler with one message after another: here, or in a thread."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from partq.client.deliveries import Delivery


class Caller:
    """Calls a handler; with `in_thread` in one thread, which ends with the block."""

    def __init__(
        self, handler: Callable[[Delivery], Awaitable[None] | None], *, in_thread: bool
    ) -> None:
        if in_thread and inspect.iscoroutinefunction(handler):
            raise TypeError(
                f"run: {handler!r} is a coroutine function, which runs in the event loop; leave "
                "in_thread out, or give a function that is none"
            )
        self._handler = handler
        self._pool = ThreadPoolExecutor(1, "partq-run") if in_thread else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    async def __call__(self, delivery: Delivery) -> None:
        """Call the handler and wait until it is done with the message."""
        if self._pool is None:
            result = self._handler(delivery)
            if inspect.isawaitable(result):
                await result
            return
        loop = asyncio.get_running_loop()
        called = loop.run_in_executor(self._pool, self._handler, delivery)
        try:
            await asyncio.shield(called)
        except asyncio.CancelledError:
            # A thread cannot be stopped. Meanwhile its message must not go to another member.
            await asyncio.wait([called])
            raise
