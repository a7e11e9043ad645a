"""Where a message without a key goes: by the queue's policy."""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, cycle
from typing import Protocol, TypeVar

from partq.core.model import PartitionId
from partq.core.slot_table import SlotRanges, size_of, slot_at

T = TypeVar("T")


class Chance(Protocol):
    """Draws at random, as `random.Random` and the module `random` do."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to below `stop`."""
        ...

    def choice(self, seq: Sequence[T], /) -> T:
        """Return one of a sequence."""
        ...

    def sample(self, population: Sequence[T], /, k: int) -> list[T]:
        """Return `k` of a sequence in random order."""
        ...


class OwnedSlots(Protocol):
    """Partitions and the slots that they take, as a `Layout` has them."""

    @property
    def current_partitions(self) -> tuple[PartitionId, ...]:
        """The partitions that take messages, in the order of their turns."""
        ...

    def slots(self, partition: PartitionId) -> SlotRanges:
        """Return the slots that one of them takes."""
        ...


class KeylessPartitioner:
    """Chooses slots of a queue for messages without a key.

    Args:
        layout: of the queue, or where its slots are now.
        policy: `Random`: any slot; `RoundRobin`: the partitions in turn, of each any slot.
        chance: draws.
        unavailable: partitions that get no message, unless all are unavailable.
        turns: numbers that rise, for partitioners that take turns with each other; None: this one
            takes turns by itself in a random order, so that producers that start together do not
            march in step.
    """

    def __init__(
        self,
        layout: OwnedSlots,
        policy: str,
        chance: Chance,
        *,
        unavailable: Collection[PartitionId] = (),
        turns: Iterator[int] | None = None,
    ) -> None:
        self._slots = {each: layout.slots(each) for each in layout.current_partitions}
        self._is_random = policy == "Random"
        self._chance = chance
        self._turns = turns
        self.avoid(unavailable)

    def avoid(self, unavailable: Collection[PartitionId]) -> None:
        """Choose no slot of these partitions, unless all are unavailable; any other may be used."""
        usable = [slots for each, slots in self._slots.items() if each not in unavailable]
        self._usable = usable = usable or list(self._slots.values())
        self._ends = list(accumulate(map(size_of, usable)))
        if self._turns is None:
            self._next: Iterator[SlotRanges] = cycle(self._chance.sample(usable, k=len(usable)))
        else:
            self._next = (usable[turn % len(usable)] for turn in self._turns)

    def slot(self) -> int:
        """Return the slot of the next message."""
        if self._is_random:
            at = self._chance.randrange(self._ends[-1])
            index = bisect_right(self._ends, at)
            return slot_at(
                self._usable[index], at - self._ends[index] + size_of(self._usable[index])
            )
        ranges = next(self._next)
        return slot_at(ranges, self._chance.randrange(size_of(ranges)))
