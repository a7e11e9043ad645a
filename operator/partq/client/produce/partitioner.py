"""From messages to partitions: key → slot → partition, and a place for messages without a key."""

import random
from collections import deque
from collections.abc import Collection, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Final, TypeVar

from partq.core.hashing import slot_of
from partq.core.keyless_partitioner import KeylessPartitioner
from partq.core.layout import Layout
from partq.core.model import SLOT_COUNT, PartitionId
from partq.core.slot_table import SlotRanges
from partq.errors import BadRequestError
from partq.wire.batch import Message

MAX_KEYS_REMEMBERED = 100_000

T = TypeVar("T")


class SlotCache(dict[str, int]):
    """Remembers slots, so that hashing a list of messages is C code for keys seen before."""

    def __missing__(self, key: str) -> int:
        if not isinstance(key, str):  # bytes would hash, too, and no consumer could read them
            raise BadRequestError(f"partition key: got {type(key).__name__}, expected str or None")
        if len(self) >= MAX_KEYS_REMEMBERED:
            self.clear()
        slot = self[key] = slot_of(key)
        return slot


class Partitioner:
    """Chooses slots by one layout, and sorts messages by partition."""

    def __init__(
        self,
        layout: Layout,
        keyless_policy: str,
        unavailable: Collection[PartitionId],
        chance: random.Random,
    ) -> None:
        self.layout = layout
        self._slots_of_keys = SlotCache()
        self._partitions = layout.current_partitions
        self._ranges = [layout.slots(partition) for partition in self._partitions]
        self._message_bins: list[list[Message]] = [[] for _ in self._partitions]
        self._slot_bins: list[list[int]] = [[] for _ in self._partitions]
        keyless = KeylessPartitioner(layout, keyless_policy, chance, unavailable=unavailable)
        # As they are: no call more for each message.
        self.keyless: Final = keyless.slot
        self.avoid: Final = keyless.avoid

    def of_key(self, key: str) -> int:
        """Return the slot of a key; raises `BadRequestError` as `slot_of` does."""
        return self._slots_of_keys[key]

    def of(self, messages: Sequence[Message]) -> list[int]:
        """Return the slot of each message; raises `BadRequestError` for an unusable key."""
        keys = list(map(attrgetter("key"), messages))
        lookup = self._slots_of_keys.__getitem__
        if None not in keys:
            return list(map(lookup, keys))
        return [self.keyless() if key is None else lookup(key) for key in keys]

    def sort(
        self, messages: Sequence[Message], slots: Sequence[int]
    ) -> list[tuple[PartitionId, list[Message], list[int]]]:
        """Sort messages by partition, those of one partition in the order given."""
        message_bin_of, slot_bin_of = self._bins_of
        deque(map(list.append, map(message_bin_of.__getitem__, slots), messages), 0)
        deque(map(list.append, map(slot_bin_of.__getitem__, slots), slots), 0)
        filled = []
        for partition, message_bin, slot_bin in zip(
            self._partitions, self._message_bins, self._slot_bins, strict=True
        ):
            if slot_bin:
                filled.append((partition, message_bin[:], slot_bin[:]))
                message_bin.clear()
                slot_bin.clear()
        return filled

    @cached_property
    def _bins_of(self) -> tuple[list[list[Message]], list[list[int]]]:
        """The bins of each slot, half a megabyte: only who sends lists needs them."""
        return (
            _by_slot(self._message_bins, self._ranges),
            _by_slot(self._slot_bins, self._ranges),
        )


def _by_slot(bins: list[T], ranges: list[SlotRanges]) -> list[T]:
    table = [bins[0]] * SLOT_COUNT
    for bin_, slots in zip(bins, ranges, strict=True):
        for each in slots:
            table[each.start : each.stop] = [bin_] * len(each)
    return table
