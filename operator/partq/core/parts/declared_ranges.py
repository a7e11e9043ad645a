"""Ranges of slots that members of a group with `hashRange: Sticky` declare: whole parts, once."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from partq.core.model import SLOT_COUNT, PartitionId
from partq.core.parts.hash_ranges import DeclaredRanges
from partq.core.parts.part_id import slots_of
from partq.core.slot_table import SlotRanges

MAX_RANGES = 1_024
"""The most ranges that one member declares."""


def problem_of(ranges: Sequence[Sequence[int]]) -> str:
    """Return what is wrong with ranges by themselves, for people; empty: nothing."""
    if len(ranges) > MAX_RANGES:
        return f"got {len(ranges)} ranges, expected at most {MAX_RANGES}"
    reached = 0
    for start, stop in sorted(map(tuple, ranges)):
        if not 0 <= start < stop <= SLOT_COUNT:
            return (
                f"got the range {start} to {stop}, expected a first slot below the end, of 0 to "
                f"{SLOT_COUNT}"
            )
        if start < reached:
            return f"got the range from {start} on twice, expected ranges that do not overlap"
        reached = stop
    return ""


def bounds_of(slots: Mapping[PartitionId, SlotRanges], parts: int) -> list[int]:
    """Return the slots at which parts of partitions begin or end, rising.

    `slots`: those that each partition was made with.
    """
    found = {0, SLOT_COUNT}
    for ranges in slots.values():
        for part in range(parts):
            found.update(
                bound for each in slots_of(ranges, part, parts) for bound in (each.start, each.stop)
            )
    return sorted(found)


def inside_part(ranges: DeclaredRanges, bounds: Sequence[int]) -> str:
    """Return which range does not begin and end with a part, for people; empty: none.

    `bounds` rise, from 0 to all slots.
    """
    for bound in (bound for each in ranges for bound in each):
        at = bisect_left(bounds, bound)
        if bounds[at] != bound:
            return (
                f"got {bound}, which lies inside a part; expected ranges of whole parts: the "
                f"next bounds are {bounds[at - 1]} and {bounds[at]}"
            )
    return ""


def overlap(
    ranges: DeclaredRanges, others: Iterable[tuple[str, DeclaredRanges]]
) -> tuple[str, int, int] | None:
    """Return a member that has declared some of the slots, and which; None: nobody has.

    `ranges` do not overlap one another.
    """
    rising = sorted((start, stop) for start, stop in ranges)
    ends = [stop for _, stop in rising]
    for member, declared in others:
        for start, stop in declared:
            at = bisect_right(ends, start)
            if at < len(rising) and rising[at][0] < stop:
                return member, max(rising[at][0], start), min(rising[at][1], stop)
    return None
