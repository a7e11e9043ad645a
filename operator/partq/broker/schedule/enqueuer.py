"""Appends what has waited beside the log of a partition, as soon as it is due."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, Self

from partq.aio import UntilAnswered
from partq.broker.partition.owned_partition import OwnedPartition
from partq.broker.rescale.slot_check import current_slots
from partq.broker.retention.store_clocks import StoreClocks
from partq.broker.schedule.entry_mover import EntryMover
from partq.core.clocks.clock_watch import MAX_JUMP_S
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.errors import BadBatchError, ConflictError, PartqError
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.log import AppendBatch
from partq.store.retries import READ_RETRY_S
from partq.store.schedule.due_entries import DueEntries, DueEntry
from partq.store.schedule.entry_moves import EntryMoves
from partq.wire.batch import holds_all, read_header, read_slots

MAX_ENTRIES = 128
MAX_BYTES = 4 * 1024 * 1024
"""Entries of one read, and of the call that appends them."""
MAX_READS = 8
"""Partitions whose entries are read at a time: they are in memory then."""
RETRY_S = 1.0
"""Before the next try where entries are due and cannot be appended now."""
MAX_WAIT_S = 60.0
"""After this time the clock is looked at again: it may have been set forward."""

Spawn = Callable[[Coroutine[Any, Any, None], str], None]

_log = logging.getLogger(__name__)


class SchedulingBroker(Protocol):
    """What is needed of the broker."""

    @property
    def store(self) -> Store:
        """The connection to Redis."""

    @property
    def keys(self) -> Keys:
        """Those of the queue."""

    @property
    def owned(self) -> Mapping[PartitionId, OwnedPartition]:
        """The partitions that it owns now."""

    @property
    def clock(self) -> Callable[[], float]:
        """A clock in seconds that goes on while this machine sleeps."""


class Enqueuer:
    """Waits, for each owned partition, until its first entry is due.

    Redis alone says what is due: the read and the append ask its clock. The broker only knows when
    to ask. After a jump of that clock nothing is appended, as nothing expires.
    """

    def __init__(
        self,
        owned: Mapping[PartitionId, OwnedPartition],
        entries: DueEntries,
        mover: EntryMover,
        clocks: StoreClocks,
        *,
        layout: Callable[[], Layout | None],
        clock: Callable[[], float],
        spawn: Spawn,
    ) -> None:
        self._owned = owned
        self._entries = entries
        self._mover = mover
        self._clocks = clocks
        self._layout = layout
        self._clock = clock
        self._spawn = spawn
        self._reads = asyncio.Semaphore(MAX_READS)

    @classmethod
    def of(
        cls,
        broker: SchedulingBroker,
        clocks: StoreClocks,
        layout: Callable[[], Layout | None],
        spawn: Spawn,
    ) -> Self:
        """Make that of a broker."""
        entries = DueEntries(broker.store, broker.keys)
        mover = EntryMover(EntryMoves(broker.store, broker.keys))
        return cls(
            *(broker.owned, entries, mover, clocks),
            layout=layout,
            clock=broker.clock,
            spawn=spawn,
        )

    def follow(self, owned: OwnedPartition) -> None:
        """Append the entries of a partition from now on, until it is owned no more."""
        self._spawn(self._follow(owned), f"enqueue {owned.id}")

    async def _follow(self, owned: OwnedPartition) -> None:
        until_answered = UntilAnswered(_log, READ_RETRY_S)
        is_carried = False
        while self._is_held(owned):
            owned.due_news.clear()
            owned.next_due_ms = None
            try:
                # What is due elsewhere, and comes here, may be due before what is here.
                is_carried = is_carried or await self._carry(owned)
                wait_s = await self._enqueue(owned) if is_carried else RETRY_S
            except ConflictError:
                return  # another broker has claimed it, as the next append says
            except PartqError as error:
                await until_answered.failed(
                    "what is due in partition %s: %s; asking again", owned.id, error
                )
                continue
            until_answered.answered()
            await owned.due_news.wait_at_most(wait_s)

    def _is_held(self, owned: OwnedPartition) -> bool:
        return self._owned.get(owned.id) is owned

    async def _carry(self, owned: OwnedPartition) -> bool:
        """Have all that waits here which predecessors had; False: not yet."""
        if not owned.layout.is_open:
            return False
        return await self._mover.carry(owned, lambda: self._is_held(owned))

    async def _enqueue(self, owned: OwnedPartition) -> float | None:
        """Append what is due; return in how many seconds to look again; None: at the next news."""
        passed_over = 0
        while True:
            layout = self._layout()
            if layout is None or not owned.layout.is_open or owned.is_yielding:
                return RETRY_S
            async with self._reads:
                asked_at = self._clock()
                page = await self._entries.read(
                    owned.id,
                    passed_over=passed_over,
                    max_entries=MAX_ENTRIES,
                    max_bytes=MAX_BYTES,
                )
            if not page.entries:
                if passed_over:
                    return RETRY_S  # what is passed over is to leave, or is cut first
                if page.next_ms is None:
                    return None
                owned.next_due_ms = page.next_ms
                passed_s = self._clock() - asked_at
                return min(MAX_WAIT_S, max(0.0, (page.next_ms - page.now_ms) / 1000 - passed_s))
            if await self._is_doubtful(owned.id, page.now_ms):
                return RETRY_S
            slots = current_slots(owned, layout)
            found = (_batch(owned, entry, slots) for entry in page.entries)
            batches = [batch for batch in found if batch is not None]
            passed_over += len(page.entries) - len(batches)
            if batches and not await self._append(owned, batches):
                return RETRY_S

    async def _append(self, owned: OwnedPartition, batches: list[AppendBatch]) -> bool:
        """Append entries; False: something kept them from it, and they are due still."""
        try:
            outcomes = await owned.appender.enqueue(batches)
        except PartqError:  # it is given up, or too much waits to be stored
            return False
        return not any(isinstance(outcome, PartqError) for outcome in outcomes)

    async def _is_doubtful(self, partition: PartitionId, now_ms: int) -> bool:
        """Whether Redis's clock has jumped, as far as anybody can tell."""
        judged_ms = self._clocks.judged_ms(partition)
        if judged_ms is None or now_ms - judged_ms > MAX_JUMP_S * 1000:
            await self._clocks.observe()
            judged_ms = self._clocks.judged_ms(partition)
        return judged_ms is None


def _batch(owned: OwnedPartition, entry: DueEntry, slots: Sequence[range]) -> AppendBatch | None:
    """Return an entry as it is appended; None: its slots have left, or nobody can read it."""
    try:
        header = read_header(entry.data)
        if not holds_all(slots, read_slots(entry.data, header)):
            return None
    except BadBatchError as error:
        _log.error("partition %s: the scheduled entry %d stays: %s", owned.id, entry.number, error)
        return None
    return AppendBatch(
        *("", entry.number, header.count, entry.data, entry.ttl_ms),
        kind="enqueue",
        message_id=entry.message_id,
    )
