"""How much one broker may store before it hears again how much the whole queue holds.

A queue's quota counts the bytes of all partitions, at all brokers. Their sum is read about each
second; what is left of the quota then is shared out evenly, so brokers that know the same sum
cannot exceed it together. One that goes by an older sum holds a share that the newer one does not
know of: the quota is exceeded by less than what was left at the older reading. With one broker it
is never exceeded.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from partq.core.model import PartitionId
from partq.excerpts import counted

MAX_TOLD = 3
"""Groups that a refusal names."""


@dataclass(frozen=True, slots=True)
class StorageGrant:
    """What a call may store."""

    room_bytes: int | None
    """None: as much as it wants."""
    reserved_bytes: int = 0
    """What is held for it until it is settled."""


class Allowance:
    """A broker's share of what is left."""

    def __init__(self) -> None:
        self._left_bytes = 0
        self._whole_bytes = 0
        self._is_fresh = False
        self._under_way_bytes = 0
        self._stored_bytes = 0
        self._refused_bytes: int | None = None
        self.is_used_up = False
        """As of the last sum nothing is left, or less than what was refused."""

    def observe(self, *, max_bytes: int, used_bytes: int, brokers: int) -> None:
        """Take a new sum of the queue, of which `brokers` (1 or more) share what is left.

        What was stored here since the sum before may not be in this one; it is taken off, and so
        is what is under way. Before the first sum nothing may be stored.
        """
        unseen_bytes = self._stored_bytes + self._under_way_bytes
        self._whole_bytes = max_bytes - used_bytes - unseen_bytes
        self._left_bytes = (max_bytes - used_bytes) // brokers - unseen_bytes
        self._is_fresh = True
        self._stored_bytes = 0
        # By the sum alone: what is taken off may be in it, and the warning would be a false one.
        left_bytes = max_bytes - used_bytes
        if self._refused_bytes is not None and self._refused_bytes <= left_bytes:
            self._refused_bytes = None
        self.is_used_up = left_bytes <= 0 or self._refused_bytes is not None

    def take(self, *, size_bytes: int, first_bytes: int) -> StorageGrant:
        """Return how much a call may store of the `size_bytes` of its batches.

        `first_bytes` is the size of its first batch. One batch that is larger than the share, and
        fits into all that is left, is stored all the same, one for each sum: it would never be
        otherwise.
        """
        room_bytes = max(0, self._left_bytes)
        if self._is_fresh and room_bytes < first_bytes <= self._whole_bytes:
            room_bytes = first_bytes
        self._is_fresh = False
        if room_bytes < first_bytes:
            # The smallest of them: once it fits, the quota is not what stops everything.
            self._refused_bytes = min(first_bytes, self._refused_bytes or first_bytes)
        reserved_bytes = min(room_bytes, size_bytes)
        self._left_bytes -= reserved_bytes
        self._under_way_bytes += reserved_bytes
        return StorageGrant(room_bytes, reserved_bytes)

    def account(self, grant: StorageGrant, stored_bytes: int) -> None:
        """Take the outcome of a call that a grant was for; unknown: all of it counts as stored."""
        if grant.room_bytes is None:
            return
        self._under_way_bytes -= grant.reserved_bytes
        self._stored_bytes += stored_bytes
        self._left_bytes += grant.reserved_bytes - stored_bytes


class Unacknowledged(NamedTuple):
    """What a group still needs of a partition's log: from `mark` to `end`."""

    group: str
    partition: PartitionId
    mark: int
    end: int
    dead_letters: int = 0
    """How many wait to be stored, where the first of them is at `mark`; 0: acks are missing."""


def describe_holders(found: Iterable[Unacknowledged]) -> str:
    """Say which groups hold the oldest messages of their partitions, and what to do.

    A log is freed from its beginning on, so of each partition those groups count that are behind
    all others. The group with the most such messages is named first.
    """
    by_partition: dict[PartitionId, list[Unacknowledged]] = {}
    for each in found:
        by_partition.setdefault(each.partition, []).append(each)
    if not by_partition:
        return (
            "no consumer group acknowledges what this broker stores, so only the time to live "
            "(messageTTLSeconds) frees it: add a group, set one, or drop what is there"
        )
    counts: dict[str, int] = {}
    letters: dict[str, int] = {}
    oldest: dict[str, Unacknowledged] = {}
    is_unacknowledged = False
    for those in by_partition.values():
        mark = min(each.mark for each in those)
        for each in those:
            if each.mark == mark < each.end:
                counts[each.group] = counts.get(each.group, 0) + each.end - mark
                letters[each.group] = letters.get(each.group, 0) + each.dead_letters
                is_unacknowledged = is_unacknowledged or not each.dead_letters
                most = oldest.get(each.group, each)
                oldest[each.group] = max(most, each, key=lambda one: one.end - one.mark)
    if not counts:
        return (
            "the groups have acknowledged all that this broker stores: it is freed within a second "
            "unless a pin holds it; `partq groups` shows what waits at other brokers"
        )
    groups = sorted(counts, key=lambda group: (-counts[group], group))
    named = ", ".join(
        f"group {group} ({counted(counts[group], 'message')}"
        + (f", {letters[group]} of them dead letters" if letters[group] else "")
        + f"; in partition {oldest[group].partition} from {oldest[group].mark} on)"
        for group in groups[:MAX_TOLD]
    )
    more = f" and {len(groups) - MAX_TOLD} more" if len(groups) > MAX_TOLD else ""
    held = f"the oldest messages of this broker are held by {named}{more}, until "
    if not is_unacknowledged:
        return (
            f"{held}the dead-letter queue takes them: create it or give it room (`partq reset` "
            "leaves them, `partq status` says why they wait), or remove a group that nobody needs, "
            "with its dead letters: on Kubernetes its ConsumerGroup, else by `partq groups remove`"
        )
    told = (
        f"{held}they are acknowledged: have them consumed, move the group over them with `partq "
        "reset`, or remove a group that nobody needs: on Kubernetes its ConsumerGroup, else by "
        "`partq groups remove`"
    )
    if any(letters.values()):
        told += (
            "; dead letters wait until their queue takes them, `partq reset` leaves them: create "
            "it or give it room; `partq status` says why they wait"
        )
    return told
