"""Calling an application's handler with several messages at once, each key in its order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from partq.aio import TaskSet
from partq.client.consume.deliveries import Delivery
from partq.client.handout.caller import Caller
from partq.client.handout.held_messages import HeldMessages, MessageKey, key_of

log = logging.getLogger("partq.client")

MAX_CONCURRENCY = 1_000
"""The most calls at once; each is a task, and in a thread a thread."""
LOOKAHEAD = 4
"""Messages that may wait because their key is busy, for each call that may be under way."""
MAX_HELD = 1_000
"""The most messages that wait because their key is busy, whatever the concurrency."""

Until = Callable[[Callable[[], bool | None]], Awaitable[bool | None]]
"""Tries something at each change of the consumer until it returns what is not None."""


class ConcurrentRun:
    """Calls a handler with up to `concurrency` messages at once, never two of one key.

    Args:
        take: returns the next message that is ready; None: no message is ready.
        until: waits for changes of the consumer.
        changed: tells the consumer that a call has ended.
        succeeded: called with each message whose call has returned.
        handed_out: called with each message before its call.
    """

    def __init__(
        self,
        call: Caller,
        *,
        concurrency: int,
        held: HeldMessages,
        take: Callable[[], Delivery | None],
        until: Until,
        changed: Callable[[], None],
        succeeded: Callable[[Delivery], None],
        handed_out: Callable[[Delivery], None],
    ) -> None:
        self._call = call
        self._concurrency = concurrency
        self._max_held = min(LOOKAHEAD * concurrency, MAX_HELD)
        self._held = held
        self._take = take
        self._until = until
        self._changed = changed
        self._succeeded = succeeded
        self._handed_out = handed_out
        self._calls = TaskSet()
        self._under_way = 0
        """Calls that have not ended. When a task reports its end, `_calls` still has it."""
        self._busy: set[MessageKey] = set()
        self._failed: BaseException | None = None

    async def run(self) -> None:
        """Call until the consumer has left, or a call has failed; raise what it has raised.

        Calls under way are waited for; those of a run that is cancelled are cancelled.
        """
        try:
            try:
                await self._until(self._begin_ready)
            except Exception:
                await self._calls_ended()
                raise
            await self._calls_ended()
        finally:
            await self._calls.close()
        if self._failed is not None:
            raise self._failed

    def _begin_ready(self) -> bool | None:
        """Begin what may begin; True: a call has failed, so nothing does."""
        while self._failed is None:
            if self._under_way >= self._concurrency:
                return None
            delivery = self._held.take(self._busy)
            if delivery is not None:
                self._begin(delivery)
                continue
            if self._held.unpaused_count() >= self._max_held:
                return None
            if (taken := self._take()) is None:
                return None
            self._held.add(taken)
        return True

    def _begin(self, delivery: Delivery) -> None:
        key = key_of(delivery)
        if key is not None:
            self._busy.add(key)
        self._handed_out(delivery)
        self._under_way += 1
        self._calls.start(self._handle(delivery, key), "partq-call")

    async def _calls_ended(self) -> None:
        while calls := list(self._calls):
            await asyncio.wait(calls)

    async def _handle(self, delivery: Delivery, key: MessageKey | None) -> None:
        try:
            await self._call(delivery)
            self._succeeded(delivery)
        except (asyncio.CancelledError, KeyboardInterrupt) as error:
            self._failed = self._failed or error
            raise
        except BaseException as error:  # `run` raises it, SystemExit too
            if self._failed is None:
                self._failed = error
            else:
                log.error("%r: the handler has failed, too", delivery, exc_info=error)
        finally:
            if key is not None:
                self._busy.discard(key)
            self._under_way -= 1
            self._changed()
