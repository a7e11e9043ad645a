"""How far each slot was delivered, where a group keeps the order of each key alone."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from partq.pipeline.audit.judge.groups.session_lanes import KeyedLanes
from partq.pipeline.audit.judge.lines import RecordLine
from partq.wire.audit import SESSIONS, SHARED

KEYED: Final = "keyed"
"""Flag of deliveries and releases of a group of order Key."""
BY_SLOT: Final = (KEYED, SHARED, SESSIONS)
"""Flags of deliveries that are judged slot by slot, or session by session."""


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

    def __init__(self, slots: PublishedSlots | KeyedLanes) -> None:
        self._slots = slots
        self._back: dict[int, set[int]] = {}
        """What was given back of each slot, and neither delivered again nor done with."""
        self._early: dict[int, tuple[int, RecordLine]] = {}
        """What was delivered before a lower one that was given back: that one, and the delivery."""
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

    def note_back(self, first: int, stop: int) -> None:
        """Note what was given back: what is behind it of its slot waits for it."""
        for offset, slot in self._slots.within(first, stop):
            self._back.setdefault(slot, set()).add(offset)

    def end(self, first: int, stop: int) -> None:
        """Note what the group is done with: nothing waits for it.

        An ack may come after the ack timeout of its message: then nothing of it was too early.
        """
        for offset, slot in self._slots.within(first, stop) if self._back else ():
            if offset in self._back.get(slot, ()):
                self._remove(slot, offset)
                self._early = {o: each for o, each in self._early.items() if each[0] != offset}

    def forget(self, slots: Iterable[int]) -> None:
        """Forget slots of which nothing is delivered any more."""
        for slot in slots:
            self._highs.pop(slot, None)
            self._back.pop(slot, None)

    def forget_back(self) -> None:
        """Note that the group begins again elsewhere."""
        self._back.clear()
        self._early.clear()

    def deliver(self, line: RecordLine) -> None:
        """Note a delivery, and what of it comes before a lower one that was given back.

        It may have been decided before that one came back, and recorded after: then it is released.
        """
        for offset, slot in self._slots.within(line.first, line.stop) if self._back else ():
            self._remove(slot, offset)
            self._early.pop(offset, None)
            lower = min(self._back.get(slot, ()), default=offset)
            if lower < offset:
                self._early[offset] = lower, line

    def early(self, first: int, stop: int) -> list[tuple[int, int, RecordLine]]:
        """Return what was delivered too early of [first, stop), and had: it has an outcome.

        Each with the lower one that was given back, and with its delivery.
        """
        if not self._early:
            return []
        return [(o, *self._early.pop(o)) for o in range(first, stop) if o in self._early]

    def _remove(self, slot: int, offset: int) -> None:
        if (back := self._back.get(slot)) is not None:
            back.discard(offset)
            if not back:
                del self._back[slot]
