"""A change of the partition count: what the layout record says before, during and after it.

A change is prepared, then committed or aborted. A committed one only goes forward: predecessors
settle, and those without slots are removed. Each function returns the record after one such step;
its caller stores it if the revision is still the one that it has read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from partq.core.model import PartitionId
from partq.core.slot_table import SlotChange, SlotRanges, SlotTable
from partq.errors import ConflictError

MAX_UNSETTLED = 4
"""The most changes whose predecessors may still hold messages that a group has to read first."""

Lineage = Mapping[PartitionId, Mapping[PartitionId, SlotRanges]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RescalePlan:
    """The layout record of a queue whose partition count has changed, or is about to."""

    table: SlotTable
    """The partitions that take messages."""
    generation: int = 1
    """Of the last change that was committed."""
    last_generation: int = 1
    """The highest that a change has had, also one that was aborted: none is used twice."""
    revision: int = 0
    """Grows with each step."""
    next: SlotChange | None = None
    """The change that is being prepared; its generation is `last_generation`."""
    lineage: Lineage = field(default_factory=dict)
    """Partition → its predecessors that are not settled, each with the slots that came from it."""
    retired: Mapping[PartitionId, int] = field(default_factory=dict)
    """Partitions without slots that are still read → when they lost the last one, in ms."""

    def partitions(self) -> tuple[PartitionId, ...]:
        """Return all partitions that have records: of the table, retired ones, prepared ones."""
        prepared = self.next.lineage if self.next else ()
        return tuple(sorted({*self.table.slots, *self.retired, *prepared}))

    def unsettled(self) -> tuple[int, ...]:
        """Return the generations of changes with a predecessor that is not settled."""
        return tuple(sorted({partition.generation for partition in self.lineage}))

    def prepared(self, partition_count: int) -> "RescalePlan":
        """Return the record with a change that is being prepared.

        Raises:
            ConflictError: another change is being prepared, nothing would change, or too many
                changes are not settled.
            SettingsError: not 1 to 65,536 partitions.
        """
        if self.next is not None:
            raise ConflictError(
                f"layout: change {self.last_generation} is being prepared; commit or abort it first"
            )
        if partition_count == self.table.partition_count:
            raise ConflictError(f"layout: it has {partition_count} partitions, so nothing changes")
        if len(self.unsettled()) >= MAX_UNSETTLED:
            raise ConflictError(
                f"layout: changes {[*self.unsettled()]} are not settled, at most {MAX_UNSETTLED} "
                "may be; wait until the groups have read what was in their predecessors"
            )
        generation = self.last_generation + 1
        change = self.table.resized(partition_count, generation)
        return self._step(next=change, last_generation=generation)

    def aborted(self) -> "RescalePlan":
        """Return the record without the change that is being prepared.

        Raises:
            ConflictError: none is; a committed change cannot be aborted.
        """
        self._prepared_change()
        return self._step(next=None)

    def committed(self, now_ms: int) -> "RescalePlan":
        """Return the record with the prepared change in force.

        Raises:
            ConflictError: none is being prepared.
        """
        change = self._prepared_change()
        emptied = {giver for giver, left in change.sealed.items() if not left}
        return self._step(
            next=None,
            table=change.table,
            generation=self.last_generation,
            lineage={**self.lineage, **change.lineage},
            retired={**self.retired, **dict.fromkeys(sorted(emptied), now_ms)},
        )

    def without_predecessor(self, partition: PartitionId) -> "RescalePlan":
        """Return the record without a partition as a predecessor: nothing waits for it any more.

        Raises:
            ConflictError: it has predecessors that are not settled.
        """
        if partition in self.lineage:
            raise ConflictError(f"partition {partition}: its predecessors are not settled")
        remaining = {
            successor: {giver: slots for giver, slots in givers.items() if giver != partition}
            for successor, givers in self.lineage.items()
        }
        return self._step(lineage={each: givers for each, givers in remaining.items() if givers})

    def removed(self, partition: PartitionId) -> "RescalePlan":
        """Return the record without a partition that has no slots.

        Raises:
            ConflictError: it takes messages, or others wait for it.
        """
        awaited = any(partition in givers for givers in self.lineage.values())
        if partition not in self.retired or partition in self.lineage or awaited:
            raise ConflictError(f"partition {partition}: it has slots, or is not settled")
        kept = {each: at_ms for each, at_ms in self.retired.items() if each != partition}
        return self._step(retired=kept)

    def _prepared_change(self) -> SlotChange:
        if self.next is None:
            raise ConflictError("layout: no change is being prepared")
        return self.next

    def _step(self, **changes: object) -> "RescalePlan":
        return replace(self, revision=self.revision + 1, **changes)  # type: ignore[arg-type]


class GroupProgress(NamedTuple):
    """A group in a predecessor, as its record says."""

    cursor: int
    is_gate_open: bool
    outbox_count: int = 0
    """Dead letters that wait."""


class PredecessorView(NamedTuple):
    """A predecessor, as its record says."""

    sealed_at: int | None
    """The end of its log when the slots left it; None: it is not sealed."""
    trimmed: int
    groups: Mapping[str, GroupProgress]


def has_passed(predecessor: PredecessorView, group: str) -> bool:
    """Whether a group has done with all that a predecessor, and its predecessors, have for it.

    A closed gate says that its own predecessors are not passed; then the cursor says nothing: it
    is at the seal of a partition that was sealed empty. Dead letters that wait are done with.
    """
    view = predecessor.groups.get(group)
    return (
        predecessor.sealed_at is not None
        and view is not None
        and view.is_gate_open
        and view.cursor >= predecessor.sealed_at
    )


def may_open(predecessors: Iterable[PredecessorView]) -> bool:
    """Whether a partition may take messages: no predecessor takes any of its slots."""
    return all(each.sealed_at is not None for each in predecessors)


def may_open_gate(predecessors: Iterable[PredecessorView], group: str) -> bool:
    """Whether a group may have messages. `predecessors`: those that the lineage still names."""
    return all(has_passed(each, group) for each in predecessors)


def is_passed_by_all(predecessor: PredecessorView, groups: Iterable[str]) -> bool:
    """Whether nobody, present or future, has to read the predecessor before its successors.

    `groups`: those that the queue is to have. Messages below the seal that are stored would be
    read by a group that is created later, so they have to be trimmed.
    """
    sealed_at = predecessor.sealed_at
    return (
        sealed_at is not None
        and predecessor.trimmed >= sealed_at
        and all(has_passed(predecessor, group) for group in {*groups, *predecessor.groups})
        and not any(view.outbox_count for view in predecessor.groups.values())
    )
