"""What asyncio leaves to its users: sets of tasks, futures, signals, growing waits, retries."""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterator
from typing import Any, Generic, TypeVar

MAX_ADVICE_S = 30.0
"""The most that a `retry_after` of the other side can make a caller wait, in seconds."""
MAX_DOUBLINGS = 16
"""More change no wait: it has reached its ceiling."""
MAX_MOMENTS = 50
"""How often a short wait that the other side advises is taken as it is."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


# ---- tasks --------------------------------------------------------------------------------------


async def cancel_and_wait(*tasks: "asyncio.Future[Any] | None") -> None:
    """Cancel tasks, and return when they have ended; None stands for a task that never began."""
    living = [task for task in tasks if task is not None]
    for task in living:
        task.cancel()
    # Not each by itself: the cancellation of a task would look like that of the caller.
    await asyncio.gather(*living, return_exceptions=True)


class TaskSet:
    """Tasks that run beside the object that starts them. Each is kept until it ends.

    An event loop keeps no task alive: one that nothing refers to may vanish half-way.
    """

    def __init__(
        self, on_failure: Callable[[asyncio.Task[Any], BaseException], None] | None = None
    ) -> None:
        """Begin empty. `on_failure` takes a task that has raised; without it asyncio logs that."""
        self._on_failure = on_failure
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __len__(self) -> int:
        """Return how many tasks have not ended."""
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        """Return the tasks that have not ended, the oldest first."""
        return iter(list(self._tasks))

    def start(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Run `work` as a task, until it ends or the set is cancelled."""
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """Cancel all tasks, and do not wait."""
        for task in self:
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks, and return when they have ended."""
        await cancel_and_wait(*self)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if self._on_failure is None or task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._on_failure(task, error)


# ---- futures ------------------------------------------------------------------------------------


def resolve(future: asyncio.Future[T], value: T) -> None:
    """Give a future its result, unless its waiter has gone."""
    if not future.done():
        future.set_result(value)


# ---- signals ------------------------------------------------------------------------------------


class Signal(asyncio.Event):
    """An event that can be waited for with a limit, and given to those alone who wait now."""

    async def wait_at_most(self, timeout_s: float | None) -> bool:
        """Wait until it is set; False: it was not, for this many seconds. None: without a limit."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait()
        except TimeoutError:
            return False
        return True

    def pulse(self) -> None:
        """Wake everybody who waits now; a later waiter waits for the next pulse."""
        self.set()
        self.clear()


class Pulse:
    """The next change of something, as a future: one that is taken before waiting misses none."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def next(self) -> asyncio.Future[None]:
        """Return a future that is done at the next change; all that wait share it."""
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        return self._next

    def beat(self) -> None:
        """Tell all that wait of a change."""
        if self._next is not None and not self._next.done():
            self._next.set_result(None)


# ---- waits between tries ------------------------------------------------------------------------


class Backoff:
    """Waits between tries: each twice as long as the one before, up to a ceiling, in seconds.

    Args:
        first_s: the first wait.
        most_s: the ceiling.
        is_spread: waits are drawn between `first_s` and what they have grown to, so that many
            clients of one broker do not return at the same moment. What waits alone needs no
            chance, and its log says how long it waits.
    """

    def __init__(self, first_s: float, most_s: float, *, is_spread: bool = False) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._is_spread = is_spread
        self._tries = self._moments = 0

    def reset(self) -> None:
        """Start again from the shortest wait, after a success."""
        self._tries = self._moments = 0

    def next_s(self, at_least_s: float | None = None) -> float:
        """Return how long to wait before the next try; `at_least_s` is the other side's advice.

        Advice below the first wait is taken as it is: the other side knows that it takes a moment.
        After `MAX_MOMENTS` times it was wrong.
        """
        if at_least_s and at_least_s < self._first_s and self._moments < MAX_MOMENTS:
            self._moments += 1
            return at_least_s
        wait_s = max(self._first_s, min(self._most_s, self._first_s * 2.0**self._tries))
        self._tries = min(self._tries + 1, MAX_DOUBLINGS)
        if self._is_spread:
            wait_s = random.uniform(self._first_s, wait_s)  # noqa: S311  spread, not secrecy
        return max(wait_s, min(at_least_s or 0.0, MAX_ADVICE_S))


class Backoffs(Generic[K]):
    """The things of which the last try failed, each with its growing wait.

    Instants are on the caller's clock; waits are those of `Backoff`.
    """

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._failed: dict[K, tuple[Backoff, float]] = {}
        """With the instant from which on each may be tried."""

    @property
    def next_at(self) -> float | None:
        """When the first of them may be tried; None: nothing has failed."""
        return min((until for _, until in self._failed.values()), default=None)

    def may_try(self, key: K, now: float) -> bool:
        """Return whether something may be tried (again)."""
        return key not in self._failed or now >= self._failed[key][1]

    def failed(self, key: K, now: float) -> None:
        """Note that a try failed."""
        backoff, _ = self._failed.get(key) or (Backoff(self._first_s, self._most_s), now)
        self._failed[key] = backoff, now + backoff.next_s()

    def succeeded(self, key: K) -> None:
        """Forget what failed before."""
        self._failed.pop(key, None)

    def keep_only(self, keys: Collection[K]) -> None:
        """Forget all other things: they are gone."""
        self._failed = {key: each for key, each in self._failed.items() if key in keys}


class UntilAnswered:
    """Repeats something after a short fixed gap until it is answered, however long that takes.

    The caller's loop makes the tries, as each may need to know what became of the one before. Of
    failures that follow each other the first alone is logged.
    """

    __slots__ = ("_gap_s", "_is_failing", "_log")

    def __init__(self, log: logging.Logger, gap_s: float) -> None:
        self._log = log
        self._gap_s = gap_s
        self._is_failing = False

    async def failed(self, message: str, *args: object) -> None:
        """Wait until the next try; a warning with `message % args` is logged once."""
        if not self._is_failing:
            self._log.warning(message, *args)
        self._is_failing = True
        await asyncio.sleep(self._gap_s)

    def answered(self, message: str = "") -> None:
        """Note an answer: the next failure is logged again; `message` is, if failures came before.

        Empty: nothing is.
        """
        if self._is_failing and message:
            self._log.info(message)
        self._is_failing = False
