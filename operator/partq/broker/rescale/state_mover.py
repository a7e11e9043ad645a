"""States of keys follow their slots, before a group has the messages of the new partition."""

import asyncio
import logging
from collections.abc import Mapping

from partq.aio import Backoff
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.core.hashing import slot_of
from partq.core.model import PartitionId
from partq.core.slot_table import SlotRanges
from partq.errors import PartqError
from partq.store.key_states import KeyStates

MAX_CARRIED_BYTES = 1024 * 1024
"""About how many bytes of states are written at once."""
MAX_REMOVED = 500
"""How many keys are removed at once."""
FIRST_RETRY_S = 0.5
LAST_RETRY_S = 30.0
"""Waits before what could not be removed is removed again."""

Moved = Mapping[PartitionId, list[str]]
"""By predecessor, the keys whose states were carried over."""

_log = logging.getLogger(__name__)


class StateMover:
    """Carries states of keys from predecessors to a partition whose gate is about to open.

    The group has done with all messages of these keys in the predecessors, and this is stored; with
    the acks their states are. So nothing of them changes any more, and a try that has failed may
    begin again.
    """

    def __init__(self, key_states: KeyStates) -> None:
        self._store = key_states

    async def carry(
        self, consumed: ConsumedPartition, givers: Mapping[PartitionId, SlotRanges]
    ) -> Moved:
        """Write the states of all keys whose slots came with a change; return which those are.

        `givers`: the predecessors, and which slots came from each.

        Raises:
            FencedError, ConflictError, UnknownGroupError: the gate is another one, or not this
                broker's.
            StoreUnavailableError: no answer; some may be written: carry them all again.
        """
        moved: dict[PartitionId, list[str]] = {}
        if not givers:
            return moved  # all were carried over before
        chunk: dict[str, bytes] = {}
        is_first, size, count = True, 0, 0
        for giver, ranges in sorted(givers.items()):
            async for part in self._store.scan(giver, consumed.group):
                for key, state in part.items():
                    slot = slot_of(key)
                    if not any(slot in each for each in ranges):
                        continue
                    moved.setdefault(giver, []).append(key)
                    chunk[key] = state
                    size += len(key) + len(state)
                    count += 1
                    if size >= MAX_CARRIED_BYTES:
                        await self._write(consumed, chunk, is_first=is_first)
                        chunk, is_first, size = {}, False, 0
        # Also without any: an earlier try may have written what is no more.
        if chunk or (is_first and consumed.states.stored_count):
            await self._write(consumed, chunk, is_first=is_first)
        consumed.states.begin_at(count)
        return moved

    async def _write(
        self, consumed: ConsumedPartition, states: Mapping[str, bytes], *, is_first: bool
    ) -> None:
        await self._store.carry(
            consumed.partition,
            consumed.group,
            states,
            broker_epoch=consumed.broker_epoch,
            born=consumed.born,
            gate=consumed.gate,
            is_first=is_first,
        )
        consumed.states.begin_at(consumed.states.stored_count + len(states))

    async def remove(self, consumed: ConsumedPartition, moved: Moved) -> None:
        """Remove from the predecessors what the partition has by now: its gate is open.

        Until the store has done it, or the partition is lost here. What is left then takes room
        until the predecessor is removed, and nobody reads it.
        """
        parts = [
            (giver, keys[at : at + MAX_REMOVED])
            for giver, keys in moved.items()
            for at in range(0, len(keys), MAX_REMOVED)
        ]
        backoff = Backoff(FIRST_RETRY_S, LAST_RETRY_S)
        while parts:
            giver, keys = parts[-1]
            try:
                await self._store.remove_moved(
                    giver, consumed.group, keys, generation=consumed.partition.generation
                )
            except PartqError as error:
                if consumed.is_dropped:
                    _log.warning("%s: states that have moved stay: %s", giver, error)
                    return
                wait_s = backoff.next_s()
                _log.warning(
                    "%s: states that have moved could not be removed, it is tried again in %g s: "
                    "%s",
                    *(giver, wait_s, error),
                )
                await asyncio.sleep(wait_s)
            else:
                parts.pop()
