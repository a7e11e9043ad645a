"""Background tasks that cannot die unseen."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from partq.errors import InternalError, PartqError

log = logging.getLogger("partq.client")


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


def check_loop(owner: asyncio.AbstractEventLoop | None, name: str) -> None:
    """Refuse a call from elsewhere than the event loop where `name` was entered.

    Raises:
        RuntimeError: it comes from another event loop, or from a thread without one.
    """
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if owner is not None and owner is not running:
        raise RuntimeError(
            f"{name} belongs to the event loop that entered it; from another thread use "
            "asyncio.run_coroutine_threadsafe(..., loop), and loop.call_soon_threadsafe for what "
            "is not awaited"
        )


async def stop(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
