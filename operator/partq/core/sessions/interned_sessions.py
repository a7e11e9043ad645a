"""Which lane each session of a partition has: its slot, or a free one where another has that."""

from collections.abc import Collection, Container
from typing import Final

from partq.core.model import SLOT_COUNT, PartitionId

MAX_INTERNED: Final = 60_000
"""Sessions that may have lanes at a time: fewer than there are lanes."""


def keyless(partition: PartitionId, offset: int) -> str:
    """Return the name of the session that a message without a key is by itself."""
    return f"@{partition}:{offset}"


def partition_of_keyless(session: str) -> PartitionId | None:
    """Return the partition of a session of a message without a key; None: it has a key."""
    name, _, offset = session.removeprefix("@").partition(":")
    generation, _, index = name.partition(".")
    numbers = (generation, index, offset)
    if not session.startswith("@") or not all(_is_number(number) for number in numbers):
        return None
    return PartitionId(int(generation), int(index))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


class InternedSessions:
    """The lanes of the sessions of one partition, as far as its messages were read."""

    __slots__ = ("_lanes", "_names", "_slots")

    def __init__(self) -> None:
        self._lanes: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._slots: dict[int, int] = {}
        """Lane → slot of its session, where they differ."""

    def __len__(self) -> int:
        return len(self._lanes)

    def lane(self, session: str) -> int | None:
        """Return the lane of a session; None: it has none."""
        return self._lanes.get(session)

    def name(self, lane: int) -> str | None:
        """Return the session that has a lane; None: no one has."""
        return self._names.get(lane)

    def slot(self, lane: int) -> int:
        """Return the slot of the session that has a lane."""
        return self._slots.get(lane, lane)

    def of_slot(self, slot: int) -> list[int]:
        """Return the lanes of the sessions that have a slot."""
        found = [lane for lane, own in self._slots.items() if own == slot]
        if slot in self._names and slot not in self._slots:
            found.append(slot)
        return found

    def intern(self, session: str, slot: int, avoided: Container[int]) -> int:
        """Return the lane of a session, which gets one if it has none.

        `avoided`: lanes that something is known of already; only a session of that slot gets one.
        """
        lane = self._lanes.get(session)
        if lane is not None:
            return lane
        lane = slot
        while lane in self._names or (lane != slot and lane in avoided):
            lane = (lane + 1) % SLOT_COUNT
        self._lanes[session] = lane
        self._names[lane] = session
        if lane != slot:
            self._slots[lane] = slot
        return lane

    def keep(self, lanes: Collection[int]) -> None:
        """Forget the sessions of all other lanes."""
        for lane in self._names.keys() - frozenset(lanes):
            del self._lanes[self._names.pop(lane)]
            self._slots.pop(lane, None)
