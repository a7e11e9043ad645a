"""The partitions of this broker: claimed, given up in order, or lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from partq.broker.log.buffers import Buffers
from partq.broker.log.holders import Unacknowledged
from partq.broker.log.known_ids import KnownIds
from partq.broker.log.quota import StorageQuota
from partq.broker.partition.books import BookMaker
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.model import BrokerId, Cause, PartitionId
from partq.core.samples.waits import WaitCounts
from partq.errors import (
    BrokerClosingError,
    ConflictError,
    DataLossError,
    NotOwnerError,
    PartqError,
    UnknownGroupError,
)
from partq.store.records.audit import Audits
from partq.store.records.log import Log
from partq.store.records.partitions import Partitions
from partq.store.records.stored_partition import Claim, StoredPartition

SETTLE_TIMEOUT_S = 5.0
"""How long giving up a partition waits for the store."""
MAX_MISSED = 2000
"""How much of what a group has missed is remembered: more than it can have dead letters."""
CLAIMS_AT_ONCE = 200
"""Claims that are under way together after a restart of Redis."""

_log = logging.getLogger(__name__)


class OwnedPartitions:
    """Partitions that this broker owns by its memory; the record in Redis decides."""

    def __init__(
        self,
        partitions: Partitions,
        log: Log,
        known_ids: KnownIds,
        *,
        broker: BrokerId,
        incarnation: str,
        clock: Callable[[], float],
        buffers: Buffers,
        quota: StorageQuota,
        audits: Audits,
        append_waits: WaitCounts,
        wants_audit: Callable[[], bool],
        on_claimed: Callable[[OwnedPartition], None],
        settle_acks: Callable[[ConsumedPartition], Awaitable[None]],
        learn_time: Callable[[], Awaitable[None]],
        make_book: BookMaker,
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        self.owned: dict[PartitionId, OwnedPartition] = {}
        self._last_ends: dict[PartitionId, int] = {}
        """Where a log ended when this broker held it last; a shorter one was rolled back."""
        self._missed: dict[tuple[PartitionId, str], set[str]] = {}
        """Messages that groups missed in the log, each with its error."""
        self._partitions = partitions
        self._log = log
        self._known_ids = known_ids
        self._broker = broker
        self._incarnation = incarnation
        self._clock = clock
        self._buffers = buffers
        self._quota = quota
        self._audits = audits
        self._append_waits = append_waits
        self._wants_audit = wants_audit
        self._on_claimed = on_claimed
        self._settle_acks = settle_acks
        self._learn_time = learn_time
        """Observes Redis's clock."""
        self._make_book = make_book
        self._spawn = spawn
        self._claiming: dict[PartitionId, asyncio.Event] = {}
        self._is_closed = False

    def unacknowledged(self) -> list[Unacknowledged]:
        """Return what each group still needs of each log that is owned here."""
        return [
            Unacknowledged(
                group,
                owned.id,
                consumed.mark,
                owned.tail.end,
                len(consumed.outbox.letters) if consumed.mark < consumed.book.cursor else 0,
            )
            for owned in self.owned.values()
            for group, consumed in owned.groups.items()
        ]

    async def claim(self, partition: PartitionId, seen: StoredPartition) -> None:
        """Become the owner of a partition whose record was `seen`, as long as it says the same.

        Whether another owner's lease is over is to be judged by what was read *after* the record.
        While a claim of it is under way here, this waits for that one instead; what is held here
        under that record's broker epoch already stays as it is.

        Raises:
            FencedError: another broker was faster, or the owner is back.
            BrokerClosingError: this broker gives everything up.
        """
        under_way = self._claiming.get(partition)
        if under_way is not None:
            await under_way.wait()
            return
        ended = self._claiming[partition] = asyncio.Event()
        try:
            self._check_open()
            held = self.owned.get(partition)
            is_current = held is not None and held.broker_epoch == seen.broker_epoch
            if held is not None and is_current and not held.is_yielding:
                return  # the caller read the record that a claim from here has just written
            claim = await self._partitions.claim(
                partition,
                self._broker,
                self._incarnation,
                expected=seen.broker_epoch,
                affirmed=seen.affirmed,
                wants_audit=self._wants_audit(),
            )
            if any(record.parked or record.locks for record in claim.groups.values()):
                await self._learn_time()  # how long keys still wait, and locks of sessions last
            self._check_open()
            self._hold(partition, claim, seen)
        finally:
            del self._claiming[partition]
            ended.set()

    def _check_open(self) -> None:
        if self._is_closed:
            raise BrokerClosingError(f"broker {self._broker} shuts down; another one claims")

    def _hold(self, partition: PartitionId, claim: Claim, seen: StoredPartition) -> None:
        older = self.owned.get(partition)
        if older is not None:
            self._drop(older)
        last_end = self._last_ends.get(partition, 0)
        is_rolled_back = claim.next < last_end
        if is_rolled_back:
            _log.warning(
                "partition %s: Redis has lost its messages at the offsets %d to %d",
                *(partition, claim.next, last_end - 1),
            )
        owned = OwnedPartition.from_claim(
            partition,
            claim,
            clock=self._clock,
            cause=Cause.STORE_ROLLED_BACK if is_rolled_back else Cause.BROKER_CHANGE,
            log=self._log,
            buffers=self._buffers,
            quota=self._quota,
            audits=self._audits,
            broker=self._broker,
            append_waits=self._append_waits,
            known_ids=self._known_ids,
            on_lost=self.lose,
            make_book=self._make_book,
        )
        owned.stored_at_ms = seen.at_ms
        owned.ids.count = seen.known_ids
        self.owned[partition] = owned
        owned.appender.start()
        _log.info("partition %s claimed, broker epoch %d", partition, claim.broker_epoch)
        self._on_claimed(owned)

    async def give_up(self, partition: PartitionId, successor: BrokerId | None = None) -> None:
        """Give a partition up: no more appends, acks stored, then free for others.

        `successor` claims it at once; None: the broker that is told to.

        Raises:
            NotOwnerError: it is not owned here.
            FencedError: it was lost meanwhile.
        """
        owned = self.owned.get(partition)
        if owned is None or owned.is_yielding:
            raise NotOwnerError(
                f"partition {partition}: not owned by {self._broker}; read /layout for its broker"
            )
        owned.is_yielding = True
        try:
            async with asyncio.timeout(SETTLE_TIMEOUT_S):
                await owned.appender.finish()
                for consumed in list(owned.groups.values()):
                    await self._settle_acks(consumed)
                await self._partitions.yield_(
                    partition, broker_epoch=owned.broker_epoch, successor=successor
                )
        finally:
            # Without the script's answer ownership is in doubt: claiming again settles it.
            self._drop(owned)

    async def close(self, successor: Callable[[PartitionId], BrokerId | None]) -> None:
        """Give everything up, and claim nothing any more."""
        self._is_closed = True
        await asyncio.gather(
            *(self.give_up(partition, successor(partition)) for partition in list(self.owned)),
            return_exceptions=True,
        )
        self.drop_all()

    def lose(self, owned: OwnedPartition, error: PartqError) -> None:
        """Drop all memory of a partition: what was believed of it is wrong."""
        if self.owned.get(owned.id) is owned:
            _log.warning("partition %s lost: %s", owned.id, error)
        self._drop(owned)

    def lose_group(self, consumed: ConsumedPartition, error: PartqError) -> None:
        """Drop what an error of one group's call has shown to be wrong.

        A message that the log does not hold may be missing in memory only, so the first time the
        record is read again. Then it is the group's trouble alone.
        """
        owned = self.owned.get(consumed.partition)
        if owned is None or owned.broker_epoch != consumed.broker_epoch:
            return
        if isinstance(error, UnknownGroupError):
            if owned.groups.get(consumed.group) is consumed:
                del owned.groups[consumed.group]  # else another one has its name by now
            self._missed.pop((consumed.partition, consumed.group), None)
            consumed.drop(Cause.NONE)
        elif isinstance(error, DataLossError) and not self._note_missed(consumed, error):
            consumed.missing = error.message
            _log.error("messages are missing after another claim, too: %s", error)
        else:
            self.lose(owned, error)

    def _note_missed(self, consumed: ConsumedPartition, error: DataLossError) -> bool:
        """Note what a group misses; return whether that is new."""
        missed = self._missed.setdefault((consumed.partition, consumed.group), set())
        is_new = error.message not in missed
        if len(missed) >= MAX_MISSED:
            missed.clear()
        missed.add(error.message)
        return is_new

    def drop_after_restart(self, is_lost: Callable[[PartitionId], bool]) -> None:
        """Drop what lies on a Redis that was restarted, and claim it again.

        `is_lost`: says whether a partition is stored at the node that was restarted; the other
        nodes of a cluster continue.
        """
        lost = [owned for owned in self.owned.values() if is_lost(owned.id)]
        for owned in lost:
            self._drop(owned)
        self._spawn(self._claim_again([owned.id for owned in lost]), "claim again")

    async def affirm(self) -> None:
        """Keep only partitions still stored as ours: the lease was over, others may have claimed.

        No broker can claim a kept partition by what it saw before. The lease must be renewed
        already: a broker that reads from now on sees that. Partitions on a silent node of a Redis
        Cluster are not kept; the others continue.

        Raises:
            StoreUnavailableError: no answer; nothing was dropped.
        """
        held = list(self.owned.values())
        lost = await self._partitions.affirm({owned.id: owned.broker_epoch for owned in held})
        for owned in held:
            if owned.id in lost:
                self.lose(
                    owned,
                    ConflictError("another broker epoch, or none, is stored; expected its own"),
                )

    async def _claim_again(self, held: list[PartitionId]) -> None:
        for start in range(0, len(held), CLAIMS_AT_ONCE):
            chunk = held[start : start + CLAIMS_AT_ONCE]
            await asyncio.gather(*map(self._claim_one_again, chunk))

    async def _claim_one_again(self, partition: PartitionId) -> None:
        try:
            record = await self._partitions.read(partition)
            if record.owner == self._broker and partition not in self.owned:
                await self.claim(partition, record)
        except PartqError as error:
            # The watch finds it without an owner, and claims it.
            _log.warning("partition %s could not be claimed again: %s", partition, error)

    def drop_all(self) -> None:
        """Forget everything."""
        for owned in list(self.owned.values()):
            self._drop(owned)

    def _drop(self, owned: OwnedPartition) -> None:
        if self.owned.get(owned.id) is owned:
            del self.owned[owned.id]
            self._last_ends[owned.id] = owned.tail.end
        owned.drop(Cause.BROKER_CHANGE)
