"""Finds out whether the store has set a queue's layout back, and what it has lost."""

import logging
from collections.abc import Collection, Mapping

from partq.coordinator.ports import PartitionRecord, PartitionStore
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.restoration import (
    MAX_LOST,
    RecordedLayout,
    in_force,
    is_set_back,
    last_known,
)
from partq.core.slot_table import MAX_PARTITIONS
from partq.errors import ConflictError

MAX_SKIPPED = 8
"""How many changes are looked for beyond the last known one, where partitions have no records."""

_log = logging.getLogger(__name__)


class LayoutRestorer:
    """Compares the layout with the records of partitions, where it may have been set back."""

    def __init__(self, queue: str, partitions: PartitionStore) -> None:
        self._queue = queue
        self._partitions = partitions
        self._seen: Layout | None = None
        """The layout as this process has read or written it last."""
        self._is_doubtful = False

    def keep(self, layout: Layout) -> None:
        """Keep a layout that is stored, and in line with the records, to compare the next with."""
        self._seen, self._is_doubtful = layout, False

    def doubt(self) -> None:
        """Compare the next layout with the records in any case."""
        self._is_doubtful = True

    def is_suspect(self, layout: Layout) -> bool:
        """Whether a layout may be older than the last one, or is the first that is seen.

        A first one that has never changed is not: brokers own partitions that it does not know, or
        a partition that it knows cannot be created again.
        """
        seen = self._seen
        if seen is None or self._is_doubtful:
            return layout.revision > 0 or self._is_doubtful
        return layout.revision <= seen.revision and layout != seen

    async def find_lost(
        self, layout: Layout, others: Collection[PartitionId] = ()
    ) -> Mapping[PartitionId, RecordedLayout] | None:
        """Return what the records say where the store has lost steps; None: it has lost nothing.

        `others`: partitions that brokers own, and that the layout does not know.

        Raises:
            ConflictError: it has lost too many.
            StoreUnavailableError: no answer.
        """
        records = await self._partitions.read_many(sorted({*layout.all_partitions(), *others}))
        recorded = {each: record.layout for each, record in records.items()}
        # They may have been removed, and no broker may know by which change.
        is_missing = not recorded.keys() >= {*layout.partitions()}
        until = layout.last_generation + MAX_SKIPPED if is_missing else 0
        if not is_missing and not is_set_back(layout, recorded):
            return None
        at = layout.generation
        while at < max(until, last_known(recorded)):
            at += 1
            if last_known(recorded) > layout.last_generation + MAX_LOST:
                raise ConflictError(
                    f"layout of {self._queue}: change {last_known(recorded)} is recorded in "
                    f"partitions, and the layout has lost all after {layout.last_generation}; at "
                    f"most {MAX_LOST} can be restored: restore a backup of all nodes of Redis"
                )
            found = await self.read_generation(at)
            recorded |= {each: record.layout for each, record in found.items()}
        if not is_set_back(layout, recorded):
            return None
        _log.warning(
            "queue %s: the store has set the layout back: change %d was the last, and it has %d of "
            "revision %d; it is restored from the records of partitions",
            *(self._queue, last_known(recorded), layout.last_generation, layout.revision),
        )
        return recorded

    async def read_generation(self, generation: int) -> dict[PartitionId, PartitionRecord]:
        """Return the records of all partitions that a change may have made.

        Raises:
            StoreUnavailableError: no answer.
        """
        names = [PartitionId(generation, index) for index in range(MAX_PARTITIONS)]
        return dict(await self._partitions.read_many(names))

    async def read_unused(self, generation: int) -> list[PartitionId]:
        """Return the partitions that a change has made which never came into force.

        Raises:
            ConflictError: it did come into force.
            StoreUnavailableError: no answer.
        """
        found = await self.read_generation(generation)
        if generation in in_force({each: record.layout for each, record in found.items()}):
            raise ConflictError(
                f"layout of {self._queue}: partitions of change {generation} take messages, and it "
                "is not in force; nothing of it is removed"
            )
        return sorted(found)
