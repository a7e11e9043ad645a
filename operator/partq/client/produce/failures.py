"""Failures of messages: which were seen by the application, and reports of the others.

A future that fails unseen must not be the end of a message. `Failures` counts what has failed and
was not looked at; `flush` and leaving the block raise it, and the log has all of it.
"""

import asyncio
import logging
from collections.abc import Generator
from typing import Any, TypeVar

from partq.errors import OutcomeUnknownError, PartqError
from partq.excerpts import counted

log = logging.getLogger("partq.client.failures")

T = TypeVar("T")

MAX_REMEMBERED = 1000
"""Unseen futures whose errors are kept; the others are only counted."""
TELL_S = 1.0
"""The least time between two lines of the log."""


class PublishFuture(asyncio.Future[T]):
    """The answer to what was published. It tells `Failures` when somebody looks at it."""

    def __init__(self, failures: "Failures") -> None:
        super().__init__()
        self._failures = failures
        self._is_awaited = False
        self._failed_count = 0
        """Messages that have failed while nobody looked."""
        self._round = 0

    def fail(self, error: PartqError, failed_count: int) -> None:
        """Fail with `error`, which concerns so many of the messages."""
        is_seen = self._is_awaited and not self.done()  # one that was cancelled tells nobody
        if not is_seen:
            self._failed_count, self._round = failed_count, self._failures.round
        self._failures.add(self, error, failed_count, is_seen=is_seen)
        if not self.done():
            self.set_exception(error)
            super().exception()  # asyncio's own complaint would come too late, and one by one

    def __await__(self) -> Generator[Any, None, T]:
        if self.done():
            self._mark_seen()
        self._is_awaited = True
        return super().__await__()

    __iter__ = __await__

    def exception(self) -> BaseException | None:
        """Return the error, if any, as of `asyncio.Future`."""
        self._mark_seen()
        return super().exception()

    def result(self) -> T:
        """Return the result, as of `asyncio.Future`."""
        self._mark_seen()
        return super().result()

    def _mark_seen(self) -> None:
        if self._failed_count and not self.cancelled():
            self._failures.seen(self, self._failed_count, self._round)
            self._failed_count = 0


class Failures:
    """Counts the messages of a producer that have failed, until they were told."""

    def __init__(self) -> None:
        self.round = 0
        """Grows each time that the unseen ones were told."""
        self._taken_count = 0
        self._unseen_count = 0
        self._first: dict[PublishFuture[Any], PartqError] = {}
        """The first unseen ones."""
        self._latest: PartqError | None = None
        self._untold_count = 0
        self._untold: PartqError | None = None
        """The first error that the log does not have."""
        self._timer: asyncio.Handle | None = None
        self._tell_at = 0.0

    def taken(self, count: int) -> None:
        """Count messages that a producer has taken."""
        self._taken_count += count

    def add(
        self, future: PublishFuture[Any], error: PartqError, count: int, *, is_seen: bool
    ) -> None:
        """Count messages that have failed; those that nobody looks at are raised later."""
        self._tell_later(error, count)
        if is_seen:
            return
        self._unseen_count += count
        self._latest = error
        if len(self._first) < MAX_REMEMBERED:
            self._first[future] = error

    def seen(self, future: PublishFuture[Any], count: int, failed_in: int) -> None:
        """Note that somebody has looked at what has failed in a round."""
        if failed_in == self.round:  # else it was told already
            self._unseen_count -= count
            self._first.pop(future, None)

    def take_error(self) -> PartqError | None:
        """Return the error that says what nobody has looked at so far, once; None: nothing."""
        count, taken_count = self._unseen_count, max(self._taken_count, self._unseen_count)
        errors = [*self._first.values(), *filter(None, [self._latest])]
        self._unseen_count = self._taken_count = 0
        self.round += 1
        self._first.clear()
        self._latest = None
        if not count:
            return None
        first = errors[0]
        # Publishing again what may be stored makes a duplicate: that weighs more.
        kind = next((type(e) for e in errors if isinstance(e, OutcomeUnknownError)), type(first))
        fate = "may or may not be stored" if kind is OutcomeUnknownError else "were not stored"
        error = kind(
            f"{count} of {taken_count} messages {fate}, and nobody has looked at their futures; "
            f"the first: {first.message}",
            retry_after_s=first.retry_after_s,
        )
        error.__cause__ = first
        return error

    def tell(self) -> None:
        """Write what the log does not have yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        count, error = self._untold_count, self._untold
        self._untold_count, self._untold = 0, None
        if error is not None:
            log.error(
                "%s not stored, or with an unknown outcome; the first: %s: %s",
                counted(count, "message"),
                type(error).__name__,
                error.message,
            )
            self._tell_at = asyncio.get_running_loop().time() + TELL_S

    def _tell_later(self, error: PartqError, count: int) -> None:
        self._untold = self._untold or error
        self._untold_count += count
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._tell_at, loop.time()), self.tell)
