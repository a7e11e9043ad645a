"""How a job tells what it does, and learns that it is to end."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from partq.errors import PartqError


class StoppedError(PartqError):
    """The job was told to end before it was done; what is durable stays."""

    code = "stopped"


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is."""

    done: int
    """How many of `unit` are done, and durable, since the job began."""
    total: int | None = None
    """How many it will be, as far as is known; None: unknown."""
    detail: str = ""
    """What else people want to see: the lag, say."""
    unit: Literal["rows", "bytes", "steps"] = "rows"
    """What is counted; a job may count one after the other."""


def _nothing(_: object) -> None:
    """Show nothing."""


class JobWatch:
    """Carries progress out of a job, and the wish that it ends into it.

    The job runs in one thread; `stop` may come from any.

    Args:
        on_progress: is called with each `JobProgress`, in the thread of the job.
        on_line: is called with each sentence that is worth keeping.
    """

    def __init__(
        self,
        on_progress: Callable[[JobProgress], None] = _nothing,
        on_line: Callable[[str], None] = _nothing,
    ) -> None:
        self.show = on_progress
        self.tell = on_line
        self._stopped = threading.Event()
        self._calls: list[Callable[[], object]] = []
        self._lock = threading.RLock()

    def stop(self) -> None:
        """Have the job end at its next step; a repeat changes nothing."""
        with self._lock:
            self._stopped.set()
            for call in self._calls:
                call()

    @contextmanager
    def on_stop(self, call: Callable[[], object]) -> Iterator[None]:
        """Have `stop` make a call, if it comes during the block: what a step waits for can end.

        It is made in the thread of `stop`; at once, if the job was told to end before.
        """
        with self._lock:
            self._calls.append(call)
            if self.is_stopped:
                call()
        try:
            yield
        finally:
            with self._lock:
                self._calls.remove(call)

    @property
    def is_stopped(self) -> bool:
        """Whether the job is to end."""
        return self._stopped.is_set()

    def wait(self, length_s: float) -> bool:
        """Wait for this many seconds; True at once when the job is to end."""
        return self._stopped.wait(length_s)

    def check(self) -> None:
        """Go on, unless the job is to end.

        Raises:
            StoppedError: it is to end.
        """
        if self.is_stopped:
            raise StoppedError("stopped before the end; what is durable stays")
