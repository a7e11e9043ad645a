"""Batches that wait follow their slots, before any of them is appended in the new partition."""

import logging
from collections.abc import Callable

from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.model import PartitionId
from partq.core.slot_table import SlotRanges
from partq.errors import BadBatchError, UndecodableError
from partq.store.schedule.entry_moves import NOT_SEALED, EntryMoves, Gift, WaitingEntry
from partq.wire import batch

MAX_ENTRIES = 128
MAX_BYTES = 4 * 1024 * 1024
"""Entries that are read, and carried over, at once."""

IsHeld = Callable[[], bool]

_log = logging.getLogger(__name__)


class EntryMover:
    """Carries entries from the predecessors of a partition, which are sealed, into it.

    A predecessor gives an entry away by a script, the partition takes it by another one, and then
    the predecessor forgets it. After each step the next owner goes on where this one has stopped.
    """

    def __init__(self, moves: EntryMoves) -> None:
        self._moves = moves

    async def carry(self, owned: OwnedPartition, is_held: IsHeld) -> bool:
        """Carry all over; False: not yet, as a predecessor is not sealed, or lacks entries.

        `is_held`: whether the broker still owns the partition.

        Raises:
            FencedError: another broker has claimed it.
            StoreUnavailableError: no answer; what is carried over by then stays so.
        """
        predecessors = owned.layout.predecessors
        if not predecessors or await self._moves.is_complete(owned.id):
            return True
        is_whole = True
        for giver, ranges in sorted(predecessors.items()):
            was_complete = await self._moves.is_complete(giver)
            is_sealed = await self._carry_from(owned, giver, ranges, is_held)
            is_whole = is_whole and was_complete and is_sealed
        if is_whole and is_held():
            await self._moves.complete(owned.id, broker_epoch=owned.broker_epoch)
        return is_whole

    async def _carry_from(
        self,
        owned: OwnedPartition,
        giver: PartitionId,
        ranges: SlotRanges,
        is_held: IsHeld,
    ) -> bool:
        """Carry what a predecessor has; False: it is not sealed, as the store knows it now."""
        last: WaitingEntry | None = None
        while is_held():
            # Also what an owner before has left on its way.
            await self._adopt(owned, giver)
            entries = await self._moves.read(
                giver, last, max_entries=MAX_ENTRIES, max_bytes=MAX_BYTES
            )
            if not entries:
                break
            gifts = [gift for each in entries if (gift := _gift(giver, each, ranges)) is not None]
            given = await self._moves.give(giver, owned.id, gifts) if gifts else 0
            if given == NOT_SEALED:
                return False
            # One that differs now was cut for another partition: it is read again.
            if given == len(gifts):
                last = entries[-1]
        # A late call of an owner before may have given something since.
        await self._adopt(owned, giver)
        return True

    async def _adopt(self, owned: OwnedPartition, giver: PartitionId) -> None:
        gifts = await self._moves.read_leaving(giver, owned.id)
        for at in range(0, len(gifts), MAX_ENTRIES):
            some = gifts[at : at + MAX_ENTRIES]
            await self._moves.adopt(owned.id, giver, some, broker_epoch=owned.broker_epoch)
            await self._moves.forget(giver, [field for field, _ in some])
            owned.due_news.set()


def _gift(giver: PartitionId, entry: WaitingEntry, ranges: SlotRanges) -> Gift | None:
    """Return what of an entry goes to the partition that has some slots now; None: nothing."""
    try:
        slots = batch.read_slots(entry.data, batch.read_header(entry.data))
        goes = [any(slot in each for each in ranges) for slot in slots]
        if not any(goes):
            return None
        if all(goes):
            return Gift(entry, b"", b"")
        messages = [batch.encode_message(each) for each in batch.decode(entry.data)]
    except (BadBatchError, UndecodableError) as error:
        _log.error("partition %s: the scheduled entry %d stays: %s", giver, entry.number, error)
        return None

    def cut(is_given: bool) -> bytes:
        return batch.encode(
            [m for m, goes_on in zip(messages, goes, strict=True) if goes_on is is_given],
            [s for s, goes_on in zip(slots, goes, strict=True) if goes_on is is_given],
        )

    return Gift(entry, cut(True), cut(False))
