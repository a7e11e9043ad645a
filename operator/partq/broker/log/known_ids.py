"""Ids of messages that a partition knows: its appends ask, predecessors tell, age ends them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from partq.broker.config import QueueConfig
from partq.core.model import BrokerEpoch, PartitionId
from partq.errors import QuotaExceededError
from partq.store.message_ids import IdRecords
from partq.store.records.layout.seals import Seals
from partq.store.records.log import AppendBatch
from partq.wire.batch import read_header, read_slots

MAX_FORGET_CALLS = 20
"""How many calls forget ids of a partition in one look: enough for 20,000 that come each second."""
MAX_SOURCES = 1000
"""How many partitions that once had the slots of one are asked for its ids, the nearest first."""
SLACK_S = 60.0
"""How much longer than the window predecessors are asked: clocks of two servers differ."""

Slots = Sequence[range]


@dataclass(slots=True)
class IdProgress:
    """What memory holds of the ids of one partition that is owned."""

    sources: Mapping[PartitionId, Slots] | None = None
    """All that may know ids of slots that it has now; None: not read yet."""
    since: float | None = None
    """When they were asked first, on the broker's clock."""
    is_alone: bool = False
    """Nothing that a predecessor knows counts any more."""
    count: int | None = None
    """How many it knew at the last look; None: nobody has looked."""


class KnownIds:
    """Has the partitions of a broker know ids for as long as the queue asks for.

    Args:
        records: of ids.
        seals: which tell where slots came from.
        config: of the queue; None: not read yet.
        clock: returns seconds that never go back.
    """

    def __init__(
        self,
        records: IdRecords,
        seals: Seals,
        config: Callable[[], QueueConfig | None],
        clock: Callable[[], float],
    ) -> None:
        self._records = records
        self._seals = seals
        self._config = config
        self._clock = clock

    @property
    def window_ms(self) -> int:
        """For how long an id is known; 0: ids are headers, and nothing else."""
        config = self._config()
        return 0 if config is None else config.id_window_ms

    @property
    def max_ids(self) -> int:
        """How many ids a partition knows; 0: none."""
        config = self._config()
        return 0 if config is None else config.max_ids

    def refusal(self, partition: PartitionId, retry_after_ms: int) -> QuotaExceededError:
        """Return why a batch with an id was refused: the partition knows too many."""
        return QuotaExceededError(
            f"partition {partition}: it knows {self.max_ids} ids of messages, which is the most "
            "(duplicateDetection.maxIdsPerPartition), and forgets none before its time; publish "
            "again later, or raise the limit, or shorten windowSeconds",
            retry_after_s=retry_after_ms / 1000,
        )

    async def adopt(
        self,
        partition: PartitionId,
        broker_epoch: BrokerEpoch,
        batches: Iterable[AppendBatch],
        progress: IdProgress,
        predecessors: Mapping[PartitionId, Slots],
    ) -> None:
        """Have a partition know what its predecessors know of the ids of batches, before an append.

        Slots have left a predecessor before their successor takes a message, so what it knows of
        their ids is complete. It is asked for as long as the window lasts, from the first time on.

        Raises:
            FencedError: another broker has claimed the partition.
            StoreUnavailableError: no answer; a repeat finds out.
        """
        if progress.is_alone or not predecessors or not self.window_ms:
            return
        now = self._clock()
        if progress.since is None:
            progress.since = now
        elif now - progress.since > self.window_ms / 1000 + SLACK_S:
            progress.is_alone, progress.sources = True, None
            return
        if progress.sources is None:
            progress.sources = await self._find_sources(predecessors)
        wanted = {}
        for batch in batches:
            if not batch.message_id or not batch.data:
                continue
            (slot, *_) = read_slots(batch.data, read_header(batch.data))
            wanted[batch.message_id] = [
                each
                for each, ranges in progress.sources.items()
                if any(slot in slots for slots in ranges)
            ]
        known = await self._records.find(wanted)
        if known:
            await self._records.adopt(partition, known, broker_epoch=broker_epoch)

    async def _find_sources(
        self, predecessors: Mapping[PartitionId, Slots]
    ) -> Mapping[PartitionId, Slots]:
        """Return predecessors, theirs, and so on, each with the slots that came on from it."""
        found: dict[PartitionId, Slots] = {}
        waiting = [predecessors]
        asked = 0
        while waiting and asked < MAX_SOURCES:
            for partition, ranges in waiting.pop(0).items():
                found[partition] = (*found.get(partition, ()), *ranges)
                asked += 1
                origin, _ = await self._seals.read_origin(partition)
                if origin:
                    waiting.append({each: _common(its, ranges) for each, its in origin.items()})
        return found

    async def forget(
        self, partition: PartitionId, broker_epoch: BrokerEpoch, progress: IdProgress
    ) -> None:
        """Forget what is older than the window; of a queue that asks for no ids, all.

        Raises:
            FencedError: another broker has claimed the partition.
            StoreUnavailableError: no answer; a later look does the rest.
        """
        if not self.window_ms and not progress.count:
            return
        for _ in range(MAX_FORGET_CALLS):
            found = await self._records.forget(
                partition, broker_epoch=broker_epoch, window_ms=self.window_ms
            )
            progress.count = found.known_count
            if found.is_done:
                return


def _common(these: Slots, others: Slots) -> Slots:
    """Return the slots that are in both."""
    pairs = ((max(a.start, b.start), min(a.stop, b.stop)) for a in these for b in others)
    return tuple(range(start, stop) for start, stop in pairs if start < stop)
