"""Which member has which part of the partitions: evenly, or by Pulsar's maps of Key_Shared.

For these all slots lie on one ring, 0 to 65,535, which is cut into the parts of all partitions. The
maps are pure and total: equal input gives equal output whatever the order of parts and members.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import groupby
from types import MappingProxyType
from typing import Final, TypeVar

from partq.core.hashing import key_hash
from partq.core.model import SLOT_COUNT, PartitionId
from partq.core.parts.part_id import PartId
from partq.core.slot_table import SlotRanges, size_of, slot_at

Owner = TypeVar("Owner", bound=str)
Ring = Mapping[PartitionId, int]
"""The slot at which each part begins."""
DeclaredRanges = Sequence[tuple[int, int]]
"""Slots that a member has declared, each pair from the first to the second, that one excluded."""
POINTS: Final = 100
"""Points of a member on the ring of `consistent_hash`."""


class HashRange(StrEnum):
    """How the parts of partitions are shared out."""

    BALANCED = "Balanced"
    """Evenly, and as few move as that allows; a member has few partitions."""
    AUTO_SPLIT = "AutoSplit"
    """A new member takes half of the largest region; a region that is left goes to its right."""
    CONSISTENT_HASH = "ConsistentHash"
    """By points that are drawn from the members' names."""
    STICKY = "Sticky"
    """Each member says which slots it wants; nobody has the rest."""


class RingOrder:
    """Some parts in the order of the ring, found by slots."""

    def __init__(self, parts: Iterable[PartitionId], ring: Ring) -> None:
        self._ring = ring
        self._parts = _on_ring(parts, ring)
        self._starts = [ring.get(part, SLOT_COUNT) for part in self._parts]

    def holding(self, part: PartitionId) -> PartitionId | None:
        """Return the last of the parts that begins where another part does, or before it.

        That is the one which has its first slot, if partitions have runs of slots.
        """
        at = bisect_right(self._starts, self._ring.get(part, SLOT_COUNT))
        return self._parts[at - 1] if at else None


def with_new_parts(
    owned: Mapping[PartitionId, Owner], new: Iterable[PartitionId], ring: Ring
) -> dict[PartitionId, Owner]:
    """Return who has which part; a new part begins with the member that has its slots."""
    vacant = [part for part in new if part not in owned]
    if not vacant:
        return dict(owned)  # as in every plan but those of a change of the partition count
    order = RingOrder(owned, ring)
    found = {part: order.holding(part) for part in vacant}
    return {**owned, **{p: owned[other] for p, other in found.items() if other is not None}}


def ring_of(slots: Mapping[PartitionId, SlotRanges], parts: int) -> dict[PartitionId, int]:
    """Return where each part of the partitions begins on the ring.

    `slots`: those that each partition was made with.
    """
    found: dict[PartitionId, int] = {}
    for partition, ranges in slots.items():
        size = size_of(ranges)
        for part in range(parts):
            first = part * size // parts
            start = slot_at(ranges, first) if first < size else SLOT_COUNT
            found[PartId.of(partition, part)] = start
    return found


def auto_split(
    parts: Sequence[PartitionId],
    members: Collection[Owner],
    previous: Mapping[PartitionId, Owner],
    *,
    ring: Ring,
) -> dict[PartitionId, Owner]:
    """Give each member one region of the ring: a run of neighbouring parts.

    A member that has none takes the lower half of the largest region, the first of equal ones. The
    region of one that has gone becomes its right neighbour's, or that of the left one at the end.
    So one other member gains or loses parts when a member comes or goes, and regions become uneven.
    Where regions have one part each, further members get none.
    """
    joining = sorted(set(members))
    if not joining:
        return {}
    ordered = _on_ring(parts, ring)
    stays = set(joining)
    had = [previous.get(part) for part in ordered]
    owners = [owner if owner in stays else None for owner in had]
    owners = _filled(_without_fragments(_filled(owners)))
    regions = [(owner, len(list(run))) for owner, run in groupby(owners) if owner is not None]
    held = {owner for owner, _ in regions}
    joining = [name for name in joining if name not in held]
    if not regions and ordered:
        regions = [(joining.pop(0), len(ordered))]
    for name in joining:
        sizes = [size for _, size in regions]
        largest = max(sizes, default=0)
        if largest < 2:
            break
        at = sizes.index(largest)
        owner, upper = regions[at][0], largest // 2
        regions[at : at + 1] = [(name, largest - upper), (owner, upper)]
    dealt = (owner for owner, size in regions for _ in range(size))
    return dict(zip(ordered, dealt, strict=True))


