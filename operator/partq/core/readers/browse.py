"""One page of several partitions: what may be shown in the order in which it was stored.

Messages of one partition are in the order of their offsets, and their times never fall. Of several
partitions a message can be shown once every partition is known up to its time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from partq.core.model import PartitionId

Content = TypeVar("Content")


class PageEnd(StrEnum):
    """Why a page ends where it does."""

    ENOUGH = "enough"
    """It holds as many messages as were asked for."""
    SIZE = "size"
    """More would be too large, or has to be read first: continue from its end."""
    END = "end"
    """There are no more."""


@dataclass(frozen=True, slots=True)
class PageRow(Generic[Content]):
    """A message of a page."""

    offset: int
    at_ms: int
    """When it was stored; never falls within a partition."""
    size: int
    content: Content


@dataclass(frozen=True, slots=True)
class Page(Generic[Content]):
    """Messages of one partition, one after the other."""

    rows: Sequence[PageRow[Content]]
    next: int
    """The offset at which to continue."""
    why: PageEnd


@dataclass(frozen=True, slots=True)
class MergedPage(Generic[Content]):
    """Messages of several partitions, by time."""

    contents: list[Content]
    next: dict[PartitionId, int]
    """Of each partition, the offset at which to continue."""
    why: PageEnd


def merge(
    pages: Mapping[PartitionId, Page[Content]],
    *,
    max_messages: int,
    max_bytes: int,
    before_ms: int | None,
) -> MergedPage[Content]:
    """Return the oldest messages of all pages, by (time, partition, offset).

    Args:
        pages: each from where its partition is to be shown.
        max_messages: above 0.
        max_bytes: of all messages together; a first one that is larger is shown all the same.
        before_ms: when the oldest message of the partitions without a page was stored; None: they
            have no messages.
    """
    # A page that does not end where its partition does: what follows may be next.
    known = [
        (page.rows[-1].at_ms, partition, page.rows[-1].offset)
        for partition, page in pages.items()
        if page.why is not PageEnd.END and page.rows
    ]
    horizon = min(known, default=None)
    ordered = sorted(
        ((row.at_ms, partition, row.offset), row)
        for partition, page in pages.items()
        for row in page.rows
    )
    contents: list[Content] = []
    following = {partition: page.next for partition, page in pages.items()}
    is_full = False
    size = 0
    cut: set[PartitionId] = set()
    for place, row in ordered:
        at_ms, partition, offset = place
        is_full = is_full or (bool(contents) and size + row.size > max_bytes)
        is_unknown = (horizon is not None and place > horizon) or (
            before_ms is not None and at_ms > before_ms
        )
        if is_full or is_unknown or len(contents) == max_messages:
            if partition not in cut:
                cut.add(partition)
                following[partition] = offset
            continue
        contents.append(row.content)
        size += row.size
    if len(contents) == max_messages:
        why = PageEnd.ENOUGH
    elif (
        cut or before_ms is not None or any(page.why is not PageEnd.END for page in pages.values())
    ):
        why = PageEnd.SIZE
    else:
        why = PageEnd.END
    return MergedPage(contents, following, why)
