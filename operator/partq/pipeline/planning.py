"""Decides what an archive takes next, from how far it is and what the queue holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from partq.core.model import PartitionId
from partq.core.readers.partition_order import PartitionOrder
from partq.errors import ConflictError, DataLossError, RolledBackError
from partq.pipeline.manifest import ArchivePosition, ArchiveState, Predecessor


@dataclass(frozen=True, slots=True)
class LogExtent:
    """What a partition holds: [first, end)."""

    first: int
    end: int
    predecessors: Mapping[PartitionId, Predecessor] = field(default_factory=dict)
    """Where its slots came from, as far as a reader who has lag has to know."""
    has_all_predecessors: bool = False
    """Whether these are all that it has ever had."""


@dataclass(frozen=True, slots=True)
class Span:
    """What one step takes of a partition: [start, stop)."""

    start: ArchivePosition
    stop: int
    lost_from: int | None = None
    """Where the archive was, if what stood between that and `start` is gone."""

    @property
    def size(self) -> int:
        """How many places it has."""
        return self.stop - self.start.offset


def plan(
    positions: Mapping[str, ArchivePosition],
    extents: Mapping[PartitionId, LogExtent],
    *,
    most: int,
    skips_lost: bool,
    skip_option: str = "--skip-lost",
    order: PartitionOrder = PartitionOrder(),  # noqa: B008  it cannot be changed
    keeps_apart: bool = False,
) -> dict[PartitionId, Span]:
    """Return what to take next of each partition; those that have nothing new are left out.

    At most `most` in all, of each partition its part of what waits. Nothing is taken of a
    partition before its predecessors are, up to where keys moved on from there.

    Args:
        positions: how far the archive is; a partition that is missing begins at its first.
        extents: what the partitions hold.
        order: of partitions with predecessors.
        keeps_apart: take nothing of a partition in the step in which its predecessors are read, as
            the parts of a step are read side by side.
        most: 1 or more.
        skips_lost: continue behind what is lost, instead of refusing.
        skip_option: of the command; an error names it.

    Raises:
        DataLossError: what comes next is no longer stored.
        RolledBackError: a partition ends below what the archive has of it.
    """
    spans = {}
    reached: dict[PartitionId, int] = {}
    for partition, extent in extents.items():
        start = positions.get(str(partition), ArchivePosition(extent.first))
        lost_from = None
        if start.offset > extent.end:
            raise RolledBackError(
                f"partition {partition}: ends at {extent.end}, and the archive has it up to "
                f"{start.offset}: the store has lost what the archive holds; give what follows a "
                "separate ROOT"
            )
        if start.offset < extent.first:
            if not skips_lost:
                raise DataLossError(
                    f"partition {partition}: stored from {extent.first} on only, and the archive "
                    f"has it up to {start.offset}; with {skip_option} it notes the gap and "
                    "continues"
                )
            lost_from, start = start.offset, ArchivePosition(extent.first)
        reached[partition] = start.offset
        if start.offset < extent.end or lost_from is not None:
            spans[partition] = Span(start, extent.end, lost_from)
    if keeps_apart:
        spans = {each: spans[each] for each in order.due(spans, reached)}
    return _limited(spans, most, order, reached)


def order_of(extents: Mapping[PartitionId, LogExtent]) -> PartitionOrder:
    """Return in which order the partitions of a queue are archived."""
    return PartitionOrder(
        {
            partition: {each: told.sealed_at for each, told in extent.predecessors.items()}
            for partition, extent in extents.items()
            if extent.predecessors
        }
    )


def lineage_of(extents: Mapping[PartitionId, LogExtent]) -> dict[str, Mapping[str, Predecessor]]:
    """Return the partitions of which all predecessors are known and sealed, with these."""
    return {
        str(partition): {str(each): told for each, told in extent.predecessors.items()}
        for partition, extent in extents.items()
        if extent.predecessors
        and extent.has_all_predecessors
        and all(each.sealed_at is not None for each in extent.predecessors.values())
    }


def removed_extents(
    state: ArchiveState, extents: Mapping[PartitionId, LogExtent]
) -> dict[PartitionId, LogExtent]:
    """Return what has to be in an archive of partitions that the queue does not have any more.

    Nothing of them is stored. A change of the partition count removes one only when every group
    has done with it; but a group can be removed, or moved forward by hand.
    """
    ends: dict[PartitionId, int] = {}
    for predecessors in state.lineage.values():
        for name, told in predecessors.items():
            partition = PartitionId.parse(name)
            ends[partition] = max(ends.get(partition, 0), told.sealed_at or 0)
    archived = state.positions.get("messages", {})
    removed = {}
    for partition, end in ends.items():
        known = archived.get(str(partition))
        if partition not in extents:
            removed[partition] = LogExtent(end, max(end, 0 if known is None else known.offset))
    return removed


def check_record_begins(
    archived: Mapping[str, ArchivePosition], begun: Mapping[str, ArchivePosition]
) -> None:
    """Refuse to begin a record of which the first groups were trimmed.

    Only an archive has groups trimmed. Two archives of one record would take its groups from each
    other, and neither could be audited.

    Args:
        archived: how far this archive is.
        begun: the first sequence that is stored, of each partition.

    Raises:
        ConflictError: another archive has the first groups of a partition that this one lacks.
    """
    for partition, at in begun.items():
        if at.offset and partition not in archived:
            raise ConflictError(
                f"partition {partition}: another archive has the audit record up to group "
                f"{at.offset - 1}, and had it trimmed; this one would take the following groups "
                "from it, and neither could be audited from the start. Archive to that ROOT, or "
                "give --no-audit to archive the messages alone. If that archive is lost or has "
                "ended, --take-over-audit continues its record here"
            )


def _limited(
    spans: Mapping[PartitionId, Span],
    most: int,
    order: PartitionOrder,
    reached: dict[PartitionId, int],
) -> dict[PartitionId, Span]:
    limited: dict[PartitionId, Span] = {}
    left = set(spans)
    while due := order.due(left, reached):
        left.difference_update(due)
        ours = {each: spans[each] for each in due}
        waiting = sum(span.size for span in ours.values())
        if waiting <= most:
            limited |= ours
            most -= waiting
            reached |= {each: span.stop for each, span in ours.items()}
            continue
        for partition, span in sorted(ours.items()):
            # Rounded up, so that every partition moves on; what that takes too much, the last lack.
            part = min(most, -(-span.size * most // waiting)) if span.size else 0
            waiting -= span.size
            most -= part
            if part:
                limited[partition] = Span(span.start, span.start.offset + part, span.lost_from)
        break
    return limited
