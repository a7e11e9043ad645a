"""Numbers of producers whose names outlive a process, carried over to the partitions that follow.

A series of a key over HTTP, and an outbox of dead letters, go on in the partition that has the
slots now. It has no record of them at first, so its owner asks the predecessors. They are sealed
by then, so what they know of the slots does not change any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.dead_letters import PRODUCER_PREFIX
from partq.core.model import PartitionId
from partq.core.producer_record import ProducerRecord
from partq.store.records.layout.seals import Seals
from partq.store.records.log import AppendResult, Log

MAX_KNOWN = 10_000
"""Names that are known to have a record, per partition; then they are looked up again."""


@dataclass(frozen=True, slots=True)
class CarriedNumbers:
    """What a predecessor knows of a producer."""

    partition: PartitionId
    record: ProducerRecord
    is_sparse: bool
    is_earlier: bool
    """A partition in between may have known higher numbers: it had to forget series."""

    @property
    def due(self) -> int:
        """The number that comes next."""
        return self.record.due

    def judge(self, first: int, count: int, digest: str) -> AppendResult | None:
        """Return the answer to messages that are not due; None: they are, so they are stored."""
        status = self.record.verdict(first, count, digest, is_sparse=self.is_sparse)
        if self.is_earlier and status in {"due", "out_of_sequence"}:
            return AppendResult("unknown_producer", -1, -1)
        if status == "due":
            return None
        is_known = status == "duplicate"
        if not is_known:
            return AppendResult(status, -1, self.due)
        place, entry = (find(first, count) for find in (self.record.place_of, self.record.entry_of))
        return AppendResult(status, place, self.due, entry)


class CarryOver:
    """Finds what predecessors know of a producer that the partition does not know."""

    def __init__(
        self,
        owned: Mapping[PartitionId, OwnedPartition],
        log: Log,
        seals: Seals,
    ) -> None:
        self._owned = owned
        self._log = log
        self._seals = seals

    async def find(self, partition: PartitionId, name: str, slot: int) -> CarriedNumbers | None:
        """Return what the predecessors of an owned partition know of a producer.

        None: nothing; or the partition has a record itself, takes no messages yet, or never had a
        predecessor. `slot`: of its messages, where they all have the same one.

        Raises:
            StoreUnavailableError: no answer.
        """
        owned = self._owned.get(partition)
        if owned is None or not owned.layout.is_open or not owned.layout.predecessors:
            return None
        if name in owned.known_producers:
            return None
        is_sparse = name.startswith(PRODUCER_PREFIX)
        if await self._log.producer_record(partition, name) is not None:
            if len(owned.known_producers) >= MAX_KNOWN:
                owned.known_producers.clear()
            owned.known_producers.add(name)
            return None
        # An outbox sends one letter at a time, and its numbers grow: whichever predecessor has its
        # last letter knows all that were before, whatever their slots.
        return await self._search(owned.layout.predecessors, name, None if is_sparse else slot)

    async def _search(
        self,
        predecessors: Mapping[PartitionId, tuple[range, ...]],
        name: str,
        slot: int | None,
    ) -> CarriedNumbers | None:
        """Return the highest of what the nearest predecessors know; `slot`: None: any slot's."""
        found: dict[PartitionId, ProducerRecord] = {}
        is_earlier = False
        seen: set[PartitionId] = set()
        waiting = [predecessors]
        while waiting:
            for partition, ranges in waiting.pop().items():
                if partition in seen or (slot is not None and not any(slot in r for r in ranges)):
                    continue
                seen.add(partition)
                record = await self._log.producer_record(partition, name)
                if record is not None:
                    found[partition] = record
                    continue
                origin, has_forgotten = await self._seals.read_origin(partition)
                is_earlier = is_earlier or has_forgotten
                waiting.append(origin)
        best = max(found.items(), key=lambda each: each[1].due, default=None)
        is_sparse = slot is None  # names of outboxes are not forgotten
        return best and CarriedNumbers(*best, is_sparse, is_earlier and not is_sparse)
