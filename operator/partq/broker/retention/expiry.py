"""Ends the life of messages that are older than their queue allows, unless they are in flight."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from partq.broker.config import QueueConfig, dead_letters_of
from partq.broker.dead_letters.forwarder import MOVES_AT_ONCE, DeadLetterForwarder
from partq.broker.delivery.cursor_writer import CursorWriter
from partq.broker.partition.group_partition import ConsumedPartition
from partq.broker.partition.partition import OwnedPartition
from partq.broker.retention.store_clocks import StoreClocks
from partq.core.cursor.cursor import GroupCursor
from partq.core.dead_letters import DeadLetterReason
from partq.core.model import PartitionId
from partq.core.time_to_live import is_over
from partq.errors import PartqError, StoreUnavailableError
from partq.metrics import BrokerMetrics
from partq.store.connection import Store
from partq.store.records.log import Entry, Log

SHARE = 100
"""A partition is looked at so many times within a time to live."""
LONGEST_GAP_S = 60.0
RETRY_GAP_S = 0.1

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
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
        metrics: BrokerMetrics,
    ) -> None:
        self._owned = owned
        self._log = log
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
        self._without_rules: dict[ConsumedPartition, None] = {}
        """Told by the next look, which comes after the settings were read again."""

    async def expire(self) -> None:
        """Look at every partition whose turn it is.

        Raises:
            StoreUnavailableError: no answer, or of a Redis Cluster a node is silent, and its
                partitions are looked at another time.
        """
        waiting, self._without_rules = self._without_rules, {}
        _notice(waiting)
        ttl_s = self._config().message_ttl_s
        if ttl_s is None and not self.clocks.is_known:
            return  # no message has shown a time to live here so far
        await self.clocks.observe()
        if ttl_s is None:
            return
        gap_s = min(ttl_s / SHARE, LONGEST_GAP_S)
        silence: dict[str | None, StoreUnavailableError] = {}
        for owned in list(self._owned.values()):
            if (server := self._log.server_of(owned.id)) in silence:
                continue
            now, watch = self._clock(), self.clocks.find(owned.id)
            now_ms = None if watch is None or watch.is_suspended(now) else watch.estimate_ms(now)
            if now_ms is None:
                continue
            if now >= owned.expired_at + gap_s and owned.expired < owned.tail.end:
                # The time was judged before: a jump from here on changes nothing.
                oldest_ms = int(now_ms - ttl_s * 1000)
                try:
                    owned.expired = await self._log.find_time(owned.id, oldest_ms + 1)
                except StoreUnavailableError as error:
                    silence[server] = error
                    continue
                owned.expired_at = now
            for subscription in list(owned.groups.values()):
                if (
                    self._expire(subscription, owned.expired)
                    and (flow := subscription.flow) is not None
                ):
                    flow.notice(subscription)
        for failure in silence.values():
            raise failure

    def must_wait(self, subscription: ConsumedPartition, entry: Entry) -> bool:
        """End the waiting messages of a batch whose own time is over, before it is delivered.

        Returns whether nothing of it may be sent for now: its messages become dead letters first,
        or Redis's time is not known yet, or whether the group wants dead letters. The flow gets a
        notice then.
        """
        book, stop = subscription.book, entry.first + entry.count
        now, watch = self._clock(), self.clocks.find(subscription.partition)
        now_ms = None if watch is None else watch.estimate_ms(now)
        if watch is None or now_ms is None:
            if not self._waiting:
                self._spawn(self._learn_time(), "expiry: time of Redis")
            self._waiting[subscription] = None
            return True
        if watch.is_suspended(now) or not is_over(entry.at_ms, entry.ttl_ms, now_ms):
            return False
        if not self._has_rules(subscription):
            self._without_rules[subscription] = None
            return True
        self._expire(subscription, stop)
        return book.acked.end_of_run(book.position) < stop

    async def _learn_time(self) -> None:
        while self._waiting:
            try:
                await self.clocks.observe()
            except PartqError as error:
                _log.warning("time of Redis: %s; asking again", error)
            waiting, self._waiting = self._waiting, {}
            for subscription in waiting:
                if self.clocks.find(subscription.partition) is None and not (
                    subscription.is_dropped
                ):
                    self._waiting[subscription] = None
            _notice(waiting.keys() - self._waiting.keys())
            if self._waiting:
                await asyncio.sleep(RETRY_GAP_S)

    def _has_rules(self, subscription: ConsumedPartition) -> bool:
        """Whether it is known if the group wants what expires as dead letters.

        The queue names a group before its settings are stored, or after they are gone.
        """
        return subscription.group in self._config().dead_letters

    def _expire(self, subscription: ConsumedPartition, stop: int) -> bool:
        """End what waits to be sent below `stop`; return whether some of it was dropped."""
        book = subscription.book
        start = book.position
        if start >= stop or subscription.is_dropped or subscription.is_held:
            return False
        if not self._has_rules(subscription):
            return False
        if dead_letters_of(self._config(), subscription.group).takes_expired:
            room = subscription.outbox.room - len(subscription.outbox.doomed)
            limit = max(0, min(room, MOVES_AT_ONCE))
            self._letter_forwarder.doom(
                subscription, _unsent(book, stop, limit), DeadLetterReason.EXPIRED
            )
            return False
        ranges = book.acked.outside(start, stop)
        expired = sum(high - low for low, high in ranges)
        if expired and subscription.audit_writer is not None:
            subscription.flush_records.told("expired", subscription, None, ranges)
        book.discard([(start, stop)])
        if expired:
            subscription.missing = ""  # what was may have expired; else it is missed again
            self._metrics.expired(subscription.group, expired)
            self._cursor_writer.notice(subscription)
        return expired > 0


def _notice(waiting: Iterable[ConsumedPartition]) -> None:
    """Have flows look again at what waited."""
    for subscription in waiting:
        if subscription.flow is not None:
            subscription.flow.notice(subscription)


def _unsent(book: GroupCursor, stop: int, limit: int) -> list[int]:
    """Return the first offsets below `stop` that wait to be sent in their turn."""
    found: list[int] = []
    at = book.acked.end_of_run(book.position)
    while at < stop and len(found) < limit:
        found.append(at)
        at = book.acked.end_of_run(at + 1)
    return found
