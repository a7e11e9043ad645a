"""Which partitions a queue has, which slots each takes, and which of them follow which."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from partq.core.hashing import slot_of
from partq.core.model import PartitionId
from partq.core.parts.part_id import PartId, parts_of
from partq.core.slot_table import SlotChange, SlotRanges, SlotTable, size_of, slots_at_first
from partq.errors import UnknownPartitionError

Lineage = Mapping[PartitionId, Mapping[PartitionId, SlotRanges]]
MAX_COUNTS = 1000
"""How many partition counts a layout names: the first, and the latest. They lead to what fixed
numbers stand for. With so many some may be forgotten: then fixed numbers are refused."""


class RescaleRecord(NamedTuple):
    """A change of the partition count, for people: nothing is decided by it."""

    generation: int
    from_count: int
    to_count: int
    moved_slots: int
    """How many slots get another index."""
    predecessors: int
    """How many partitions lose slots."""
    successors: int
    """How many partitions are new."""
    started_at_ms: int
    """When it was begun, in ms since 1970; 0: not known."""
    committed_at_ms: int = 0
    """When it came into force; 0: it has not."""
    is_aborted: bool = False


@dataclass(frozen=True, slots=True)
class Succession:
    """Which partitions follow which, for those who decide where they are.

    A new partition begins where most of its keys are: with the one whose index it continues, or
    else with the one that it gets most slots from.
    """

    outgoing: frozenset[PartitionId] = frozenset()
    """Partitions whose last slot has left, or is about to: they count for no balance."""
    origins: Mapping[PartitionId, PartitionId] = field(default_factory=dict)
    """New partition → the one that it begins with; those that continue an index come first."""
    heirs: Mapping[PartitionId, PartitionId] = field(default_factory=dict)
    """Outgoing partition → the one that continues its index, or gets most of its slots. Where that
    one is outgoing, too: its heir."""

    def has_weight(self, partition: PartitionId) -> bool:
        """Whether a partition counts where loads of brokers or members are compared."""
        return partition not in self.outgoing


def succession_of_parts(succession: Succession, parts: int) -> Succession:
    """Return which parts follow which: each one that of the same number.

    The slots of the two are not the same, but both are in the same order.
    """

    def same(found: Mapping[PartitionId, PartitionId]) -> dict[PartitionId, PartitionId]:
        return {
            PartId.of(partition, part): PartId.of(other, part)
            for partition, other in found.items()
            for part in range(parts)
        }

    outgoing = frozenset(parts_of(succession.outgoing, parts))
    return Succession(outgoing, same(succession.origins), same(succession.heirs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layout of a queue, as changes of its partition count have left it.

    `core/rescale/layout_steps.py` has the steps of a change.
    """

    table: SlotTable
    """The partitions that take messages."""
    generation: int = 1
    """Of the last change that was committed; 1: the count has never changed."""
    last_generation: int = 1
    """The highest that a change has had, also one that was aborted: none is used twice."""
    revision: int = 0
    """Grows with each step of a change."""
    next: SlotChange | None = None
    """The change that is being prepared; its generation is `last_generation`."""
    must_commit: bool = False
    """Whether `next` may have been in force before the store lost it: it is not aborted."""
    lineage: Lineage = field(default_factory=dict)
    """Partition → its predecessors that are not settled, each with the slots that came from it."""
    retired: Mapping[PartitionId, int] = field(default_factory=dict)
    """Partitions without slots that are still read → when they lost the last one, in ms."""
    counts: Mapping[int, int] = field(default_factory=dict)
    """Generation of each table that was in force → its partition count, which leads to the table;
    empty: the count has never changed."""
    changes: tuple[RescaleRecord, ...] = ()
    """The latest changes, the newest last; those that clients get have none."""

    @classmethod
    def first(cls, partition_count: int) -> Self:
        """Return the layout of a new queue.

        Raises:
            SettingsError: not 1 to 65,536 partitions.
        """
        return cls(table=SlotTable.first(partition_count))

    @property
    def partition_count(self) -> int:
        """How many partitions take messages."""
        return self.table.partition_count

    @property
    def current_partitions(self) -> tuple[PartitionId, ...]:
        """The partitions that take messages, by index."""
        return tuple(sorted(self.table.slots, key=lambda partition: partition.index))

    def partitions(self) -> tuple[PartitionId, ...]:
        """Return the partitions that take messages or are still read; older ones first, by index.

        Those of a change that is being prepared are not among them.
        """
        return tuple(sorted({*self.table.slots, *self.retired}))

    def all_partitions(self) -> tuple[PartitionId, ...]:
        """Return all partitions that have records: also those that are being prepared."""
        prepared = self.next.lineage if self.next is not None else ()
        return tuple(sorted({*self.table.slots, *self.retired, *prepared}))

    def partition_of(self, slot: int) -> PartitionId:
        """Return the partition that takes messages of a slot (0 to 65,535)."""
        return self.table.partition_of(slot)

    def partition_for(self, key: str) -> PartitionId:
        """Return the partition that new messages with this key go to.

        Raises:
            BadRequestError: the key is above 1 KiB as UTF-8, or has none.
        """
        return self.partition_of(slot_of(key))

    def slots(self, partition: PartitionId) -> SlotRanges:
        """Return the slots that a partition takes; a retired one takes no slots.

        Raises:
            UnknownPartitionError: the layout does not have it.
        """
        found = self.table.slots.get(partition)
        if found is None and self.next is not None and partition in self.next.lineage:
            found = self.next.table.slots[partition]
        if found is None and partition not in self.retired:
            raise self.unknown(partition)
        return found or ()

    def first_slots(self, partition: PartitionId) -> SlotRanges:
        """Return the slots that a partition was made with: later changes only take some away.

        With very many changes the layout forgets counts: then slots may be missing.

        Raises:
            UnknownPartitionError: the layout does not have it.
        """
        counts = self.counts or {self.generation: self.partition_count}
        found = slots_at_first(tuple(sorted(counts.items()))).get(partition)
        return self.slots(partition) if found is None else found

    def predecessors(self, partition: PartitionId) -> Mapping[PartitionId, SlotRanges]:
        """Return what a partition waits for: those it has slots from, until they are settled."""
        if self.next is not None and partition in self.next.lineage:
            return self.next.lineage[partition]
        return self.lineage.get(partition, {})

    def history_of(self, slot: int) -> list[PartitionId]:
        """Return the partitions that a slot came through and that are not settled, oldest first.

        The last one takes its messages.
        """
        history = [self.partition_of(slot)]
        while True:
            givers = self.predecessors(history[0]).items()
            giver = next((g for g, ranges in givers if any(slot in each for each in ranges)), None)
            if giver is None:
                return history
            history.insert(0, giver)

    def succession(self) -> Succession:
        """Return which partitions follow which, also by a change that is being prepared."""
        staying = (self.next.table if self.next is not None else self.table).slots
        gifts = [
            (giver.index != successor.index, -size_of(ranges), giver, successor)
            for successor in self.all_partitions()
            for giver, ranges in self.predecessors(successor).items()
        ]
        origins: dict[PartitionId, PartitionId] = {}
        heirs: dict[PartitionId, PartitionId] = {}
        for _, _, giver, successor in sorted(gifts):
            origins.setdefault(successor, giver)
            if giver not in staying:
                heirs.setdefault(giver, successor)
        for giver in sorted(heirs, reverse=True):  # an heir is of a higher generation
            heirs[giver] = heirs.get(heirs[giver], heirs[giver])
        outgoing = frozenset(each for each in self.all_partitions() if each not in staying)
        return Succession(outgoing, origins, heirs)

    def unknown(self, partition: PartitionId) -> UnknownPartitionError:
        """Return the error of a partition that the layout does not have."""
        return UnknownPartitionError(
            f"partition {partition}: not in the queue's layout, which has {self._outline()}; name "
            "one of these, or read /layout again"
        )

    def _outline(self) -> str:
        """Return `16 partitions, 1.0 to 1.15`, of each generation."""
        indexes: dict[int, list[int]] = {}
        for generation, index in self.partitions():
            indexes.setdefault(generation, []).append(index)
        return " and ".join(
            f"{len(found)} partitions, {generation}.{found[0]} to {generation}.{found[-1]}"
            if len(found) > 1
            else f"1 partition, {generation}.{found[0]}"
            for generation, found in indexes.items()
        )

    def is_prepared(self, partition: PartitionId) -> bool:
        """Whether a partition is only being prepared: callers cannot name it, it may be aborted."""
        return self.next is not None and partition in self.next.lineage

    def is_past(self, partition: PartitionId) -> bool:
        """Whether the layout does not have a partition, and earlier ones may have had it."""
        return 1 <= partition.generation <= self.generation > 1 and partition not in self

    def __contains__(self, partition: object) -> bool:
        return (
            partition in self.table.slots
            or partition in self.retired
            or (self.next is not None and partition in self.next.lineage)
        )
