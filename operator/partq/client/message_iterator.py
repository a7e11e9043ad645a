"""Iterating over messages or batches, and a callback for each: with one queue or several."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic, Self, TypeVar, overload

from partq.client import arguments
from partq.client.consume.acknowledger import Acknowledger
from partq.client.consume.assignment.delivered_window import DeliveredWindow
from partq.client.consume.deliveries import Batch, Delivery
from partq.client.handout.caller import Caller
from partq.client.handout.concurrent_run import MAX_CONCURRENCY, ConcurrentRun
from partq.client.handout.held_messages import HeldMessages
from partq.client.handout.interceptors import ConsumerInterceptor, ConsumerInterceptors
from partq.client.handout.uses import HandoutUses
from partq.client.hooks.interceptor_calls import checked_interceptors
from partq.core.model import PartitionId
from partq.errors import SettingsError

T = TypeVar("T")

MAX_MANY = 10_000
"""The most messages that one call gathers."""
MAX_GATHERED = 2 * MAX_MANY
"""The most messages that are held for lists, with those of partitions that have to wait."""
MAX_TURN_S = 0.01
"""How long messages are handed out before the event loop gets a turn, for acks and pings."""
LEFT_BEFORE_ENTERING = (
    "is told to leave before it was entered: entering it will open nothing, and iterating over it "
    "ends at once"
)
"""What the log says of a consumer that was made, and will do nothing."""


class MessageIterator(Acknowledger):
    """Hands out messages one by one, in batches or to a callback: a part of the consumers."""

    def __init__(self, *, auto_ack: bool, interceptors: Sequence[ConsumerInterceptor] = ()) -> None:
        self._interceptors = ConsumerInterceptors(
            checked_interceptors(interceptors, ConsumerInterceptor)
        )
        has_some = bool(self._interceptors)
        super().__init__(
            self._interceptors.acked if has_some else None,
            self._interceptors.nacked if has_some else None,
        )
        self._auto_ack = auto_ack
        self._wake = asyncio.Event()
        self._held = HeldMessages()
        self._uses = HandoutUses()
        self._turn_ends_at = 0.0

    @abstractmethod
    async def _until(self, attempt: Callable[[], T | None]) -> T | None:
        """Try something at each change until it returns something; None when all has left."""

    @abstractmethod
    def _take(self, take: Callable[[DeliveredWindow], T]) -> T | None:
        """Return the next message or batch that is ready; None: nothing is."""

    def __aiter__(self) -> Self:
        """Iterate over messages, until the consumer has left; a closed one returns no message."""
        return self

    async def __anext__(self) -> Delivery:
        """Return the next message.

        Raises:
            RuntimeError: a `run` is under way.
            Exception: what has stopped the consumer, or a part of it.
        """
        with self._uses.iterating:
            delivery = await self._next_message()
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    async def _next_message(self) -> Delivery | None:
        self._ack_current()
        delivery = await self._until(self._take_one)
        self._current = () if delivery is None else (delivery,)
        if delivery is not None and self._interceptors:
            self._interceptors.consumed(self._current)
        return delivery

    async def getmany(self, max_messages: int = 500, timeout_s: float = 1.0) -> list[Delivery]:
        """Return up to `max_messages`, as soon as they are here, after `timeout_s` at the latest.

        An empty list: none came in that time. A call that is cancelled loses no message: the next
        call or loop hands them out.

        Args:
            max_messages: 1 to 10,000.
            timeout_s: seconds to wait for that many, 0 to 86,400; 0: only what is ready.

        Raises:
            SettingsError: one of them is out of range.
            RuntimeError: a `run` is under way; or the consumer has left or was closed, and nothing
                is left to hand out: end the loop.
            Exception: as iterating, what has stopped the consumer or a part.
        """
        max_messages = arguments.whole("max_messages", max_messages, 1, MAX_MANY)
        arguments.check_range("timeout_s", timeout_s, 0, arguments.MAX_TIME_S)
        self._entered_loop.check_not_closed()
        with self._uses.getmany:
            self._ack_current()
            messages = await self._gathered(max_messages, timeout_s)
        if messages is None:
            raise RuntimeError(
                "getmany: the consumer has left, and nothing is left to hand out: end the loop; "
                "batches(max_messages=) ends by itself"
            )
        return messages

    @overload
    def batches(self) -> AsyncIterator[Batch]: ...

    @overload
    def batches(
        self, *, max_messages: int, max_wait_s: float = ...
    ) -> AsyncIterator[list[Delivery]]: ...

    def batches(
        self, *, max_messages: int | None = None, max_wait_s: float = 1.0
    ) -> AsyncIterator[Batch] | AsyncIterator[list[Delivery]]:
        """Iterate over batches as they were stored: faster, as no object is made for each message.

        With `max_messages`: over lists of up to that many messages, from any batches. A list has at
        least one, and is handed out `max_wait_s` after its first message at the latest. An
        `anext` that is cancelled loses no message, and the iterator continues.

        Args:
            max_messages: of a list, 1 to 10,000; None: batches.
            max_wait_s: seconds, 0 to 86,400.

        Raises:
            SettingsError: one of them is out of range.
            RuntimeError: when it is iterated over: a `run` is under way.
        """
        if max_messages is None:
            return _Repeated(self._next_batch)
        most = arguments.whole("max_messages", max_messages, 1, MAX_MANY)
        arguments.check_range("max_wait_s", max_wait_s, 0, arguments.MAX_TIME_S)
        return _Repeated(lambda: self._next_list(most, max_wait_s))

    async def run(
        self,
        callback: Callable[[Delivery], Awaitable[None] | None],
        *,
        concurrency: int = 1,
        in_thread: bool = False,
    ) -> None:
        """Call `callback` with one message after another until the consumer has left.

        With `auto_ack` a message is acknowledged when the callback returns; without, by the
        callback. What it raises ends the run, and the message is not acknowledged.

        With `concurrency` above 1, that many calls are made at once, but never two with messages of
        one key: these keep their order. Messages without a key wait for no other one. When a call
        raises, no other begins, those under way are waited for, and then the error is raised.
        Each message is acknowledged by itself, so the cursor passes none that is not done.

        Args:
            callback: a function or a coroutine function.
            concurrency: calls at once, 1 to 1,000. Up to four messages for each, 1,000 at most, are
                taken and wait because their key is busy; a handoff waits for them, too.
            in_thread: call it in separate threads, one for each call at once, so that it may block:
                for a function that is no coroutine. With it use `auto_ack`, or
                `asyncio.run_coroutine_threadsafe(consumer.ack(message), loop)`. When the run is
                cancelled, the calls under way are waited for, and count.

        Raises:
            TypeError: no function, or one that does not take a message; no bool, or a coroutine
                function in a thread. Nothing was taken.
            SettingsError: `concurrency` is no whole number, or out of range; nothing was taken.
            RuntimeError: another run, or a call that waits for messages, is under way, and while
                this one is, these calls are refused; or the consumer was closed. Nothing was taken.
        """
        self._entered_loop.check_not_closed()
        concurrency = arguments.whole("run: concurrency", concurrency, 1, MAX_CONCURRENCY)
        try:
            arguments.check_functions({"callback": callback})
        except SettingsError as error:
            raise TypeError(f"run: {error}") from None
        with (
            self._uses,
            Caller(
                callback,
                in_thread=in_thread,
                max_threads=concurrency,
                ended_late=self._succeeded,
                processing=self._interceptors.processing if self._interceptors else None,
            ) as call,
        ):
            if concurrency > 1:
                await self._run_several(call, concurrency)
                return
            while (delivery := await self._next_message()) is not None:
                try:
                    await call(delivery)
                except BaseException:
                    self._current = ()
                    raise

    async def _run_several(self, call: Caller, concurrency: int) -> None:
        self._ack_current()
        await ConcurrentRun(
            call,
            concurrency=concurrency,
            held=self._held,
            take=lambda: self._take(DeliveredWindow.take_one),
            until=self._until,
            changed=lambda: self._wake.set(),  # read at each call: `share_wake` replaces the event
            succeeded=self._succeeded,
            handed_out=lambda each: self._interceptors.consumed((each,)),
        ).run()

    def _succeeded(self, delivery: Delivery) -> None:
        batch = delivery.batch
        if self._auto_ack and not batch.is_finished(delivery.offset) and not batch.is_sought:
            self.ack_nowait(delivery)

    def _ack_current(self) -> None:
        current, self._current = self._current, ()
        if self._auto_ack:
            for done in current:
                if isinstance(done, Delivery):
                    self._succeeded(done)
                elif not done.is_sought:
                    self.ack_nowait(done)

    async def _next_batch(self) -> Batch | None:
        with self._uses.batches:
            self._ack_current()
            batch = await self._until(self._take_next_batch)
            self._current = () if batch is None else (batch,)
            if batch is not None and self._interceptors:
                self._interceptors.consumed(batch.deliveries())
            return batch

    async def _next_list(self, max_messages: int, max_wait_s: float) -> list[Delivery] | None:
        with self._uses.batches:
            self._ack_current()
            while await self._until(lambda: self._gather(1)):
                # What was gathered may be redelivered meanwhile.
                if messages := await self._gathered(max_messages, max_wait_s):
                    return messages
            return None

    async def _gathered(self, max_messages: int, timeout_s: float) -> list[Delivery] | None:
        """Return what comes within a time; None: the consumer has left, and nothing comes."""
        has_left = False
        try:
            async with asyncio.timeout(timeout_s):
                has_left = await self._until(lambda: self._gather(max_messages)) is None
        except TimeoutError:
            self._gather(max_messages)  # without a time to wait it may not have been called
        if has_left and not self._held.ready_count():
            return None
        self._current = messages = self._held.take_many(max_messages)
        if self._interceptors:
            self._interceptors.consumed(messages)
        return messages

    def _gather(self, count: int) -> bool | None:
        """Hold so many messages; True: they are here. A call that is cancelled leaves them held."""
        missing = count - self._held.ready_count()
        while missing > 0:
            if self._held.unpaused_count() >= MAX_GATHERED:
                return None
            taken = self._take(DeliveredWindow.take_one)
            if taken is None:
                return None
            self._held.add(taken)
            missing -= 1
        return True

    async def _yield_turn(self) -> None:
        """Let others run now and then: an application that waits for nothing sends no ack."""
        time = asyncio.get_running_loop().time
        if time() >= self._turn_ends_at:
            await asyncio.sleep(0)
            self._turn_ends_at = time() + MAX_TURN_S

    def may_put_back(self, messages: list[Delivery]) -> None:
        """Note that messages are handed out in this turn of the loop and may be taken back."""
        self._held.may_put_back(messages)

    def put_back(self, messages: list[Delivery]) -> None:
        """Hold messages again that were handed out last and never seen."""
        if self._auto_ack and list(self._current) != messages:
            return  # a call of another thread has acknowledged them
        self._current = ()
        self._held.put_back(messages)
        self._wake.set()

    def _take_one(self) -> Delivery | None:
        # What a run has left comes first: it was taken before what is ready.
        return self._held.take() or self._take(DeliveredWindow.take_one)

    def _held_or(self, partition: PartitionId, ready: Callable[[], Batch | None]) -> Batch | None:
        """Return what an ended call has left of a partition, which is before what is ready."""
        if not self._held.has_of(partition):
            return ready()
        held = self._held.pop_of(partition)
        return None if held is None else held.alone()

    def _take_next_batch(self) -> Batch | None:
        left = self._held.take()
        return left.alone() if left is not None else self._take(DeliveredWindow.take_all)


class _Repeated(Generic[T]):
    """Iterates over what a call returns until it is None; a call may be cancelled."""

    def __init__(self, call: Callable[[], Awaitable[T | None]]) -> None:
        self._call = call

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        result = await self._call()
        if result is None:
            raise StopAsyncIteration
        return result
