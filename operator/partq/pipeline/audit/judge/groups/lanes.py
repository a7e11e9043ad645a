"""How far each slot was delivered, where a group keeps the order of each key alone."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

KEYED: Final = "keyed"
"""Flag of deliveries and releases of a group of order Key."""


class PublishedSlots:
    """The slots of what was published, by its offsets."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._slots: list[bytes] = []

    def add(self, first: int, slots: bytes) -> None:
        """Note the slots of a batch: u16, little-endian, behind what was noted before."""
        if not self._firsts or first > self._firsts[-1]:
            self._firsts.append(first)
            self._slots.append(slots)

    def within(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Return (offset, slot) of what is known of [first, stop)."""
        at = max(0, bisect_right(self._firsts, first) - 1)
        while at < len(self._firsts) and (begin := self._firsts[at]) < stop:
            slots = array("H", self._slots[at])
            low, high = max(first, begin), min(stop, begin + len(slots))
            for offset in range(low, high):
                yield offset, slots[offset - begin]
            at += 1


class LaneHighs:
    """The end of what was delivered of each slot, under the last key that it was delivered under.

    A key is whatever an order holds for: a token, an era.
    """

    def __init__(self, slots: PublishedSlots) -> None:
        self._slots = slots
        self._highs: dict[int, tuple[object, int]] = {}

    def note(self, first: int, stop: int, key: object) -> None:
        """Note a delivery of [first, stop) under a key."""
        for offset, slot in self._slots.within(first, stop):
            known, high = self._highs.get(slot, (key, 0))
            self._highs[slot] = key, max(offset + 1, high if known == key else 0)

    def behind(self, first: int, stop: int, key: object) -> Sequence[int]:
        """Return which of [first, stop) lie behind one of their slot delivered under a key."""
        return [
            offset
            for offset, slot in self._slots.within(first, stop)
            if self._is_behind(slot, offset, key)
        ]

    def _is_behind(self, slot: int, offset: int, key: object) -> bool:
        known, high = self._highs.get(slot, (None, 0))
        return known == key and high > offset + 1
