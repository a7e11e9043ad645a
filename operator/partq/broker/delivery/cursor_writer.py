"""Writes the books of acknowledgements to Redis in groups, and confirms acks after that."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from partq.broker.delivery.progress import ProgressSignal
from partq.broker.partition.group_partition import Answer, ConsumedPartition
from partq.core.cursor.cursor import GroupCursor
from partq.core.model import Offset
from partq.errors import FencedError, PartqError, SupersededError, UnknownGroupError
from partq.store.records.partitions import Partitions

FLUSH_GAP_S = 0.005
"""How long acks are gathered before they are written."""
LARGE_BYTES = 4096
"""A book above it is written at a pace."""
BYTES_PER_S = 500_000
"""Bytes per second of large books: each costs time here, and a sync that others wait for."""
MAX_WAITING = 1000
"""Acks that end the gathering early."""
RETRY_GAP_S = 0.05

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
        progress: ProgressSignal,
    ) -> None:
        self._progress = progress
        self._partitions = partitions
        self._on_lost = on_lost
        self._dirty: dict[ConsumedPartition, None] = {}
        self._wake = asyncio.Event()
        self._full = asyncio.Event()
        self._waiting_count = 0
        self._flushes: set[asyncio.Task[None]] = set()
        self._next_large = 0.0
        """When the next large book may be written, on the event loop's clock.

        Only those that were stored count, and those whose turn or call is under way.
        """

    def notice(self, subscription: ConsumedPartition, answer: Answer | None = None) -> None:
        """Write the book soon; `answer` is called when what it says now is stored."""
        subscription.is_dirty = True
        if answer is not None:
            subscription.confirmations.append(answer)
            self._waiting_count += 1
            if self._waiting_count >= MAX_WAITING:
                self._full.set()
        self._dirty[subscription] = None
        self._wake.set()
        subscription.to_hurry.set()

    async def settle(self, subscription: ConsumedPartition) -> None:
        """Wait until no flush of the book is under way and nothing waits for one."""
        subscription.to_hurry.set()
        while (subscription.is_dirty or subscription.is_flushing) and not subscription.is_dropped:
            subscription.flushed.clear()
            await subscription.flushed.wait()

    def store(
        self, subscription: ConsumedPartition, *, has_changed: bool = False
    ) -> asyncio.Future[PartqError | None]:
        """Return what ends once the book is stored as it is now: None, or why it never will be.

        Acks that come meanwhile are not waited for. `has_changed`: nobody was given notice of what
        has changed.
        """
        stored: asyncio.Future[PartqError | None] = asyncio.get_running_loop().create_future()

        def answer(error: PartqError | None) -> None:
            if not stored.done():  # whoever waited may have gone
                stored.set_result(error)

        if has_changed or subscription.is_dirty or subscription.is_flushing:
            self.notice(subscription, answer)
        else:
            answer(None)
        return stored

    async def run(self) -> None:
        """Flush until cancelled."""
        try:
            while True:
                await self._wake.wait()
                try:
                    async with asyncio.timeout(FLUSH_GAP_S):
                        await self._full.wait()
                except TimeoutError:
                    pass
                self._full.clear()
                self._wake.clear()
                self._waiting_count = 0
                dirty, self._dirty = self._dirty, {}
                for subscription in dirty:
                    if subscription.is_flushing or subscription.is_dropped:
                        continue  # the flush under way starts the next one when it ends
                    if subscription.is_resetting:
                        continue  # what is dirty then is noticed again when the reset ends
                    subscription.is_flushing = True
                    task = asyncio.create_task(self._flush(subscription))
                    self._flushes.add(task)
                    task.add_done_callback(self._flushes.discard)
        finally:
            for task in list(self._flushes):
                task.cancel()

    async def _pace(self, subscription: ConsumedPartition) -> float:
        """Wait until a large book may be written, or must; meanwhile more acks come into it.

        Returns by how many seconds the other large books wait longer for that.
        """
        size = _size(subscription.book)
        if size <= LARGE_BYTES:
            return 0.0
        clock = asyncio.get_running_loop().time
        at = max(clock(), self._next_large)
        turn_s = size / BYTES_PER_S
        self._next_large = at + turn_s
        while not subscription.is_urgent and (left := at - clock()) > 0:
            subscription.to_hurry.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await subscription.to_hurry.wait()
        return turn_s

    async def _flush(self, subscription: ConsumedPartition) -> None:
        answers: list[Answer] = []
        is_failing = False
        turn_s = 0.0
        try:
            while subscription.is_dirty:
                self._next_large -= turn_s  # of a call that stored nothing
                turn_s = await self._pace(subscription)
                if subscription.is_dropped or subscription.is_resetting:
                    break  # the book is about to be another one; its acks end with their token
                subscription.is_dirty = False
                answers += subscription.confirmations
                subscription.confirmations = []
                # What is lost or nacked during the flush raises counts that this one does not hold.
                counts = subscription.counts
                book = subscription.book
                records = subscription.flush_records.take()
                try:
                    await self._partitions.flush(
                        subscription.partition,
                        subscription.group,
                        **subscription.next_write(),
                        cursor=Offset(book.cursor),
                        acked=book.acked.pairs(),
                        redeliveries=book.redeliveries,
                        audit=records,
                    )
                except (FencedError, UnknownGroupError) as error:
                    self._on_lost(subscription, error)
                    break
                except SupersededError:
                    subscription.is_dirty = True  # the book as it is now, under the next number
                    continue
                except PartqError as error:
                    if not is_failing:
                        _log.warning("acks of %s: %s; trying again", subscription.partition, error)
                    is_failing = True
                    subscription.is_dirty = True
                    await asyncio.sleep(RETRY_GAP_S)
                    continue
                is_failing, turn_s = False, 0.0
                subscription.flush_records.stored(records)
                subscription.note_counts(counts)
                for answer in answers:
                    answer(None)
                answers = []
                if subscription.flow is not None:
                    subscription.flow.notice(subscription)
        finally:
            self._next_large -= turn_s
            subscription.refuse(answers)
            subscription.is_flushing = False
            subscription.flushed.set()
            self._progress.notice()


def _size(book: GroupCursor) -> int:
    """Return about how many bytes a book has as it is stored."""
    digits = len(str(book.acked.stop or book.position)) + 1
    return 2 * digits * len(book.acked) + (digits + 2) * len(book.redeliveries)
