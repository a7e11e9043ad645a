"""Seals owned partitions: a change of the partition count takes slots away from them."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

from partq.aio import UntilAnswered
from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.layout import Layout
from partq.core.model import Offset, PartitionId
from partq.core.rescale.seals import DueSeal, due_seals
from partq.errors import ConflictError, NotStoredError, PartqError, StoreUnavailableError
from partq.store.records.layout.seals import Seals
from partq.store.retries import WRITE_RETRY_S

_log = logging.getLogger(__name__)


class SlotSealer:
    """Records in a partition where its log ends for slots that leave it.

    A seal is a step of the chain of appends: none is under way, and what is stored after it has
    none of the slots. So no batch that waits is stored before it, once the layout is known.
    """

    def __init__(
        self,
        seals: Seals,
        *,
        layout: Callable[[], Layout | None],
        on_lost: Callable[[OwnedPartition, PartqError], None],
    ) -> None:
        self._seals = seals
        self._layout = layout
        self._on_lost = on_lost
        self._seen: Layout | None = None
        self._due: Mapping[PartitionId, list[DueSeal]] = {}
        """Of the layout that was seen last: computed once, as a queue may have many partitions."""

    def follow(self, owned: OwnedPartition) -> None:
        """Seal a partition before anything else is appended, if the layout asks for that.

        One that takes no messages yet is sealed after it has been opened.
        """
        if owned.layout.is_open and not owned.is_sealing and self._next(owned) is not None:
            owned.is_sealing = True
            owned.appender.run_next(partial(self._seal_all, owned))

    def _next(self, owned: OwnedPartition) -> DueSeal | None:
        layout = self._layout()
        if layout is None:
            return None
        if layout is not self._seen:
            self._seen, self._due = layout, due_seals(layout)
        due = self._due.get(owned.id, ())
        return next((each for each in due if each.generation > owned.layout.generation), None)

    async def _seal_all(self, owned: OwnedPartition) -> None:
        while (due := self._next(owned)) is not None:
            try:
                await self._seal(owned, due)
            except (ConflictError, NotStoredError) as error:
                # Fenced, or its record is not what memory started from.
                self._on_lost(owned, error)
                return
        owned.is_sealing = False

    async def _seal(self, owned: OwnedPartition, due: DueSeal) -> None:
        settled = self._removable_seals(owned)
        end = await self._seal_until_answered(owned, due, settled)
        layout = owned.layout
        kept = {each: stop for each, stop in layout.seals.items() if each not in settled}
        owned.layout = replace(
            layout,
            generation=due.generation,
            slots=due.slots,
            seals={**kept, due.generation: end},
        )
        owned.appender.keep_slots(due.slots)
        _log.info(
            "partition %s sealed at %d by change %d of the partition count",
            *(owned.id, end, due.generation),
        )

    def _removable_seals(self, owned: OwnedPartition) -> list[int]:
        """Return the changes that have sealed the partition, and that it is settled for."""
        awaited = {each.generation for each in self._due.get(owned.id, ())}
        return sorted(owned.layout.seals.keys() - awaited)

    async def _seal_until_answered(
        self, owned: OwnedPartition, due: DueSeal, settled: Collection[int]
    ) -> Offset:
        until_answered = UntilAnswered(_log, WRITE_RETRY_S)
        while True:
            if self._layout() is None:
                await until_answered.failed("seal of %s: the layout is read again first", owned.id)
                continue
            self._check_due(owned, due)
            try:
                return await self._seals.seal(
                    owned.id,
                    broker_epoch=owned.broker_epoch,
                    generation=due.generation,
                    slots=due.slots,
                    settled=settled,
                )
            except StoreUnavailableError as error:
                await until_answered.failed("seal of %s: %s; asking again", owned.id, error)

    def _check_due(self, owned: OwnedPartition, due: DueSeal) -> None:
        """Refuse a seal that the layout, as it was read last, does not ask for.

        The server of the partition may be silent for long. If the server of the layout has
        forgotten the change meanwhile, it may be aborted, and a seal would be for good.

        Raises:
            ConflictError: the layout does not ask for it; an earlier try may have sealed it.
        """
        if self._next(owned) != due:
            raise ConflictError(
                f"partition {owned.id}: the layout does not ask for the seal of change "
                f"{due.generation} any more; its record is read again"
            )
