"""Which slots each partition owns, per generation of the partition count."""

from dataclasses import dataclass
from typing import NamedTuple, Self

from partq.core.hashing import partition_index, slot_of, slot_range
from partq.core.model import SLOT_COUNT, PartitionId
from partq.errors import SettingsError, UnknownPartitionError

MAX_PARTITION_COUNT = SLOT_COUNT
"""With more, some partitions would own no slot and so never see a key."""


class Generation(NamedTuple):
    """One partition count that a queue has had; numbers start at 1."""

    number: int
    partition_count: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The living generations of a queue, oldest first; new messages go to the last one.

    Only generation 1 is used yet.
    """

    generations: tuple[Generation, ...]

    def __post_init__(self) -> None:
        numbers = [generation.number for generation in self.generations]
        if not numbers or numbers[0] < 1 or numbers != sorted(set(numbers)):
            raise SettingsError(
                f"layout: got generations {numbers}, expected at least one, from 1, rising"
            )
        for number, partition_count in self.generations:
            if not 1 <= partition_count <= MAX_PARTITION_COUNT:
                raise SettingsError(
                    f"layout, generation {number}: got {partition_count} partitions, "
                    f"expected 1 to {MAX_PARTITION_COUNT}"
                )

    @classmethod
    def first(cls, partition_count: int) -> Self:
        """Return the layout of a new queue.

        Raises:
            SettingsError: not 1 to 65,536 partitions.
        """
        return cls((Generation(1, partition_count),))

    @property
    def generation(self) -> int:
        """The number of the generation that new messages go to."""
        return self.generations[-1].number

    @property
    def partition_count(self) -> int:
        """How many partitions the current generation has."""
        return self.generations[-1].partition_count

    def partitions(self) -> tuple[PartitionId, ...]:
        """Return every partition of every living generation, oldest first, by index."""
        return tuple(
            PartitionId(number, index)
            for number, partition_count in self.generations
            for index in range(partition_count)
        )

    def partition_of(self, slot: int) -> PartitionId:
        """Return the partition of the current generation that owns `slot` (0 to 65,535)."""
        generation, partition_count = self.generations[-1]
        return PartitionId(generation, partition_index(slot, partition_count))

    def partition_for(self, key: str) -> PartitionId:
        """Return the partition that new messages with this key go to.

        Raises:
            BadRequestError: the key is above 1 KiB as UTF-8, or has none.
        """
        return self.partition_of(slot_of(key))

    def slots(self, partition: PartitionId) -> range:
        """Return the slots that a partition owns.

        Raises:
            UnknownPartitionError: it is not in any living generation.
        """
        for number, partition_count in self.generations:
            if number == partition.generation and 0 <= partition.index < partition_count:
                return slot_range(partition.index, partition_count)
        raise self.unknown(partition)

    def unknown(self, partition: PartitionId) -> UnknownPartitionError:
        """Return the error of a partition that is not in any living generation."""
        living = " and ".join(
            f"{count} partitions, {number}.0 to {number}.{count - 1}"
            if count > 1
            else f"1 partition, {number}.0"
            for number, count in self.generations
        )
        return UnknownPartitionError(
            f"partition {partition}: not in the queue's layout, which has {living}; name one of "
            "these, or read /layout again"
        )

    def is_past(self, partition: PartitionId) -> bool:
        """Whether a partition is of a generation before the living ones, so may have existed."""
        return 1 <= partition.generation < self.generations[0].number

    def __contains__(self, partition: object) -> bool:
        return isinstance(partition, PartitionId) and any(
            number == partition.generation and 0 <= partition.index < partition_count
            for number, partition_count in self.generations
        )
