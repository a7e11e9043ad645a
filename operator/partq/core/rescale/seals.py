"""Which seals committed changes ask of partitions, and which seals a new partition opens by."""

from collections.abc import Collection, Mapping
from itertools import chain
from typing import NamedTuple

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.slot_table import SlotRanges, joined


class DueSeal(NamedTuple):
    """A seal that a committed change asks of a partition."""

    generation: int
    """Of the change that takes slots away."""
    slots: SlotRanges
    """Those that stay."""


def due_seals(layout: Layout) -> dict[PartitionId, list[DueSeal]]:
    """Return the seals that committed changes ask of each partition, the oldest change first.

    Those of predecessors that are settled are not among them: they were sealed.
    """
    given: dict[PartitionId, dict[int, list[range]]] = {}
    for successor, givers in layout.lineage.items():
        for giver, slots in givers.items():
            given.setdefault(giver, {}).setdefault(successor.generation, []).extend(slots)
    return {
        partition: _seals_of(layout.slots(partition) if partition in layout else (), changes)
        for partition, changes in given.items()
    }


def _seals_of(left: SlotRanges, changes: Mapping[int, list[range]]) -> list[DueSeal]:
    """Return the seals of a partition that has slots `left` after all of the changes."""
    seals: list[DueSeal] = []
    for generation in sorted(changes, reverse=True):
        seals.insert(0, DueSeal(generation, left))
        left = joined(chain(left, changes[generation]))
    return seals


def has_given(layout: Layout, partition: PartitionId) -> bool:
    """Whether slots of a partition have moved to others, by a change that is not settled."""
    return partition in layout.retired or any(
        partition in givers for givers in layout.lineage.values()
    )


def seals_to_open(
    predecessors: Collection[PartitionId], sealed_at: Mapping[PartitionId, int | None]
) -> dict[PartitionId, int] | None:
    """Return the seals by which a partition may take messages; None: a predecessor is not sealed.

    Args:
        predecessors: those that the lineage still names. One that is settled was sealed.
        sealed_at: of those whose record could be read; None: it is not sealed.
    """
    known = {each: at for each in predecessors if (at := sealed_at.get(each)) is not None}
    return known if len(known) == len(predecessors) else None
