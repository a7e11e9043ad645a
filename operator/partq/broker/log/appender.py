"""Appends of one partition, one call after another, so that a lost answer is never stored twice."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from partq.aio import UntilAnswered, resolve
from partq.broker.log.buffers import PendingBudget, memory_bytes
from partq.broker.log.quota import ANYTHING, StorageQuota
from partq.core.model import BrokerEpoch, Offset, PartitionId
from partq.core.samples.waits import WaitCounts
from partq.core.slot_table import SlotRanges
from partq.errors import (
    AppendGapError,
    ConflictError,
    InternalError,
    NotOwnerError,
    NotStoredError,
    OutcomeUnknownError,
    PartqError,
    QuotaExceededError,
    StaleGenerationError,
    StoreUnavailableError,
)
from partq.store.records.log import AppendBatch, Appended, AppendResult, Entry, Log
from partq.store.retries import WRITE_RETRY_S
from partq.wire.batch import BatchHeader, content_crc, holds_all, read_header, read_slots

MAX_CALL_BYTES = 4 * 1024 * 1024
"""Batches of one call, in bytes; one larger batch makes a separate call."""
MAX_CALL_BATCHES = 128
MAX_EXPANDED_HERE_BYTES = 1024 * 1024
"""Batches of a call of an audited queue that expand to more in all are expanded in a thread."""
MAX_PASSED_MS = 10_000
"""The most that the time between two calls counts for: in a longer one this process may have
stood still, or its machine slept, and repeats that wait to be read have not aged meanwhile."""

Reply = Callable[[AppendResult | PartqError], None]
Step = Callable[[], Awaitable[None]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Pending:
    batch: AppendBatch
    reply: Reply
    submitted_at: float


class LogAppender:
    """The only writer of a partition's log while its broker owns it.

    A call names the offset that it expects and its number under the broker epoch. Batches that
    arrive while one is under way form the next.

    `generation`: of the layout that a producer has to know, to find what has left the partition.
    `adopt_ids`: has the partition know ids of batches that its predecessors know; what was missed
    at an append would be stored twice.
    """

    def __init__(
        self,
        log: Log,
        partition: PartitionId,
        *,
        broker_epoch: BrokerEpoch,
        end: int,
        quota: StorageQuota,
        budget: PendingBudget,
        clock: Callable[[], float],
        waits: WaitCounts,
        is_audited: Callable[[], bool],
        generation: Callable[[], int],
        id_rules: Callable[[], tuple[int, int]],
        adopt_ids: Callable[[list[AppendBatch]], Awaitable[None]],
        on_stored: Callable[[list[Entry]], None],
        on_parked: Callable[[int], None],
        on_lost: Callable[[PartqError], None],
    ) -> None:
        self._store = log
        self._partition = partition
        self._broker_epoch = broker_epoch
        self._end = end
        self._number = 0
        self._quota = quota
        self._clock = clock
        self._waits = waits
        self._is_audited = is_audited
        self._generation = generation
        self._id_rules = id_rules
        """For how many ms an id of a message is known, and how many are; 0: ids mean nothing."""
        self._adopt_ids = adopt_ids
        self._counted_upto = clock()
        """Up to where the store was told how much time has passed."""
        self._on_stored = on_stored
        self._on_parked = on_parked
        self._on_lost = on_lost
        self._pending: deque[_Pending] = deque()
        self._due: deque[_Pending] = deque()
        """Entries that are due: they make calls for themselves."""
        self._is_due_next = False
        self._steps: deque[Step] = deque()
        self._budget = budget
        self.held_bytes = 0
        """Of batches that have no answer yet; the budget counts it."""
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_open = True
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write what is submitted."""
        self._task = asyncio.create_task(self._run(), name=f"append {self._partition}")
        self._task.add_done_callback(self._ended)

    def submit(self, batch: AppendBatch, reply: Reply) -> None:
        """Queue a batch; `reply` is called once, with its result or the error.

        Raises:
            NotOwnerError: the partition is being given up.
            NotStoredError: too much waits already, here or in the partitions of this broker.
        """
        if not self._is_open:
            raise NotOwnerError(
                f"partition {self._partition}: this broker gives it up; read /layout for its broker"
            )
        self._reserve(memory_bytes(batch.data))
        self._pending.append(_Pending(batch, reply, self._clock()))
        self._wake.set()

    async def enqueue(self, batches: Sequence[AppendBatch]) -> list[AppendResult | PartqError]:
        """Append entries that are due, and return what became of each.

        Calls of them and calls of what is submitted take turns, so neither stops the other.

        Raises:
            NotOwnerError, NotStoredError: as `submit`; nothing is appended.
        """
        if not self._is_open:
            raise NotOwnerError(
                f"partition {self._partition}: this broker gives it up; read /layout for its broker"
            )
        self._reserve(sum(memory_bytes(batch.data) for batch in batches))
        loop, now = asyncio.get_running_loop(), self._clock()
        answers = list[asyncio.Future[AppendResult | PartqError]]()
        for batch in batches:
            answers.append(loop.create_future())
            self._due.append(_Pending(batch, partial(resolve, answers[-1]), now))
        self._wake.set()
        return list(await asyncio.gather(*answers))

    def _reserve(self, size_bytes: int) -> None:
        budget = self._budget
        if not budget.take(self, size_bytes):
            raise NotStoredError(
                f"partition {self._partition}: {budget.used_bytes} bytes wait at this broker to be "
                f"stored, {self.held_bytes} of them for this partition, and {budget.max_bytes} is "
                "the limit (PARTQ_PENDING_BYTES); publish again later, and more slowly",
                retry_after_s=0.5,
            )

    def run_next(self, step: Step) -> None:
        """Run a step before what waits: no append is under way, and none begins during it."""
        self._steps.append(step)
        self._wake.set()

    def keep_slots(self, slots: SlotRanges) -> None:
        """Look again at what waits, as the partition takes no others than `slots` any more.

        Numbers are judged before slots, so a batch with another slot still asks for the answer to
        a repeat; without a number it is refused. Fixed numbers were counted for all the slots.
        """
        waiting, self._pending = self._pending, deque()
        due, self._due = self._due, deque()
        for pending in (*waiting, *due):
            is_due = pending.batch.kind == "enqueue"
            kept = self._due if is_due else self._pending
            data = pending.batch.data
            is_kept = not data or (
                not 0 < pending.batch.fixed_generation < self._generation()
                and holds_all(slots, read_slots(data, read_header(data)))
            )
            if is_kept:
                kept.append(pending)
                continue
            if pending.batch.producer or is_due:
                kept.append(replace(pending, batch=replace(pending.batch, data=b"")))
                self._budget.give_back(self, memory_bytes(data) - memory_bytes(b""))
            else:
                self._budget.give_back(self, memory_bytes(data))
                pending.reply(self._moved())

    def _moved(self) -> StaleGenerationError:
        return StaleGenerationError.of(self._partition, self._generation())

    async def finish(self) -> None:
        """Take nothing more, and wait until the call under way has its answer."""
        self._is_open = False
        self._steps.clear()
        self._refuse_pending()
        await self._idle.wait()

    def drop(self) -> None:
        """Stop at once; calls under way end as `outcome_unknown`."""
        self._is_open = False
        if self._task is not None:
            self._task.cancel()
        self._refuse_pending()

    def _refuse_pending(self) -> None:
        error = NotOwnerError(
            f"partition {self._partition}: this broker no longer owns it; read /layout for its "
            "broker"
        )
        while self._pending or self._due:
            pending = (self._pending or self._due).popleft()
            self._budget.give_back(self, memory_bytes(pending.batch.data))
            pending.reply(error)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._steps or self._pending or self._due:
                if self._steps:
                    await self._run_step(self._steps.popleft())
                    continue
                call = self._next_call()
                self._idle.clear()
                try:
                    await self._store_call(await self._with_ids(call))
                except BaseException:
                    self._answer_unknown(call)
                    raise
                finally:
                    self._budget.give_back(
                        self, sum(memory_bytes(each.batch.data) for each in call)
                    )
                    self._idle.set()

    async def _run_step(self, step: Step) -> None:
        self._idle.clear()
        try:
            await step()
        finally:
            self._idle.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("append to %s failed", self._partition, exc_info=error)
            self._on_lost(InternalError(f"append to {self._partition} failed: {error}"))

    def _next_call(self) -> list[_Pending]:
        call: list[_Pending] = []
        size = 0
        is_due = bool(self._due) and (self._is_due_next or not self._pending)
        self._is_due_next = not is_due
        waiting = self._due if is_due else self._pending
        while waiting and len(call) < MAX_CALL_BATCHES:
            length = len(waiting[0].batch.data)
            if call and size + length > MAX_CALL_BYTES:
                break
            call.append(waiting.popleft())
            size += length
        return call

    async def _with_ids(self, call: list[_Pending]) -> list[_Pending]:
        """Refuse batches of which nobody can say now whether their ids are known; return the rest.

        What is numbered behind them is refused by the store, and its client sends all again.
        """
        batches = [each.batch for each in call if _asks_for_id(each.batch)]
        if not batches:
            return call
        try:
            await self._adopt_ids(batches)
        except ConflictError:
            return call  # as the append will say
        except StoreUnavailableError as error:
            refusal = NotStoredError(
                f"partition {self._partition}: it cannot be told whether the id of the message is "
                f"known, as the partition that had its slot does not answer ({error}); publish "
                "again",
                retry_after_s=1.0,
            )
            for each in call:
                if _asks_for_id(each.batch):
                    each.reply(refusal)
            return [each for each in call if not _asks_for_id(each.batch)]
        return call

    async def _store_call(self, call: list[_Pending]) -> None:
        if not call:
            return
        if self._is_audited():
            call = await _with_checksums(call)
        sizes = [len(pending.batch.data) for pending in call]
        # What has waited counts in the quota since it was parked.
        is_due = call[0].batch.kind == "enqueue"
        grant = ANYTHING if is_due else self._quota.take(sizes)
        stored_bytes = sum(sizes)  # until the outcome is known
        now = self._clock()
        try:
            appended = await self._append_until_answered(
                [_aged(pending, now) for pending in call], grant.room_bytes, self._count_time(now)
            )
            stored_bytes = sum(
                size
                for size, result in zip(sizes, appended.results, strict=True)
                if result.status in ("stored", "parked")
            )
        except QuotaExceededError as error:
            stored_bytes = 0
            for pending in call:
                pending.reply(error)
            return
        except ConflictError as error:
            # Fenced, or the log is not where this broker left it: what is in memory is wrong.
            self._answer_unknown(call)
            self._is_open = False
            self._on_lost(error)
            return
        finally:
            self._quota.account(grant, stored_bytes)
        self._number += 1
        self._end = appended.next
        entries = [
            Entry(
                first=Offset(result.offset),
                count=pending.batch.count,
                broker_epoch=self._broker_epoch,
                at_ms=appended.at_ms,
                data=pending.batch.data,
                ttl_ms=pending.batch.ttl_ms,
                series=pending.batch.producer,
                number=pending.batch.first if pending.batch.producer else -1,
            )
            for pending, result in zip(call, appended.results, strict=True)
            if result.status == "stored"
        ]
        # Of the batch that waited longest, for all of the call: one look at the clock.
        self._waits.add(1000 * (self._clock() - call[0].submitted_at), len(call))
        if entries:
            self._on_stored(entries)
        parked = [each.due_ms for each in appended.results if each.status == "parked"]
        if parked:
            self._on_parked(min(parked))
        for pending, result in zip(call, appended.results, strict=True):
            pending.reply(self._moved() if result.status == "moved" else result)

    async def _append_until_answered(
        self, batches: list[AppendBatch], room_bytes: int | None, passed_ms: int
    ) -> Appended:
        is_in_doubt, until_answered = False, UntilAnswered(_log, WRITE_RETRY_S)
        while True:
            try:
                window_ms, max_ids = self._id_rules()
                return await self._store.append(
                    self._partition,
                    broker_epoch=self._broker_epoch,
                    number=self._number,
                    expected=Offset(self._end),
                    batches=batches,
                    room_bytes=room_bytes,
                    passed_ms=passed_ms,
                    id_window_ms=window_ms,
                    max_ids=max_ids,
                )
            except QuotaExceededError as error:
                if not is_in_doubt:
                    raise
                # An earlier try may be stored. The next call must not bear its number: it would
                # get its answer.
                raise AppendGapError(
                    f"partition {self._partition}: append {self._number} is in doubt, and Redis is "
                    "too full to tell"
                ) from error
            except StoreUnavailableError as error:
                # The same call again, under the same number, finds out what became of it.
                is_in_doubt = is_in_doubt or not error.is_outcome_known
                await until_answered.failed(
                    "append to %s: %s; asking again", self._partition, error
                )

    def _count_time(self, now: float) -> int:
        """Return how much time has passed since this was asked last, in whole ms."""
        passed_ms = int((now - self._counted_upto) * 1000)
        if passed_ms > MAX_PASSED_MS:
            self._counted_upto = now
            return MAX_PASSED_MS
        self._counted_upto += passed_ms / 1000
        return passed_ms

    def _answer_unknown(self, call: list[_Pending]) -> None:
        error = OutcomeUnknownError(
            f"partition {self._partition}: the store did not say whether the batch is stored; "
            "send it again under the same numbers"
        )
        for pending in call:
            pending.reply(error)


