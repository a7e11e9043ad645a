"""Calling an application's callbacks: plain functions at once, coroutines in turn."""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from partq.aio import cancel_and_wait
from partq.core.model import PartitionId

log = logging.getLogger("partq.client")

Key = PartitionId | None
"""What callbacks follow each other for: a partition; None: the consumer."""
MAX_TOLD = 100
"""Callbacks whose failure is remembered; an older one would be told again."""


class Callbacks:
    """Calls those of one partition one after the other; partitions do not wait for each other.

    `on_failure` is called with what a callback raises; nothing that follows in its turn is called.
    """

    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        self._on_failure = on_failure
        self._told: deque[Callable[..., object]] = deque(maxlen=MAX_TOLD)
        """Callbacks whose failure the log has; each is told once."""
        self._last: dict[Key, asyncio.Task[None]] = {}
        """The last of each turn that is not done."""

    def call(
        self,
        key: Key,
        callback: Callable[..., object],
        *args: object,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `callback`, and `then` once it is done: at once, unless a coroutine is to end."""
        before = self._last.get(key)
        result: Any = None
        if before is None:
            try:
                result = callback(*args)
            except Exception as error:  # noqa: BLE001 - the application's, whatever it is
                self._failed(callback, error)
                return
            if not inspect.isawaitable(result):
                then()
                return
        task = asyncio.create_task(self._run(before, result, callback, args, then))
        self._last[key] = task
        task.add_done_callback(lambda done: self._done(key, done))

    async def close(self, timeout_s: float) -> None:
        """Wait until the callbacks are done, at most this many seconds; then cancel them."""
        left = list(self._last.values())
        if left:
            _, late = await asyncio.wait(left, timeout=timeout_s)
            for _ in late:
                log.warning("a callback is not done after %g s: it is cancelled", timeout_s)
            await cancel_and_wait(*late)

    async def _run(
        self,
        before: asyncio.Task[None] | None,
        begun: Awaitable[object] | None,
        callback: Callable[..., object],
        args: tuple[object, ...],
        then: Callable[[], None],
    ) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
                result: object = callback(*args)
            else:
                result = begun
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001 - the application's, whatever it is
            self._failed(callback, error)
        else:
            then()

    def _done(self, key: Key, task: asyncio.Task[None]) -> None:
        if self._last.get(key) is task:
            del self._last[key]

    def _failed(self, callback: Callable[..., object], error: Exception) -> None:
        # A bound method is another object each time that it is named, and equal.
        if callback not in self._told:
            self._told.append(callback)
            log.error("the callback %r has failed: the consumer stops", callback, exc_info=error)
            self._on_failure(error)