def consistent_hash(
    parts: Sequence[PartitionId],
    members: Collection[Owner],
    previous: Mapping[PartitionId, Owner],
    *,
    ring: Ring,
) -> dict[PartitionId, Owner]:
    """Give each part to the member of the next point on the ring, at its first slot or after it.

    A member has 100 points. One that comes takes parts from all others, and one that goes leaves
    them parts; no other part moves. `previous` is not used.
    """
    points, owners = _points_of(frozenset(members))
    if not points:
        return {}
    names = {str(name): name for name in members}
    found = {}
    for part in parts:
        slot = ring.get(part, SLOT_COUNT)
        here = owners[bisect_left(points, slot) % len(points)]
        found[part] = names[here[slot % len(here)]]
    return found


def declared(
    parts: Sequence[PartitionId],
    members: Collection[Owner],
    previous: Mapping[PartitionId, Owner],
    *,
    ring: Ring,
    ranges: Mapping[str, DeclaredRanges],
) -> dict[PartitionId, Owner]:
    """Give each part to the member that has declared its first slot; nobody has the others.

    Brokers refuse ranges that overlap. Where two members have declared a part all the same, at
    brokers that did not see the other one, the one that has it keeps it, else the first by name.
    """
    ordered = _on_ring(parts, ring)
    starts = [ring.get(part, SLOT_COUNT) for part in ordered]
    wanting: dict[PartitionId, list[Owner]] = {}
    for member in sorted(members):
        for start, stop in ranges.get(member, ()):
            for part in ordered[bisect_left(starts, start) : bisect_left(starts, stop)]:
                wanting.setdefault(part, []).append(member)
    found = {}
    for part in parts:
        if wanted_by := wanting.get(part):
            holder = previous.get(part)
            found[part] = holder if holder is not None and holder in wanted_by else wanted_by[0]
    return found


@lru_cache(maxsize=8)
def _points_of(members: frozenset[str]) -> tuple[list[int], list[list[str]]]:
    """Return the points of all members in order, each with its members: it may have several."""
    owners: dict[int, list[str]] = {}
    for member in sorted(members):
        for point in sorted({key_hash(f"{member}{n}") % SLOT_COUNT for n in range(1, POINTS + 1)}):
            owners.setdefault(point, []).append(member)
    points = sorted(owners)
    return points, [owners[point] for point in points]


def balanced(
    parts: Sequence[PartitionId],
    members: Collection[Owner],
    previous: Mapping[PartitionId, Owner],
    *,
    preferred: Mapping[PartitionId, str] = MappingProxyType({}),
) -> dict[PartitionId, Owner]:
    """Spread parts evenly, move as few of them as that allows, and keep partitions together.

    In order of weight: every part has one owner; sizes differ by at most one; a part leaves its
    owner only when the first two demand it; one without an owner goes to its preferred one; members
    have parts of few partitions, as each member of a partition is sent its batches.
    """
    kept: dict[Owner, list[PartitionId]] = {member: [] for member in members}
    if not kept:
        return {}
    vacant: list[PartitionId] = []
    for part in sorted(set(parts)):
        owner = previous.get(part)
        (vacant if owner is None or owner not in kept else kept[owner]).append(part)
    names: dict[str, Owner] = {member: member for member in kept}
    homeless = set(vacant)
    wishes = {p: names[m] for p, m in preferred.items() if p in homeless and m in names}
    wished = Counter(wishes.values())
    # The fullest members get the odd extra part: they would lose one otherwise.
    fullest_first = sorted(kept, key=lambda each: (-len(kept[each]), -wished[each], each))
    share, extra = divmod(len(vacant) + sum(map(len, kept.values())), len(kept))
    quota = {member: share + (rank < extra) for rank, member in enumerate(fullest_first)}
    target: dict[PartitionId, Owner] = {}
    for member in fullest_first:
        stay, leave = _whole_first(kept[member], quota[member])
        target.update(dict.fromkeys(stay, member))
        vacant += leave
    missing = {member: quota[member] - min(len(kept[member]), quota[member]) for member in kept}
    for part, member in wishes.items():
        if missing[member]:
            missing[member] -= 1
            target[part] = member
    _place_together((part for part in vacant if part not in target), target, missing)
    return target


