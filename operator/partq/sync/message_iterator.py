"""Iterating over messages, and acks, whose calls block: with one queue or several."""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Self, TypeVar

from partq.client.consume.deliveries import UNCHANGED, Batch, Delivery, Unchanged
from partq.client.consumer import Consumer
from partq.client.queues_consumer import QueuesConsumer
from partq.sync.client import SyncClient
from partq.sync.process_loop import LoopCall

C = TypeVar("C", bound=Consumer | QueuesConsumer)


class SyncMessageIterator(SyncClient[C]):
    """Hands out messages of an asynchronous consumer, and acknowledges them."""

    def leave(self) -> None:
        """Have the partitions handed over; iterating ends. A signal handler may call it."""
        self._portal.call_soon(self._inner.leave)

    def __iter__(self) -> Self:
        """Iterate over messages until the consumer has left."""
        return self

    def __next__(self) -> Delivery:
        """Wait for the next message; raises as iterating over a `partq.Consumer`."""

        async def handed_out() -> list[Delivery]:
            delivery = await anext(self._inner, None)
            return [] if delivery is None else [delivery]

        messages = self._handed_out(handed_out)
        if not messages:
            raise StopIteration
        return messages[0]

    def messages(self, *, timeout_s: float) -> Iterator[Delivery]:
        """Iterate over messages until none has come for `timeout_s` seconds, 0 to 86,400.

        It ends before that when the consumer has left.
        """

        async def handed_out() -> list[Delivery]:
            try:
                return await self._inner.getmany(1, timeout_s)
            except RuntimeError:
                if not self._inner.has_ended:
                    raise
                return []

        while True:
            messages = self._handed_out(handed_out)
            if not messages:
                return
            yield messages[0]

    def getmany(self, max_messages: int = 500, timeout_s: float = 1.0) -> list[Delivery]:
        """Return up to `max_messages` within `timeout_s`, as `partq.Consumer.getmany`.

        Raises: as that, and RuntimeError if the consumer was closed.
        """
        return self._handed_out(lambda: self._inner.getmany(max_messages, timeout_s))

    def batches(self, *, max_messages: int, max_wait_s: float = 1.0) -> Iterator[list[Delivery]]:
        """Iterate over lists of messages, as `partq.Consumer.batches`."""
        lists = self._inner.batches(max_messages=max_messages, max_wait_s=max_wait_s)

        async def handed_out() -> list[Delivery]:
            return await anext(lists, [])

        while True:
            messages = self._handed_out(handed_out)
            if not messages:
                return
            yield messages

    def run(self, callback: Callable[[Delivery], None], *, concurrency: int = 1) -> None:
        """Call `callback` in up to `concurrency` threads, as `partq.Consumer.run` does.

        Ctrl-C begins no other call, and is raised once the calls under way have ended; a second
        Ctrl-C is raised at once, and what these calls work on may then be redelivered.

        Raises: as that; TypeError for a coroutine function.
        """
        if inspect.iscoroutinefunction(callback):
            raise TypeError(
                f"run: got the coroutine function {callback!r}, expected a plain function, which "
                "is called in a thread"
            )
        made = self._portal.handout(
            lambda: self._inner.run(callback, concurrency=concurrency, in_thread=True),
            lambda _: None,
        )
        try:
            made.result()
        except BaseException:
            made.interrupt()
            made.wait_ended()
            raise

    def _handed_out(self, call: Callable[[], Awaitable[list[Delivery]]]) -> list[Delivery]:
        """Return the messages that a call takes."""
        made = self._handout(call)
        try:
            return made.result()
        except BaseException:
            made.interrupt()
            raise

    def _handout(self, call: Callable[[], Awaitable[list[Delivery]]]) -> LoopCall[list[Delivery]]:
        """Return a call that takes messages, which an interrupt has held for the next one."""

        async def handed_out() -> list[Delivery]:
            messages = await call()
            self._inner.may_put_back(messages)
            return messages

        return self._portal.handout(handed_out, self._inner.put_back)

    def ack(
        self,
        done: Delivery | Batch,
        *,
        confirmed: bool = False,
        state: bytes | Unchanged | None = UNCHANGED,
    ) -> None:
        """Acknowledge a message, as `partq.Consumer.ack`."""
        self._portal.run(lambda: self._inner.ack(done, confirmed=confirmed, state=state))

    def ack_cumulative(self, done: Delivery | Batch, *, confirmed: bool = False) -> None:
        """Acknowledge everything of the partition up to and with a message."""
        self._portal.run(lambda: self._inner.ack_cumulative(done, confirmed=confirmed))

    def nack(
        self, failed: Delivery | Batch, *, delay_s: float | None = None, reason: str = ""
    ) -> None:
        """Give a message back, as `partq.Consumer.nack`."""
        self._portal.run(lambda: self._inner.nack(failed, delay_s=delay_s, reason=reason))

    def dead_letter(
        self, failed: Delivery | Batch, *, reason: str = "", description: str = ""
    ) -> None:
        """Make a dead letter of a message, as `partq.Consumer.dead_letter`."""
        self._portal.run(
            lambda: self._inner.dead_letter(failed, reason=reason, description=description)
        )

    def state(self, message: Delivery) -> bytes | None:
        """Return the state of the key of a message, as `partq.Consumer.state`."""
        return self._portal.run(lambda: self._inner.state(message))

    def in_progress(self, begun: Delivery | Batch) -> None:
        """Have the ack timeout of a message start again, as `partq.Consumer.in_progress`."""
        self._portal.run(lambda: self._inner.in_progress(begun))

    def flush(self) -> None:
        """Wait until every ack is stored; raises as `partq.Consumer.flush`."""
        self._portal.run(self._inner.flush)
