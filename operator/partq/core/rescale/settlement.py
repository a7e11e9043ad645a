"""When a predecessor is settled, and when a partition without slots is removed."""

from collections.abc import Collection, Iterable

from partq.core.layout import Layout, RescaleRecord
from partq.core.model import PartitionId
from partq.core.rescale.gates import PredecessorView, has_passed
from partq.core.rescale.layout_steps import awaited


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


def ready_to_settle(layout: Layout) -> dict[PartitionId, int]:
    """Return the predecessors that may settle next, each with the last change it lost slots to.

    Those are the ones without predecessors.
    """
    found: dict[PartitionId, int] = {}
    for successor, givers in layout.lineage.items():
        for giver in givers:
            if giver not in layout.lineage:
                found[giver] = max(successor.generation, found.get(giver, 0))
    return found


def is_settled(layout: Layout, record: RescaleRecord, groups: Collection[str]) -> bool:
    """Whether nobody waits for a change that is open: no predecessor, and nothing retired, is left.

    Without `groups` nobody reads what was published before, and it is not trimmed: it stays.
    """
    if not record.committed_at_ms:
        return False
    return not groups or (
        record.committed_at_ms not in layout.retired.values()
        and not any(partition.generation == record.generation for partition in layout.lineage)
    )


def ready_to_remove(layout: Layout, before_ms: int) -> list[PartitionId]:
    """Return the settled partitions that lost their last slot at `before_ms` or earlier."""
    waiting = {*layout.lineage, *awaited(layout)}
    return [
        partition
        for partition, retired_at_ms in layout.retired.items()
        if retired_at_ms <= before_ms and partition not in waiting
    ]