def _whole_first(
    parts: Sequence[PartitionId], count: int
) -> tuple[list[PartitionId], list[PartitionId]]:
    """Return the parts that a member keeps, and those that it gives: of what it has least of."""
    held = Counter(map(_partition, parts))
    ranked = sorted(parts, key=lambda part: (-held[_partition(part)], part))
    return ranked[:count], ranked[count:]


def _place_together(
    vacant: Iterable[PartitionId], target: dict[PartitionId, Owner], missing: dict[Owner, int]
) -> None:
    """Give vacant parts to members that miss some: first to those that share their partition.

    The rest of a partition goes to the member that misses just so many, or else the most.
    """
    groups: dict[tuple[int, int], list[PartitionId]] = {}
    for part in sorted(vacant):
        groups.setdefault(_partition(part), []).append(part)
    sharing: dict[tuple[int, int], Counter[Owner]] = {}
    for part, owner in target.items():
        sharing.setdefault(_partition(part), Counter())[owner] += 1
    for key in sorted(groups, key=lambda key: (-len(groups[key]), key)):
        near = sharing.get(key, Counter())
        for owner in sorted(near, key=lambda each: (-near[each], each)):
            _fill(groups[key], owner, target, missing)
    for key in sorted(groups, key=lambda key: (-len(groups[key]), key)):
        while parts := groups[key]:
            fits = [each for each in missing if missing[each] >= len(parts)]
            if fits:
                owner = min(fits, key=lambda each: (missing[each], each))
            else:
                owner = min(missing, key=lambda each: (-missing[each], each))
            _fill(parts, owner, target, missing)


def _fill(
    parts: list[PartitionId],
    owner: Owner,
    target: dict[PartitionId, Owner],
    missing: dict[Owner, int],
) -> None:
    count = min(missing[owner], len(parts))
    target.update(dict.fromkeys(parts[:count], owner))
    del parts[:count]
    missing[owner] -= count


def _partition(part: PartitionId) -> tuple[int, int]:
    return part.generation, part.index


def _on_ring(parts: Iterable[PartitionId], ring: Ring) -> list[PartitionId]:
    return sorted(set(parts), key=lambda part: (ring.get(part, SLOT_COUNT), part))


def _filled(owners: Sequence[Owner | None]) -> list[Owner | None]:
    """Give what nobody has to the next one on its right; at the end to the one on its left."""
    filled = list(owners)
    right: Owner | None = None
    for at in range(len(filled) - 1, -1, -1):
        right = filled[at] = filled[at] or right
    left: Owner | None = None
    for at, owner in enumerate(filled):
        left = filled[at] = owner or left
    return filled


def _without_fragments(owners: Sequence[Owner | None]) -> list[Owner | None]:
    """Leave each owner its longest run, the first of equal ones."""
    runs = [(owner, len(list(run))) for owner, run in groupby(owners)]
    longest: dict[Owner | None, int] = {}
    for at, (owner, size) in enumerate(runs):
        if owner not in longest or size > runs[longest[owner]][1]:
            longest[owner] = at
    return [
        owner if longest[owner] == at else None
        for at, (owner, size) in enumerate(runs)
        for _ in range(size)
    ]
