"""Checks that an archive has everything that its entries say it had."""

from collections.abc import Iterator, Mapping

from partq.pipeline.archive_log import ArchivedQueue
from partq.pipeline.audit.content.entries import WHOLE_ARCHIVE
from partq.pipeline.audit.judge.finding import EXTENT, AuditFinding, finding
from partq.pipeline.manifest import ArchiveState


def check_extent(
    state: ArchiveState, identity: ArchivedQueue | None, archived: Mapping[str, int]
) -> Iterator[AuditFinding]:
    """Yield what is wrong with the extent of an archive, and what it cannot tell.

    Args:
        state: after its last entry.
        identity: the queue that its header names; None: that is not known.
        archived: partition → the offset below which an earlier audit saw its messages archived.
    """
    others = [uid for uid in state.uids if identity is not None and uid != identity.uid]
    if others:
        yield finding(
            EXTENT,
            "other_queue",
            WHOLE_ARCHIVE,
            f"archive.json names the queue {identity}; entries were written for uid "
            f"{', '.join(others)}",
        )
    for stream, firsts in state.beginnings.items():
        known = state.positions.get(stream, {})
        for partition in firsts:
            if partition not in known:
                what = "messages" if stream == "messages" else "record"
                yield finding(
                    EXTENT,
                    "missing_partition",
                    partition,
                    f"entries name partition {partition} among those archived, and the archive "
                    f"has no {what} of it",
                )
    yield from _rows_outside(state)
    for partition, stop in archived.items():
        position = state.positions.get("messages", {}).get(partition)
        if position is None or position.offset < stop:
            there = "none" if position is None else f"those up to offset {position.offset - 1}"
            yield finding(
                EXTENT,
                "messages_cut_off",
                partition,
                f"an earlier audit saw the messages up to offset {stop - 1} archived; by its "
                f"entries the archive has {there}",
            )
    without_digest = sum(not each.sha256 for each in state.files.values())
    unknown = sum(
        partition not in state.beginnings.get(stream, {})
        for stream, positions in state.positions.items()
        for partition in positions
    )
    if without_digest or unknown:
        yield finding(
            EXTENT,
            "extent_not_recorded",
            WHOLE_ARCHIVE,
            f"an earlier version wrote part of the archive: {without_digest} of "
            f"{len(state.files)} files have no digest, and of {unknown} streams of partitions no "
            "entry says where they begin, so a first file that was removed is not found",
        )


def _rows_outside(state: ArchiveState) -> Iterator[AuditFinding]:
    """Yield which files have rows where the archive says that it has none."""
    for each in state.files.values():
        stop = state.positions.get(each.stream, {}).get(each.partition)
        first = state.beginnings.get(each.stream, {}).get(each.partition, 0)
        if stop is not None and first <= each.first and each.stop <= stop.offset:
            continue
        reach = "nothing" if stop is None else f"{first} to {stop.offset - 1}"
        yield finding(
            EXTENT,
            "other_rows",
            each.partition,
            f"{each.path} has {each.stream} {each.first} to {each.stop - 1}; by its entries the "
            f"archive has {reach} of partition {each.partition}",
        )
