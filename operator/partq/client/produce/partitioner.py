"""From messages to partitions: key → slot → partition, and a place for messages without a key."""

import random
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import TypeVar

from partq.client.produce.message_encoding import encode_checked
from partq.client.produce.slot_routes import SlotRoutes
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
    """Chooses slots, and sorts messages by the partitions that they are sent to."""

    def __init__(
        self,
        layout: Layout,
        keyless_policy: str,
        unavailable: Collection[PartitionId],
        chance: random.Random,
    ) -> None:
        self._slots_of_keys = SlotCache()
        self._keyless_policy = keyless_policy
        self._chance = chance
        self._unavailable = unavailable
        self.follow(SlotRoutes.of(layout.table))

    def follow(self, routes: SlotRoutes) -> None:
        """Sort messages by these routes from now on."""
        self.routes = routes
        self._message_bins: dict[PartitionId, list[Message]] = {
            each: [] for each in routes.current_partitions
        }
        self._slot_bins: dict[PartitionId, list[int]] = {each: [] for each in self._message_bins}
        self._bins: tuple[list[list[Message]], list[list[int]]] | None = None
        keyless = KeylessPartitioner(
            routes, self._keyless_policy, self._chance, unavailable=self._unavailable
        )
        # As they are: no call more for each message.
        self.partition_of: Callable[[int], PartitionId] = routes.partition_of
        self.keyless: Callable[[], int] = keyless.slot
        self._avoid = keyless.avoid

    def avoid(self, unavailable: Collection[PartitionId]) -> None:
        """Choose no slot of these partitions for messages without a key, unless all are."""
        self._unavailable = unavailable
        self._avoid(unavailable)

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
        message_bin_of, slot_bin_of = self._bins_of()
        deque(map(list.append, map(message_bin_of.__getitem__, slots), messages), 0)
        deque(map(list.append, map(slot_bin_of.__getitem__, slots), slots), 0)
        filled = []
        for partition, message_bin in self._message_bins.items():
            if slot_bin := self._slot_bins[partition]:
                filled.append((partition, message_bin[:], slot_bin[:]))
                message_bin.clear()
                slot_bin.clear()
        return filled

    def encode(
        self, messages: Sequence[Message], slots: Sequence[int], max_message_bytes: int
    ) -> list[tuple[PartitionId, list[bytes], list[int]]]:
        """Sort messages as `sort` does, and encode them; raises as `encode_checked`."""
        return [
            (partition, encode_checked(part, max_message_bytes), part_slots)
            for partition, part, part_slots in self.sort(messages, slots)
        ]

    def _bins_of(self) -> tuple[list[list[Message]], list[list[int]]]:
        """Return the bins of each slot, half a megabyte: only who sends lists needs them."""
        if self._bins is None:
            ranges = self.routes.ranges
            self._bins = _by_slot(self._message_bins, ranges), _by_slot(self._slot_bins, ranges)
        return self._bins


def _by_slot(
    bins: Mapping[PartitionId, list[T]], ranges: Mapping[PartitionId, SlotRanges]
) -> list[list[T]]:
    table: list[list[T]] = [[]] * SLOT_COUNT
    for partition, bin_ in bins.items():
        for each in ranges[partition]:
            table[each.start : each.stop] = [bin_] * len(each)
    return table
