"""Place the partitions that no member was chosen for, or whose member cannot be reached."""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence

from partq.core.group.observation import PartitionOwnership
from partq.core.model import BrokerId, MemberId, PartitionId

IsFree = Callable[[MemberId, BrokerId | None], bool]
"""Whether a member can take a partition of a broker."""
Ranks = Mapping[MemberId, tuple[bool, int]]
"""Of each member, whether it gets nothing while others can take it, and its priority."""


def give_to_least_loaded(
    partitions: Sequence[PartitionOwnership],
    loads: Mapping[MemberId, int],
    ranks: Ranks,
    is_free: IsFree,
) -> Iterator[tuple[PartitionId, MemberId | None]]:
    """Give each partition to the least loaded of the members that can take it.

    Args:
        partitions: those to place.
        loads: how many partitions each member has.
        ranks: of each of these members; lower ones come first.
        is_free: says who can.
    """
    by_broker: dict[BrokerId | None, list[tuple[tuple[bool, int], int, MemberId]]] = {}
    counts = dict(loads)
    for ownership in partitions:
        if ownership.broker not in by_broker:
            able = [
                (ranks[member], load, member)
                for member, load in counts.items()
                if is_free(member, ownership.broker)
            ]
            heapq.heapify(able)
            by_broker[ownership.broker] = able
        yield ownership.partition, _take_least_loaded(by_broker[ownership.broker], counts)


def give_to_most_loaded(
    partitions: Sequence[PartitionOwnership],
    loads: Mapping[MemberId, int],
    ranks: Ranks,
    is_free: IsFree,
) -> Iterator[tuple[PartitionId, MemberId | None]]:
    """Give all partitions to one member, as far as it can take them; the rest to the next one.

    The member with the most is first: what others get meanwhile is moved once more when it can
    take it. The arguments are those of
    `give_to_least_loaded`.
    """
    ranked = sorted(loads, key=lambda member: (ranks[member], -loads[member], member))
    for ownership in partitions:
        yield (
            ownership.partition,
            next((each for each in ranked if is_free(each, ownership.broker)), None),
        )


def _take_least_loaded(
    able: list[tuple[tuple[bool, int], int, MemberId]], counts: dict[MemberId, int]
) -> MemberId | None:
    """Take a member off the heap, count one more for it, and put it back.

    Counts grow through other heaps too, so an entry may be too low: it is put back as it is.
    """
    while able:
        rank, load, member = able[0]
        if load != counts[member]:
            heapq.heapreplace(able, (rank, counts[member], member))
            continue
        counts[member] += 1
        heapq.heapreplace(able, (rank, counts[member], member))
        return member
    return None
