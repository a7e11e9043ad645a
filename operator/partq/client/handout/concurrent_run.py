"""Calling an application's handler with several messages at once, each key in its order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from partq.aio import TaskSet
from partq.client.consume.ack_target import AckTarget
from partq.client.consume.deliveries import Delivery
from partq.client.handout.caller import Caller
from partq.client.handout.held_messages import HeldMessages

log = logging.getLogger("partq.client")

MAX_CONCURRENCY = 1_000
"""The most calls at once; each is a task, and in a thread a thread."""
LOOKAHEAD = 4
"""Messages of a partition that may wait for their keys, for each call that may be under way."""
MAX_HELD_OF_PARTITION = 1_000
"""The most messages of a partition that wait for their keys, whatever the concurrency."""
MAX_HELD_BYTES_OF_PARTITION = 16 * 1024 * 1024
"""So many bytes of a partition wait for their keys, and the rest of the last message."""
MAX_HELD = 4 * MAX_HELD_OF_PARTITION
"""The most messages that wait for their keys: a few partitions hold up no other."""
MAX_HELD_BYTES = 4 * MAX_HELD_BYTES_OF_PARTITION
"""So many bytes wait for their keys, and the rest of the last message."""

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
        self._max_held_of_partition = min(LOOKAHEAD * concurrency, MAX_HELD_OF_PARTITION)
        self._held = held
        self._take = take
        self._until = until
        self._changed = changed
        self._succeeded = succeeded
        self._handed_out = handed_out
        self._calls = TaskSet()
        self._under_way = 0
        """Calls that have not ended. When a task reports its end, `_calls` still has it."""
        self._full: set[AckTarget] = set()
        """Partitions of which no further message is taken, for now."""
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
            self._held.end_all()
            for target in self._full:
                target.set_full(False)
        if self._failed is not None:
            raise self._failed

    def _begin_ready(self) -> bool | None:
        """Begin what may begin; True: a call has failed, so nothing does."""
        while self._failed is None:
            if self._under_way >= self._concurrency:
                return None
            delivery = self._held.begin()
            if delivery is not None:
                self._begin(delivery)
                continue
            if self._held.unpaused_count() >= MAX_HELD:
                return None
            if self._held.unpaused_bytes() >= MAX_HELD_BYTES:
                return None
            self._refill()
            if (taken := self._take()) is None:
                return None
            self._hold(taken)
        return True

    def _hold(self, delivery: Delivery) -> None:
        self._held.add(delivery)
        target = delivery.batch.target
        count, size_bytes = self._held.count_of(target)
        if count >= self._max_held_of_partition or size_bytes >= MAX_HELD_BYTES_OF_PARTITION:
            # Else one key with slow calls would fill all room, and hold up the other partitions.
            target.set_full(True)
            self._full.add(target)

    def _refill(self) -> None:
        """Take messages again of the partitions of which half has begun."""
        for target in list(self._full):
            count, size_bytes = self._held.count_of(target)
            if (
                count * 2 <= self._max_held_of_partition
                and size_bytes * 2 <= MAX_HELD_BYTES_OF_PARTITION
            ):
                self._full.discard(target)
                target.set_full(False)

    def _begin(self, delivery: Delivery) -> None:
        self._handed_out(delivery)
        self._under_way += 1
        self._calls.start(self._handle(delivery), "partq-call")

    async def _calls_ended(self) -> None:
        while calls := list(self._calls):
            await asyncio.wait(calls)

    async def _handle(self, delivery: Delivery) -> None:
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
            self._held.end(delivery)
            self._under_way -= 1
            self._changed()
