"""Writes the books of acknowledgements to Redis in groups, and confirms acks after that."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from partq.aio import Signal, TaskSet, UntilAnswered
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.outbox import Answer
from partq.core.lanes.parked_lanes import BLOCKED_MS, QUARANTINED_MS, UNTIL_RELEASED
from partq.core.model import Offset, PartitionId
from partq.errors import FencedError, PartqError, SupersededError, UnknownGroupError
from partq.store.records.partitions import Partitions
from partq.store.refusals import LeftSlot
from partq.store.retries import WRITE_RETRY_S

FLUSH_GAP_S = 0.005
"""How long acks are gathered before they are written."""
LARGE_BYTES = 4096
"""A book above it is written at a pace."""
BYTES_PER_S = 500_000
"""Bytes per second of large books: each costs time here, and a sync that others wait for."""
MAX_WAITING = 1000
"""Acks that end the gathering early."""

_log = logging.getLogger(__name__)


class CursorWriter:
    """Flush dirty books, each by one call at a time, the whole book in one script.

    The broker is the only writer of a book, so a flush that is asked for again writes the same or
    newer state, and a failed one is simply repeated.
    """

    def __init__(
        self,
        partitions: Partitions,
        *,
        on_lost: Callable[[ConsumedPartition, PartqError], None],
        drain_signal: Signal,
        read_ms: Callable[[PartitionId], Awaitable[float]],
        clock: Callable[[], float],
    ) -> None:
        self._drain_signal = drain_signal
        self._partitions = partitions
        self._on_lost = on_lost
        self._read_ms = read_ms
        """Returns the time of Redis."""
        self._clock = clock
        self._dirty: dict[ConsumedPartition, None] = {}
        self._wake = asyncio.Event()
        self._full = Signal()
        self._waiting_count = 0
        self._flushes = TaskSet()
        self._next_large = 0.0
        """When the next large book may be written, on the event loop's clock.

        Only those that were stored count, and those whose turn or call is under way.
        """

    def notice(self, consumed: ConsumedPartition, answer: Answer | None = None) -> None:
        """Write the book soon; `answer` is called when what it says now is stored."""
        consumed.is_dirty = True
        if answer is not None:
            consumed.confirmations.append(answer)
            self._waiting_count += 1
            if self._waiting_count >= MAX_WAITING:
                self._full.set()
        self._dirty[consumed] = None
        self._wake.set()
        consumed.to_hurry.set()

    async def settle(self, consumed: ConsumedPartition) -> None:
        """Wait until no flush of the book is under way and nothing waits for one."""
        consumed.to_hurry.set()
        while (consumed.is_dirty or consumed.is_flushing) and not consumed.is_dropped:
            consumed.flushed.clear()
            await consumed.flushed.wait()

    def store(
        self, consumed: ConsumedPartition, *, has_changed: bool = False
    ) -> asyncio.Future[PartqError | None]:
        """Return what ends once the book is stored as it is now: None, or why it never will be.

        Acks that come meanwhile are not waited for. `has_changed`: nobody was given notice of what
        has changed.
        """
        stored: asyncio.Future[PartqError | None] = asyncio.get_running_loop().create_future()

        def answer(error: PartqError | None) -> None:
            if not stored.done():  # the caller that waited may have gone
                stored.set_result(error)

        if has_changed or consumed.is_dirty or consumed.is_flushing:
            self.notice(consumed, answer)
        else:
            answer(None)
        return stored

    async def run(self) -> None:
        """Flush until cancelled."""
        try:
            while True:
                await self._wake.wait()
                await self._full.wait_at_most(FLUSH_GAP_S)
                self._full.clear()
                self._wake.clear()
                self._waiting_count = 0
                dirty, self._dirty = self._dirty, {}
                for consumed in dirty:
                    if consumed.is_flushing or consumed.is_dropped:
                        continue  # the flush under way starts the next one when it ends
                    if consumed.is_resetting:
                        continue  # what is dirty then is noticed again when the reset ends
                    consumed.is_flushing = True
                    self._flushes.start(self._flush(consumed))
        finally:
            self._flushes.cancel()

    async def _pace(self, consumed: ConsumedPartition) -> float:
        """Wait until a large book may be written, or must; meanwhile more acks come into it.

        Returns by how many seconds the other large books wait longer for that.
        """
        size = consumed.book.stored_size_bytes
        if size <= LARGE_BYTES:
            return 0.0
        clock = asyncio.get_running_loop().time
        at = max(clock(), self._next_large)
        turn_s = size / BYTES_PER_S
        self._next_large = at + turn_s
        while not consumed.is_urgent and (left := at - clock()) > 0:
            consumed.to_hurry.clear()
            await consumed.to_hurry.wait_at_most(left)
        return turn_s

    async def _flush(self, consumed: ConsumedPartition) -> None:
        answers: list[Answer] = []
        until_answered = UntilAnswered(_log, WRITE_RETRY_S)
        turn_s = 0.0
        try:
            while consumed.is_dirty:
                self._next_large -= turn_s  # of a call that stored nothing
                turn_s = await self._pace(consumed)
                try:
                    # From here on to the call nothing is awaited: all of it is of one moment.
                    now_ms = await self._time_for(consumed)
                except PartqError as error:
                    await until_answered.failed(
                        "acks of %s: %s; trying again", consumed.partition, error
                    )
                    continue
                if consumed.is_dropped or consumed.is_resetting:
                    break  # the book is about to be another one; its acks end with their token
                consumed.is_dirty = False
                answers += consumed.confirmations
                consumed.confirmations = []
                # What is lost or nacked during the flush raises counts that this one does not hold.
                counts, lane_counts = consumed.counts, consumed.lane_counts
                records = consumed.flush_records.take()
                parked, parked_changes = self._parked_of(consumed, now_ms)
                holds = consumed.lanes.holds_made if consumed.lanes is not None else 0
                try:
                    stored = await self._partitions.flush(
                        consumed.partition,
                        consumed.group,
                        **consumed.next_write(),
                        cursor=Offset(consumed.book.cursor),
                        acked=consumed.book.stored_acks(),
                        redeliveries=consumed.book.redeliveries,
                        parked=parked,
                        parked_at_ms=round(now_ms or 0),
                        audit=records,
                        states=consumed.states.to_store(),
                        left_slots=consumed.states.guarded_slots,
                    )
                except (FencedError, UnknownGroupError) as error:
                    self._on_lost(consumed, error)
                    break
                except SupersededError:
                    consumed.is_dirty = True  # the book as it is now, under the next number
                    continue
                except PartqError as error:
                    consumed.is_dirty = True
                    await until_answered.failed(
                        "acks of %s: %s; trying again", consumed.partition, error
                    )
                    continue
                until_answered.answered()
                turn_s = 0.0
                if isinstance(stored, LeftSlot):
                    consumed.states.refuse_guarded(stored.slot)
                    consumed.is_dirty = True  # all but these
                    continue
                consumed.flush_records.stored(records)
                consumed.states.stored(stored)
                consumed.note_counts(counts, lane_counts)
                if parked is not None:
                    consumed.parked_stored, consumed.has_stale_parked = parked_changes, False
                    consumed.holds_stored = holds
                for answer in answers:
                    answer(None)
                answers = []
                consumed.wake()
        finally:
            self._next_large -= turn_s
            consumed.refuse(answers)
            consumed.is_flushing = False
            consumed.flushed.set()
            self._drain_signal.pulse()

    async def _time_for(self, consumed: ConsumedPartition) -> float | None:
        """Return the time of Redis, if parked keys are to be stored; else None.

        Raises:
            StoreUnavailableError: the time of Redis is not known.
        """
        lanes = consumed.lanes
        has_news = consumed.has_stale_parked or (
            lanes is not None and lanes.parked_changes != consumed.parked_stored
        )
        return await self._read_ms(consumed.partition) if has_news else None

    def _parked_of(
        self, consumed: ConsumedPartition, now_ms: float | None
    ) -> tuple[dict[int, int] | None, int]:
        """Return the parked keys with their times, as they are stored, and their `parked_changes`.

        None: they are stored as they are. `now_ms`: the time of Redis.
        """
        lanes = consumed.lanes
        if lanes is None:
            return ({} if consumed.has_stale_parked else None), 0
        if now_ms is None:
            return None, lanes.parked_changes
        now, quarantined = self._clock(), lanes.quarantined_lanes
        until_ms = {
            lane: round(now_ms + (until - now) * 1000)
            if until < UNTIL_RELEASED
            else (QUARANTINED_MS if lane in quarantined else BLOCKED_MS)
            for lane, until in lanes.parked.items()
        }
        return until_ms, lanes.parked_changes
