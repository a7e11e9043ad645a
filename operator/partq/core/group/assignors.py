"""Sticky, range, modulo, failover, exclusive: which member owns which partition; by name.

All of them are pure, deterministic and total: equal input gives equal output whatever the order of
partitions and members; every partition has one owner, unless there are no members at all. Owners
are members of a group or brokers.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Protocol, TypeVar

from partq.core.model import PartitionId
from partq.errors import SettingsError
from partq.excerpts import excerpt

Owner = TypeVar("Owner", bound=str)
NO_PRIORITIES: Mapping[str, int] = MappingProxyType({})
NO_PREFERENCES: Mapping[PartitionId, str] = MappingProxyType({})


class Assignor(Protocol):
    """What every strategy looks like; only `sticky` and `exclusive` read `previous`."""

    def __call__(
        self,
        partitions: Sequence[PartitionId],
        members: Collection[Owner],
        previous: Mapping[PartitionId, Owner],
    ) -> dict[PartitionId, Owner]:
        """Return the owner of each of `partitions`."""


def sticky(
    partitions: Sequence[PartitionId],
    members: Collection[Owner],
    previous: Mapping[PartitionId, Owner],
    preferred: Mapping[PartitionId, str] = NO_PREFERENCES,
) -> dict[PartitionId, Owner]:
    """Spread partitions evenly and move as few of them as that allows.

    In order of weight: every partition has one owner; sizes differ by at most
    one; a partition leaves its owner only when the first two demand it; one
    without an owner goes to its preferred one, in the order of `preferred`.
    """
    kept: dict[Owner, list[PartitionId]] = {member: [] for member in members}
    if not kept:
        return {}
    ordered = _ordered(partitions)
    vacant = []
    for partition in ordered:
        owner = previous.get(partition)
        if owner is not None and owner in kept:
            kept[owner].append(partition)
        else:
            vacant.append(partition)

    # The fullest members get the odd extra partition: they would lose one otherwise.
    names: dict[str, Owner] = {member: member for member in kept}
    homeless = set(vacant) if preferred else ()
    wishes = {
        partition: names[wish]
        for partition, wish in preferred.items()
        if partition in homeless and wish in names
    }
    wished = Counter(wishes.values())
    fullest_first = sorted(kept, key=lambda each: (-len(kept[each]), -wished[each], each))
    share, extra = divmod(len(ordered), len(fullest_first))
    quota = {member: share + (rank < extra) for rank, member in enumerate(fullest_first)}

    target: dict[PartitionId, Owner] = {}
    for member in fullest_first:
        target.update(dict.fromkeys(kept[member][: quota[member]], member))
        vacant += kept[member][quota[member] :]
    missing = {member: max(0, quota[member] - len(kept[member])) for member in fullest_first}
    for partition, member in wishes.items():
        if missing[member]:
            missing[member] -= 1
            target[partition] = member
    unowned = iter(sorted(partition for partition in vacant if partition not in target))
    for member in fullest_first:
        target.update(dict.fromkeys(islice(unowned, missing[member]), member))
    return target


def contiguous(
    partitions: Sequence[PartitionId],
    members: Collection[Owner],
    previous: Mapping[PartitionId, Owner],
) -> dict[PartitionId, Owner]:
    """Give each member, in the order of names, one run of neighbouring partitions (`range`).

    Sizes differ by at most one; the first members have the odd extra partition.
    """
    owners = sorted(set(members))
    if not owners:
        return {}
    ordered = _ordered(partitions)
    share, extra = divmod(len(ordered), len(owners))
    rest = iter(ordered)
    target: dict[PartitionId, Owner] = {}
    for rank, member in enumerate(owners):
        target.update(dict.fromkeys(islice(rest, share + (rank < extra)), member))
    return target


def modulo(
    partitions: Sequence[PartitionId],
    members: Collection[Owner],
    previous: Mapping[PartitionId, Owner],
) -> dict[PartitionId, Owner]:
    """Give a partition to the member whose rank by name is its index modulo the member count.

    Sizes differ by at most one within a generation; most partitions move when members change.
    """
    owners = sorted(set(members))
    if not owners:
        return {}
    return {partition: owners[partition.index % len(owners)] for partition in partitions}


def failover(
    partitions: Sequence[PartitionId],
    members: Collection[Owner],
    previous: Mapping[PartitionId, Owner],
    *,
    priorities: Mapping[str, int] = NO_PRIORITIES,
) -> dict[PartitionId, Owner]:
    """Make one member the master of each partition: modulo over those of the highest priority.

    Args:
        partitions: what is to be owned.
        members: who may own.
        previous: not used.
        priorities: 0 is the highest; a member that is not named has 0.
    """
    ranked = by_priority(members, priorities)
    masters = [m for m in ranked if priorities.get(m, 0) == priorities.get(ranked[0], 0)]
    return modulo(partitions, masters, previous)


def exclusive(
    partitions: Sequence[PartitionId],
    members: Collection[Owner],
    previous: Mapping[PartitionId, Owner],
    *,
    priorities: Mapping[str, int] = NO_PRIORITIES,
) -> dict[PartitionId, Owner]:
    """Give everything to one member of the highest priority.

    Among several it is the one that has most of it already, else the first by name.
    """
    if not members:
        return {}
    held = Counter(previous.values())
    chosen = min(members, key=lambda member: (priorities.get(member, 0), -held[member], member))
    return dict.fromkeys(partitions, chosen)


def by_priority(members: Collection[Owner], priorities: Mapping[str, int]) -> list[Owner]:
    """Return the members by priority (0, the highest and the default, first), then by name."""
    return sorted(set(members), key=lambda member: (priorities.get(member, 0), member))


def moved(
    previous: Mapping[PartitionId, Owner], target: Mapping[PartitionId, Owner]
) -> list[PartitionId]:
    """Return the partitions that leave an owner: those without a previous one do not move."""
    return [partition for partition, owner in previous.items() if target.get(partition) != owner]


ASSIGNORS: Mapping[str, Assignor] = MappingProxyType(
    {"sticky": sticky, "range": contiguous, "modulo": modulo, "failover": failover}
)
"""Every strategy by the name that a resource gives it."""


def assignor(name: str) -> Assignor:
    """Return the strategy of this name.

    Raises:
        SettingsError: no strategy has this name.
    """
    try:
        return ASSIGNORS[name]
    except KeyError:
        expected = ", ".join(ASSIGNORS)
        raise SettingsError(
            f"strategy: got {excerpt(repr(name))}, expected one of {expected}"
        ) from None


def _ordered(partitions: Sequence[PartitionId]) -> list[PartitionId]:
    """Return partitions, or parts, by index: a new one is where the one was that it continues."""
    return sorted(dict.fromkeys(partitions), key=lambda each: (each.index, each))
