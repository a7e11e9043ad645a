"""Consuming several queues as one: a consumer for each, which take turns."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Self, TypeVar

from partq.aio import TaskSet, cancel_and_wait
from partq.client import arguments
from partq.client.consume.assignment.delivered_window import DeliveredWindow
from partq.client.consume.callbacks import Callbacks
from partq.client.consume.credit import CREDIT_BYTES
from partq.client.consume.process import stop_signals
from partq.client.consumer import LAST_ACKS_S, Consumer
from partq.client.consumer_stats import ConsumerStats
from partq.client.handout.interceptors import ConsumerInterceptor
from partq.client.hooks.serializers import ValueDeserializer
from partq.client.message_iterator import LEFT_BEFORE_ENTERING, MessageIterator
from partq.client.partition_calls import check_collection_of
from partq.client.partition_key import PartitionKey
from partq.client.queues.queue_choice import MAX_QUEUES, QUEUE_PLACE, checked_group, queue_choice
from partq.client.queues.queue_finder import Find, QueueFinder
from partq.client.transport.options import ConnectionOptions
from partq.core.model import Cause, Offset, PartitionId
from partq.errors import FencedError, PartqError, SettingsError
from partq.excerpts import some_of

log = logging.getLogger("partq.client")

T = TypeVar("T")
"""Says which queues are there, and where; a function or a coroutine function."""


class QueuesConsumer(MessageIterator):
    """A member of a group in each of several queues.

    ```python
    async with QueuesConsumer(pattern="orders-.*", group="{queue}-workers",
                              find=queues_in_directory("/etc/partq/queues")) as consumer:
        async for message in consumer:
            handle(message.queue, message.value)
            await consumer.ack(message)
    ```

    It opens a `Consumer` for each queue. Those that have messages take turns, batch by batch, and
    each queue keeps its own order; nothing is promised between queues. Queues that appear are
    opened while it runs; one that `find` names no more is left, as by `Consumer.leave`.

    Args:
        queues: their names; those that are not there yet are waited for. None: by `pattern`.
        pattern: a regular expression that the whole name of a queue fits. None: by `queues`.
        find: says which queues are there: a function or coroutine function without arguments, which
            returns `ConnectionOptions`. `queues_in_directory` makes one.
        group: name of the consumer group; `{queue}` in it stands for the name of the queue, as the
            groups of one namespace have different names.
        find_every_s: seconds between two calls of `find`, 0.05 to 86,400. A call that fails is
            logged, and changes nothing; the first one is raised.
        max_queues: the most queues that are consumed, 1 to 1,000, by their names in order; the log
            names others. Each has its own connections and its own `credit`.
        member: name in the groups, as of `Consumer`.
        on_assigned: called with a `PartitionKey` before its first message.
        on_revoked: called with a `PartitionKey` and the cause.
        on_lanes: called with a `PartitionKey` and the slots that this member has of it, in groups
            of type KeyShared, as of `Consumer`.
        on_error: called with an error that stops only a part: as of `Consumer`, or that a queue
            cannot be consumed, which is tried again at the next call of `find`. None: iterating
            raises it, once, and can be started again.
        value_deserializer: makes the `value` of each message, as of `Consumer`.
        interceptors: see messages, as of `Consumer`.
        auto_ack: acknowledge what was handed out when the next is asked for.
        credit: messages to hold ready per broker of each queue, as of `Consumer`.
        credit_bytes: bytes of batches to hold ready per broker of each queue.
        handle_signals: SIGTERM and Ctrl-C mean `leave`, as of `Consumer`.
        leave_timeout_s: seconds that leaving waits for the partitions to be taken over.
        connect_timeout_s: seconds that a queue which was found is waited for.
        max_processing_s: seconds that the event loop may stand still, as of `Consumer`.

    Raises:
        SettingsError: an argument is of a wrong type or out of range; names it.
    """

    def __init__(
        self,
        *,
        find: Find,
        group: str,
        queues: Sequence[str] | None = None,
        pattern: str | None = None,
        find_every_s: float = 60.0,
        max_queues: int = 100,
        member: str | None = None,
        on_assigned: Callable[[PartitionKey], object] | None = None,
        on_revoked: Callable[[PartitionKey, Cause], object] | None = None,
        on_lanes: Callable[[PartitionKey, list[tuple[int, int]]], object] | None = None,
        on_error: Callable[[PartqError], object] | None = None,
        value_deserializer: ValueDeserializer | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        auto_ack: bool = False,
        credit: int = 10_000,
        credit_bytes: int = CREDIT_BYTES,
        handle_signals: bool = True,
        leave_timeout_s: float = 25.0,
        connect_timeout_s: float = 30.0,
        max_processing_s: float = 300.0,
    ) -> None:
        super().__init__(auto_ack=auto_ack, interceptors=interceptors)
        is_wanted = queue_choice(queues, pattern)
        arguments.check_range("find_every_s", find_every_s, 0.05, arguments.MAX_TIME_S)
        arguments.check_functions(
            {
                "find": find,
                "on_assigned": on_assigned,
                "on_revoked": on_revoked,
                "on_lanes": on_lanes,
            }
        )
        if find is None:
            raise SettingsError("find: got None, expected a function that returns the queues")
        self._group = checked_group(group)
        self._find_every_s = find_every_s
        most = arguments.whole("max_queues", max_queues, 1, MAX_QUEUES)
        self._finder = QueueFinder(find, is_wanted, max_queues=most)
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lanes = on_lanes
        self._on_error = on_error
        self._callbacks = Callbacks(partial(self._keep, "on_error"))
        self._handle_signals = handle_signals
        self._leave_timeout_s = leave_timeout_s
        self._consumer_of: Callable[..., Consumer] = partial(
            Consumer,
            member=member,
            on_error=on_error,
            value_deserializer=value_deserializer,
            auto_ack=auto_ack,
            credit=credit,
            credit_bytes=credit_bytes,
            handle_signals=handle_signals,
            leave_timeout_s=leave_timeout_s,
            connect_timeout_s=connect_timeout_s,
            max_processing_s=max_processing_s,
        )
        # One that is thrown away: what it refuses is refused now, not once a queue is found.
        self._make(ConnectionOptions("http://127.0.0.1:1", "queue"))
        self._known: dict[str, ConnectionOptions] = {}
        """Of each queue that is consumed or opened."""
        self._consumers: dict[str, Consumer] = {}
        self._turns: deque[Consumer] = deque()
        self._work = TaskSet()
        """Consumers that are opened and closed, one task for each queue at a time."""
        self._busy: set[str] = set()
        self._opening: dict[str, Consumer] = {}
        self._untold: dict[str, Exception] = {}
        """Of each queue one error that nobody has been told, and of `on_error`."""
        self._finding: asyncio.Task[None] | None = None
        self._is_leaving = False
        self._is_finished = False

    # ---- open and close ----

    async def __aenter__(self) -> Self:
        """Ask for the queues once, and begin to open a consumer for each that is wanted.

        Raises:
            Exception: what `find` raises.
            RuntimeError: it was entered before.
        """
        self._entered_loop.enter()
        found = await self._finder.find()
        if self._handle_signals:
            stop_signals.add(self.leave)
        if not self._is_leaving:
            self._follow(found)
            self._finding = asyncio.create_task(self._find_again(), name="partq-queues")
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Leave the groups and close; raises as `close`, unless an exception leaves the block."""
        await self._close()
        if error is None:
            self._raise_untold()

    async def close(self) -> None:
        """Leave every group, wait for the handovers (at most `leave_timeout_s`), and close.

        Raises: as `Consumer.close`, the first error of all.
        """
        await self._close()
        self._raise_untold()

    def leave(self) -> None:
        """Have the partitions of all queues handed over, because the process is ending.

        As `Consumer.leave`: messages continue meanwhile, and iterating ends once others have all.
        """
        self._entered_loop.check()
        if self._is_leaving:
            return
        self._is_leaving = True
        if not self._entered_loop.is_entered:
            log.warning("the consumer of group %s %s", self._group, LEFT_BEFORE_ENTERING)
        if self._finding is not None:
            self._finding.cancel()
        for consumer in (*self._turns, *self._opening.values()):
            consumer.leave()
        self._wake.set()

    @property
    def queues(self) -> frozenset[str]:
        """The queues that are consumed now."""
        return frozenset(self._consumers)

    @property
    def partitions(self) -> frozenset[PartitionKey]:
        """The partitions of all queues that this member holds now."""
        return frozenset(
            PartitionKey(queue, partition)
            for queue, consumer in self._consumers.items()
            for partition in consumer.partitions
        )

    def pause(self, partitions: Collection[PartitionKey]) -> None:
        """Have no message of these partitions handed out until `resume`, as `Consumer.pause`.

        Raises: as that; nothing was paused.
        """
        self._entered_loop.check_not_closed()
        check_collection_of(PartitionKey, "pause", partitions)
        held = self.partitions
        if missing := [str(each) for each in partitions if each not in held]:
            raise FencedError(
                f"pause: got {some_of(missing)}, expected partitions that this consumer has; "
                "nothing was paused: pause where it is assigned"
            )
        for key in partitions:
            self._consumers[key.queue].pause([key.partition])

    def resume(self, partitions: Collection[PartitionKey]) -> None:
        """Hand out messages of these partitions again, as `Consumer.resume`."""
        self._entered_loop.check()
        check_collection_of(PartitionKey, "resume", partitions)
        held = self.partitions
        for key in partitions:
            if key in held:
                self._consumers[key.queue].resume([key.partition])

    def paused(self) -> frozenset[PartitionKey]:
        """Return the partitions of all queues that this member holds and has paused."""
        return frozenset(
            PartitionKey(queue, partition)
            for queue, consumer in self._consumers.items()
            for partition in consumer.paused()
        )

    def position(self, key: PartitionKey) -> Offset:
        """Return the offset that is handed out next of a partition, as `Consumer.position`.

        Raises: as that.
        """
        self._entered_loop.check_not_closed()
        check_collection_of(PartitionKey, "position", [key])
        consumer = self._consumers.get(key.queue)
        if consumer is None or key.partition not in consumer.partitions:
            raise FencedError(
                f"position: got {key}, expected a partition that this consumer has, of "
                f"{some_of([str(each) for each in self.partitions])}"
            )
        taken = self._held.offsets_of(key.queue, key.partition)
        return Offset(min([consumer.position(key.partition), *taken]))

    async def end_offsets(self) -> dict[PartitionKey, int]:
        """Return the ends of all partitions that are held, as `Consumer.end_offsets`.

        Raises: as that, the first error of a queue.
        """
        return await self._of_each_queue(Consumer.end_offsets)

    async def lag(self) -> dict[PartitionKey, int]:
        """Return the lag of all partitions that are held, as `Consumer.lag`.

        Raises: as that, the first error of a queue.
        """
        return await self._of_each_queue(Consumer.lag)

    async def _of_each_queue(
        self, ask: Callable[[Consumer], Awaitable[dict[PartitionId, int]]]
    ) -> dict[PartitionKey, int]:
        self._entered_loop.check_not_closed()
        consumers = dict(self._consumers)
        answers = await asyncio.gather(*map(ask, consumers.values()))
        return {
            PartitionKey(queue, partition): found
            for queue, answer in zip(consumers, answers, strict=True)
            for partition, found in answer.items()
        }

    def stats(self) -> dict[str, ConsumerStats]:
        """Return what `Consumer.stats` says of each queue that is consumed now; raises as that."""
        return self._entered_loop.make(
            lambda: {queue: consumer.stats() for queue, consumer in self._consumers.items()}
        )

    def group_of(self, queue: str) -> str:
        """Return the name of the group in a queue."""
        return self._group.replace(QUEUE_PLACE, queue)

    # ---- inside ----

    async def _until(self, attempt: Callable[[], T | None]) -> T | None:
        self._entered_loop.check()
        if not self._entered_loop.is_entered:
            raise RuntimeError("the consumer is not open; use it inside `async with`")
        await self._yield_turn()
        while True:
            result = attempt()
            if result is not None:
                return result
            if self._untold:
                raise self._next_untold()
            if self.has_ended:
                return None
            self._wake.clear()
            await self._wake.wait()

    def _take(self, take: Callable[[DeliveredWindow], T]) -> T | None:
        if self._untold:
            raise self._next_untold()
        for _ in range(len(self._turns)):
            consumer = self._turns[0]
            self._turns.rotate(-1)
            try:
                taken = consumer.take_ready(take)
            except Exception as error:
                # A queue that cannot be consumed any more holds up no other one.
                if not consumer.has_ended:
                    raise
                self._report(self._queue_of(consumer), error, error)
                self._close_one(consumer)
                continue
            if taken is not None:
                return taken
        return None

    @property
    def has_ended(self) -> bool:
        """Whether it has left every group or was closed, and no further message comes."""
        return self._is_finished or (self._is_leaving and self._has_left())

    def _has_left(self) -> bool:
        return not self._busy and all(consumer.has_ended for consumer in self._turns)

    async def _find_again(self) -> None:
        while True:
            await asyncio.sleep(self._find_every_s)
            try:
                self._follow(await self._finder.find())
            except Exception as error:  # noqa: BLE001 - the application's, whatever it is
                log.warning("the queues could not be found, those known before are kept: %s", error)

    def _follow(self, found: dict[str, ConnectionOptions]) -> None:
        """Open consumers of new queues; close those of queues that are gone, or elsewhere."""
        for queue, consumer in list(self._consumers.items()):
            if found.get(queue) != self._known[queue]:
                log.info(
                    "queue %s is not there any more, or elsewhere: its consumer is closed", queue
                )
                self._close_one(consumer)
        for queue, options in found.items():
            if queue not in self._busy and queue not in self._consumers:
                self._busy.add(queue)
                self._known[queue] = options
                self._work.start(self._open_one(queue, options), f"partq-open-{queue}")

    async def _open_one(self, queue: str, options: ConnectionOptions) -> None:
        try:
            consumer = self._opening[queue] = self._make(options)
            consumer.share_wake(self._wake)
            if self._is_leaving:
                consumer.leave()  # entering waits for nothing then
            await consumer.__aenter__()
            self._consumers[queue] = consumer
            self._turns.append(consumer)
            if self._is_leaving:
                consumer.leave()
        except Exception as error:  # noqa: BLE001 - nobody else sees what this task raises
            self._report(queue, error, self._untold.get(queue, error))
        finally:
            self._opening.pop(queue, None)
            self._busy.discard(queue)
            self._wake.set()

    def _close_one(self, consumer: Consumer) -> None:
        self._turns.remove(consumer)
        queue = self._queue_of(consumer)
        del self._consumers[queue]
        self._busy.add(queue)
        self._work.start(self._end_one(queue, consumer), f"partq-close-{queue}")

    def _queue_of(self, consumer: Consumer) -> str:
        return next(name for name, each in self._consumers.items() if each is consumer)

    async def _end_one(self, queue: str, consumer: Consumer) -> None:
        try:
            await consumer.close()
        except Exception as error:  # noqa: BLE001 - of an ack, or of a callback
            self._report(queue, error, error)
        finally:
            self._busy.discard(queue)
            self._wake.set()

    def _make(self, options: ConnectionOptions) -> Consumer:
        assigned, revoked, lanes = self._on_assigned, self._on_revoked, self._on_lanes

        def on_assigned(partition: PartitionId) -> object:
            return assigned and assigned(PartitionKey(options.queue, partition))

        def on_revoked(partition: PartitionId, cause: Cause) -> object:
            return revoked and revoked(PartitionKey(options.queue, partition), cause)

        def on_lanes(partition: PartitionId, ranges: list[tuple[int, int]]) -> object:
            return lanes and lanes(PartitionKey(options.queue, partition), ranges)

        return self._consumer_of(
            **options.arguments(),
            group=self.group_of(options.queue),
            on_assigned=on_assigned if assigned is not None else None,
            on_revoked=on_revoked if revoked is not None else None,
            on_lanes=on_lanes if lanes is not None else None,
        )

    def _report(self, queue: str, error: Exception, kept: Exception) -> None:
        """Hand an error to `on_error`, or keep `kept` for the application: one for each queue.

        A queue that cannot be opened fails at each `find`: its first error is enough, and does not
        take the place of one that reports lost acks.
        """
        if self._on_error is not None and isinstance(error, PartqError):
            self._callbacks.call(None, partial(self._on_error, error))  # each failure is told
        else:
            self._keep(queue, kept)

    def _keep(self, name: str, error: Exception) -> None:
        self._untold[name] = error
        if len(self._untold) > MAX_QUEUES:  # of names that come and go
            del self._untold[next(iter(self._untold))]
        self._wake.set()

    def _next_untold(self) -> Exception:
        return self._untold.pop(next(iter(self._untold)))

    async def _close(self) -> None:
        self._entered_loop.check()
        if not self._entered_loop.is_entered:
            return
        self.leave()
        try:
            await cancel_and_wait(self._finding)
            if not stop_signals.is_interrupted():
                await self._answered(LAST_ACKS_S)
            for consumer in tuple(self._turns):
                self._close_one(consumer)
            while tasks := [*self._work]:
                await asyncio.wait(tasks)
                for consumer in tuple(self._turns):  # one that was being opened
                    self._close_one(consumer)
        finally:
            self._is_finished = True
            self._entered_loop.close()
            self._wake.set()
            stop_signals.remove(self.leave)
            await self._work.close()
            last_s = 0 if stop_signals.is_interrupted() else self._leave_timeout_s
            await self._callbacks.close(last_s)

    def _raise_untold(self) -> None:
        if self._untold:
            raise self._next_untold()
        self._acks.raise_error()
