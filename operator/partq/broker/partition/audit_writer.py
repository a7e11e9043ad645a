"""The audit record of an owned partition, as its broker adds to it.

What scripts change they record themselves. What only this broker's memory knows is written from
here, before it is sent or answered: deliveries, pauses and their ends. One write is under way per
partition; what comes meanwhile forms the next.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from partq.aio import UntilAnswered
from partq.core.model import BrokerEpoch, BrokerId, PartitionId
from partq.errors import ConflictError, InternalError, PartqError
from partq.store.records.audit import Audits, Numbered
from partq.store.retries import WRITE_RETRY_S

MAX_WRITE_COUNT = 1000
"""Records of one write."""

Recorded = Callable[[], None]
"""Called once a record is stored, or nobody keeps one; never when ownership is lost before."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _QueuedRecords:
    record: bytes
    on_recorded: Recorded | None


class AuditWriter:
    """Writes what is noted, in the order of its coming."""

    def __init__(
        self,
        audits: Audits,
        partition: PartitionId,
        *,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        is_on: bool,
        must_wait: Callable[[], bool],
        on_lost: Callable[[PartqError], None],
    ) -> None:
        self.is_on = is_on
        """Whether what happens is recorded. Then nothing is sent before its record is stored."""
        self._is_recorded: bool | None = is_on
        """Whether the store keeps a record; None: a switch has no answer yet."""
        self._switch_count = 0
        """Numbers the switches: one that was given up and arrives late changes nothing."""
        self._store = audits
        self._partition = partition
        self._broker = broker
        self._broker_epoch = broker_epoch
        self._must_wait = must_wait
        self._on_lost = on_lost
        self._waiting: deque[_QueuedRecords] = deque()
        self._first = 0
        """Number of the first record that waits."""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_dropped = False

    @property
    def is_held(self) -> bool:
        """Whether deliveries have to wait, as Redis has no room for their records."""
        return self.is_on and self._must_wait()

    def note(self, record: bytes, on_recorded: Recorded | None = None) -> None:
        """Have a record written; `on_recorded` is called when it is."""
        if self._is_dropped:
            return
        self._waiting.append(_QueuedRecords(record, on_recorded))
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"audit {self._partition}")
            self._task.add_done_callback(self._ended)

    async def settle(self) -> None:
        """Wait until all that was noted so far is stored, or the partition is not owned here."""
        last = self._first + len(self._waiting)
        while self._first < last and not self._is_dropped:
            self._changed.clear()
            await self._changed.wait()

    async def switch(self, *, is_on: bool) -> None:
        """Begin the record, or end it, where the store does otherwise.

        Raises:
            ConflictError: it is not switched; the partition is lost, or its groups change.
            StoreUnavailableError: no answer; switch again.
        """
        if self._is_recorded is is_on:
            return
        # Noted before the record begins and until it has ended: so nothing is missing in between.
        self.is_on = True
        self._is_recorded = None
        self._switch_count += 1
        await self._store.switch(
            self._partition,
            self._broker,
            broker_epoch=self._broker_epoch,
            number=self._switch_count,
            is_on=is_on,
        )
        self.is_on = self._is_recorded = is_on
        _log.info("the audit record of %s %s", self._partition, "begins" if is_on else "ends")

    def drop(self) -> None:
        """Write nothing more: the partition is not owned here."""
        self._is_dropped = True
        if self._task is not None:
            self._task.cancel()
        self._waiting.clear()
        self._changed.set()

    async def _run(self) -> None:
        until_answered = UntilAnswered(_log, WRITE_RETRY_S)
        while self._waiting:
            batch = [self._waiting[at] for at in range(min(len(self._waiting), MAX_WRITE_COUNT))]
            try:
                await self._store.write(
                    self._partition,
                    broker_epoch=self._broker_epoch,
                    audit=Numbered(self._first, [each.record for each in batch]),
                )
            except ConflictError as error:
                self._on_lost(error)
                return
            except PartqError as error:
                # The same records under the same numbers are not written twice.
                await until_answered.failed(
                    "write to the audit record of %s failed, it is repeated: %s",
                    *(self._partition, error),
                )
                continue
            until_answered.answered()
            for each in batch:
                self._waiting.popleft()
                self._first += 1
                if each.on_recorded is not None:
                    each.on_recorded()
            self._changed.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return  # dropped, or the process ends: each new task would be cancelled at once
        if (error := task.exception()) is not None:
            _log.error("audit record of %s failed", self._partition, exc_info=error)
            self._on_lost(InternalError(f"audit record of {self._partition} failed: {error}"))
        elif self._waiting and not self._is_dropped:
            self._task = asyncio.create_task(self._run(), name=f"audit {self._partition}")
            self._task.add_done_callback(self._ended)
