"""Ends the life of messages that are older than their queue allows, unless they are in flight."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice, starmap

from partq.aio import UntilAnswered
from partq.broker.config import QueueConfig, dead_letters_of
from partq.broker.dead_letters.forwarder import MOVES_AT_ONCE, DeadLetterForwarder
from partq.broker.delivery.cursor_writer import CursorWriter
from partq.broker.ownership.server_looks import ServerLooks, Spawn
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.owned_partition import OwnedPartition
from partq.broker.retention.store_clocks import StoreClocks
from partq.core.clocks.time_to_live import is_over
from partq.core.dead_letters import DeadLetterReason
from partq.core.model import PartitionId
from partq.errors import PartqError
from partq.metrics import BrokerMetrics
from partq.store.connection import Store
from partq.store.records.log import Entry, Log
from partq.store.retries import READ_RETRY_S

_log = logging.getLogger(__name__)


class Expiry:
    """Looks at what has outlived its time to live.

    The queue's counts for all messages: what is over lies at the front of a partition, and is
    looked at from time to time. A batch's own time ends anywhere: it is judged when it is about to
    be delivered.
    """

    def __init__(
        self,
        owned: Mapping[PartitionId, OwnedPartition],
        store: Store,
        log: Log,
        *,
        config: Callable[[], QueueConfig],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        letter_forwarder: DeadLetterForwarder,
        cursor_writer: CursorWriter,
        spawn: Spawn,
        metrics: BrokerMetrics,
    ) -> None:
        self._looks = ServerLooks("expiry", owned, log, spawn)
        self.clocks = StoreClocks(
            store,
            log,
            owned=owned.keys,
            clock=clock,
            wall_clock=wall_clock,
            metrics=metrics,
        )
        self._config = config
        self._clock = clock
        self._letter_forwarder = letter_forwarder
        self._cursor_writer = cursor_writer
        self._spawn = spawn
        self._metrics = metrics
        self._waiting: dict[ConsumedPartition, None] = {}
        """Told when Redis's time is known."""
        self._until_answered = UntilAnswered(_log, READ_RETRY_S)
        self._without_rules: dict[ConsumedPartition, None] = {}
        """Told by the next look, which comes after the config was read again."""

    async def expire(self) -> None:
        """Look at every partition whose turn it is.

        Raises:
            StoreUnavailableError: no answer, or of a Redis Cluster a node is silent, and its
                partitions are looked at another time.
        """
        waiting, self._without_rules = self._without_rules, {}
        _notice(waiting)
        ttl_s = self._config().message_ttl_s
        if ttl_s is None and not self._config().retention_s and not self.clocks.is_known:
            return  # no message has shown a time to live here so far
        await self.clocks.observe()
        if ttl_s is None:
            return
        await self._looks.look(lambda partitions: self._look(partitions, ttl_s))

    async def _look(self, partitions: Sequence[OwnedPartition], ttl_s: float) -> None:
        for owned in partitions:
            if self.clocks.judged_ms(owned.id) is None:
                continue
            if owned.expired < owned.tail.end:
                found = await self.clocks.find_stored(owned.id, ttl_s, owned.expired_at)
                if found is not None:
                    owned.expired, owned.expired_at = found.first, found.at
            for consumed in list(owned.groups.values()):
                if self._expire(consumed, owned.expired):
                    consumed.wake()

    def must_wait(self, consumed: ConsumedPartition, entry: Entry) -> bool:
        """End the waiting messages of a batch whose own time is over, before it is delivered.

        Returns whether nothing of it may be sent for now: its messages become dead letters first,
        or Redis's time is not known yet, or whether the group wants dead letters. The flow gets a
        notice then.
        """
        start, stop = entry.first, entry.first + entry.count
        now, watch = self._clock(), self.clocks.find(consumed.partition)
        now_ms = None if watch is None else watch.estimate_ms(now)
        if watch is None or now_ms is None:
            if not self._waiting:
                self._spawn(self._learn_time(), "expiry: time of Redis")
            self._waiting[consumed] = None
            return True
        if watch.is_suspended(now) or not is_over(entry.at_ms, entry.ttl_ms, now_ms):
            return False
        if not self._has_rules(consumed):
            self._without_rules[consumed] = None
            return True
        self._expire(consumed.root, stop, start=start)
        return bool(consumed.book.unsent(start, stop))

    async def _learn_time(self) -> None:
        while self._waiting:
            failure: PartqError | None = None
            try:
                await self.clocks.observe()
            except PartqError as error:
                failure = error
            else:
                self._until_answered.answered("the time of Redis is known again")
            waiting, self._waiting = self._waiting, {}
            for consumed in waiting:
                if self.clocks.find(consumed.partition) is None and not consumed.root.is_dropped:
                    self._waiting[consumed] = None
            _notice(waiting.keys() - self._waiting.keys())
            if not self._waiting:
                return
            if failure is None:
                await asyncio.sleep(READ_RETRY_S)
            else:
                await self._until_answered.failed(
                    "the time of Redis is unknown, messages with a time to live wait: %s", failure
                )

    def _has_rules(self, consumed: ConsumedPartition) -> bool:
        """Whether it is known if the group wants what expires as dead letters.

        The queue names a group before its config is stored, or after it is gone.
        """
        return consumed.group in self._config().dead_letters

    def _expire(self, consumed: ConsumedPartition, stop: int, *, start: int = 0) -> bool:
        """End what waits to be sent in [start, stop); return whether some of it was dropped."""
        book = consumed.book
        if consumed.is_dropped or consumed.is_held or not self._has_rules(consumed):
            return False
        ranges = book.unsent(start, min(stop, book.reach))
        if not ranges:
            return False
        if dead_letters_of(self._config(), consumed.group).takes_expired:
            room = consumed.outbox.room - len(consumed.outbox.scheduled)
            limit = max(0, min(room, MOVES_AT_ONCE))
            first = islice(chain.from_iterable(starmap(range, ranges)), limit)
            self._letter_forwarder.schedule(consumed, list(first), DeadLetterReason.EXPIRED)
            return False
        expired = sum(high - low for low, high in ranges)
        if consumed.audit_writer is not None:
            consumed.flush_records.note("expired", consumed, None, ranges)
        book.discard(ranges)
        consumed.missing = ""  # what was may have expired; else it is missed again
        self._metrics.expired(consumed.group, expired)
        self._cursor_writer.notice(consumed)
        return True


def _notice(waiting: Iterable[ConsumedPartition]) -> None:
    """Have flows look again at what waited."""
    for consumed in waiting:
        consumed.wake()
