"""Runs a worker for each queue that exists or that a group names, while this replica leads."""

import asyncio
import logging
from collections.abc import Callable

from partq.aio import TaskSet, cancel_and_wait
from partq.kube.names import QueueKey
from partq.kube.reconcile.context import Context
from partq.kube.reconcile.queue_worker import QueueWorker

RESTART_S = 5.0
"""How long a queue is without a worker after one has ended by a bug."""

_log = logging.getLogger(__name__)


class Workers:
    """The workers of a leader; none otherwise."""

    def __init__(self) -> None:
        self._context: Context | None = None
        self._workers: dict[QueueKey, tuple[QueueWorker, asyncio.Task[None]]] = {}
        self._ends = TaskSet()

    async def follow(
        self, context: Context, is_leading: Callable[[], bool], changed: asyncio.Event
    ) -> None:
        """Run workers while this replica leads, until cancelled.

        Args:
            context: of the process.
            is_leading: whether it leads now.
            changed: is set when that may have changed.
        """
        try:
            while True:
                changed.clear()
                if is_leading() and self._context is None:
                    self._start(context)
                elif not is_leading() and self._context is not None:
                    await self._stop()
                    continue  # it may lead again by now
                await changed.wait()
        finally:
            await self._stop()

    def _start(self, context: Context) -> None:
        """Start a worker for every known queue, and for each new one."""
        self._context = context
        for key in list(context.cache.queue_keys):
            self.notice(key)

    async def _stop(self) -> None:
        """End every worker; brokers and consumers continue."""
        self._context = None
        tasks = [task for _, task in self._workers.values()]
        self._workers.clear()
        await cancel_and_wait(*tasks, *self._ends)

    def notice(self, key: QueueKey) -> None:
        """Let a queue's worker look again."""
        if self._context is None:
            return
        known = self._workers.get(key)
        if known is not None and not known[1].done():
            known[0].notice()
            if key not in self._context.cache.queue_keys:
                self._retire(key)
        elif key in self._context.cache.queue_keys:
            worker = QueueWorker(self._context, key)
            task = asyncio.create_task(worker.run(), name=f"queue {key}")
            task.add_done_callback(lambda task: self._note_end(key, task))
            self._workers[key] = (worker, task)
            worker.notice()

    def _retire(self, key: QueueKey) -> None:
        """End the worker of a queue that is gone and that no group names any more."""
        _, task = self._workers.pop(key)
        if self._context is not None:
            self._context.metrics.forget(*key)
        self._ends.start(cancel_and_wait(task), f"end of {key}")

    def _note_end(self, key: QueueKey, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            return
        _log.error("the worker of %s has ended", key, exc_info=task.exception())
        if self._workers.get(key, (None, None))[1] is task:
            del self._workers[key]
            # Soon, not at once: the same error may end the next worker.
            asyncio.get_running_loop().call_later(RESTART_S, self.notice, key)
