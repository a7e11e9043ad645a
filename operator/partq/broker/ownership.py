"""The partitions of this broker: claimed, given up in order, or lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from partq.broker.partition import OwnedPartition
from partq.broker.subscription import Subscription
from partq.core.model import BrokerEpoch, BrokerId, Cause, PartitionId
from partq.errors import ConflictError, NotOwnerError, PartqError, UnknownGroupError
from partq.store.log import Log
from partq.store.partitions import Partitions

SETTLE_TIMEOUT_S = 5.0
"""How long giving up a partition waits for the store."""

_log = logging.getLogger(__name__)


class Ownership:
    """What this broker owns by its memory; the partition's record in Redis decides."""

    def __init__(
        self,
        partitions: Partitions,
        log: Log,
        *,
        broker: BrokerId,
        incarnation: str,
        clock: Callable[[], float],
        tail_bytes: Callable[[], int],
        max_bytes: Callable[[], int | None],
        on_claimed: Callable[[OwnedPartition], None],
        empty: Callable[[Subscription], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        self.owned: dict[PartitionId, OwnedPartition] = {}
        self._partitions = partitions
        self._log = log
        self._broker = broker
        self._incarnation = incarnation
        self._clock = clock
        self._tail_bytes = tail_bytes
        self._max_bytes = max_bytes
        self._on_claimed = on_claimed
        self._empty = empty
        self._spawn = spawn
        self._claiming: set[PartitionId] = set()

    async def claim(
        self,
        partition: PartitionId,
        expected: BrokerEpoch,
        cause: Cause = Cause.BROKER_CHANGE,
    ) -> None:
        """Become the owner of a partition whose record names `expected` as its broker epoch.

        Raises:
            FencedError: another broker was faster.
        """
        if partition in self._claiming:
            return
        self._claiming.add(partition)
        try:
            claim = await self._partitions.claim(
                partition, self._broker, self._incarnation, expected=expected
            )
        finally:
            self._claiming.discard(partition)
        older = self.owned.pop(partition, None)
        if older is not None:
            older.drop(cause)
        owned = OwnedPartition.from_claim(
            partition,
            claim,
            now=self._clock(),
            cause=cause,
            log=self._log,
            tail_bytes=self._tail_bytes(),
            max_bytes=self._max_bytes,
            on_lost=self.lose,
        )
        self.owned[partition] = owned
        owned.chain.start()
        _log.info("partition %s claimed, broker epoch %d", partition, claim.broker_epoch)
        self._on_claimed(owned)

    async def give_up(self, partition: PartitionId) -> None:
        """Give a partition up: no more appends, acks stored, then free for others.

        Raises:
            NotOwnerError: it is not owned here.
            FencedError: it was lost meanwhile.
        """
        owned = self.owned.get(partition)
        if owned is None or owned.is_yielding:
            raise NotOwnerError(f"partition {partition}: not owned by {self._broker}")
        owned.is_yielding = True
        try:
            async with asyncio.timeout(SETTLE_TIMEOUT_S):
                await owned.chain.finish()
                for subscription in list(owned.groups.values()):
                    await self._empty(subscription)
                await self._partitions.yield_(
                    partition, broker_epoch=owned.broker_epoch, successor=None
                )
        finally:
            # Without the script's answer ownership is in doubt: claiming again settles it.
            self._drop(owned)

    def drop_all(self) -> list[OwnedPartition]:
        """Forget everything; return what it was."""
        held = list(self.owned.values())
        for owned in held:
            self._drop(owned)
        return held

    def lose(self, owned: OwnedPartition, error: PartqError) -> None:
        """Drop all memory of a partition: what was believed of it is wrong."""
        if self.owned.get(owned.id) is owned:
            _log.warning("partition %s lost: %s", owned.id, error)
        self._drop(owned)

    def lose_subscription(self, subscription: Subscription, error: PartqError) -> None:
        """Drop what an error of one group's call has shown to be wrong."""
        owned = self.owned.get(subscription.partition)
        if owned is None or owned.broker_epoch != subscription.broker_epoch:
            return
        if isinstance(error, UnknownGroupError):
            subscription.drop(Cause.NONE)
            owned.groups.pop(subscription.group, None)
        else:
            self.lose(owned, error)

    def store_restarted(self) -> None:
        """Redis is another one, or the same with less: nothing in memory can be trusted."""
        self._spawn(self._claim_again(self.drop_all()), "claim again")

    async def verify(self) -> None:
        """Keep only what is still on record here: the lease was over, others may have claimed."""
        for owned in list(self.owned.values()):
            record = await self._partitions.read(owned.id)
            if record.broker_epoch != owned.broker_epoch:
                self.lose(owned, ConflictError(f"broker epoch is {record.broker_epoch} now"))

    async def _claim_again(self, held: list[OwnedPartition]) -> None:
        for owned in held:
            try:
                record = await self._partitions.read(owned.id)
                if record.owner != self._broker:
                    continue
                has_less = record.next < owned.tail.end
                cause = Cause.STORE_ROLLED_BACK if has_less else Cause.BROKER_CHANGE
                await self.claim(owned.id, record.broker_epoch, cause)
            except PartqError as error:
                # The watch finds it without an owner, and claims it.
                _log.warning("partition %s not claimed again: %s", owned.id, error)

    def _drop(self, owned: OwnedPartition) -> None:
        if self.owned.get(owned.id) is owned:
            del self.owned[owned.id]
        owned.drop(Cause.BROKER_CHANGE)