async def _with_checksums(call: list[_Pending]) -> list[_Pending]:
    """Return batches with the checksum of their content, for the audit record.

    Small ones are expanded here, which takes microseconds; together large ones in a thread, as the
    lease has to be renewed meanwhile.
    """
    headers = [read_header(each.batch.data) if each.batch.data else None for each in call]
    if sum(header.raw_bytes for header in headers if header) <= MAX_EXPANDED_HERE_BYTES:
        return _checksummed(call, headers)
    return await asyncio.to_thread(_checksummed, call, headers)


def _checksummed(call: list[_Pending], headers: list[BatchHeader | None]) -> list[_Pending]:
    return [
        pending
        if header is None
        else replace(
            pending,
            batch=replace(pending.batch, content_crc=content_crc(pending.batch.data, header)),
        )
        for pending, header in zip(call, headers, strict=True)
    ]


def _aged(pending: _Pending, now: float) -> AppendBatch:
    """Return a batch as it is to be stored: a repeat has grown older while it waited here."""
    batch = pending.batch
    if not batch.age_ms:
        return batch
    return replace(batch, age_ms=batch.age_ms + int((now - pending.submitted_at) * 1000) + 1)


def _asks_for_id(batch: AppendBatch) -> bool:
    """Whether a batch is stored only if its id is new; what has waited was asked before."""
    return bool(batch.message_id) and batch.kind != "enqueue"
