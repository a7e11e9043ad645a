"""Counts the keys that wait of a group in a partition, each where its messages are."""

from typing import NamedTuple

from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.store.records.stored_partition import PartitionLayout


class KeyCounts(NamedTuple):
    """How many keys of a group wait in a partition; all 0 in a group of another order."""

    parked: int = 0
    """For their time, or until they are released."""
    blocked: int = 0
    """Until they are released."""
    quarantined: int = 0
    """The same, and their messages become dead letters."""


def moved_keys(layout: PartitionLayout, consumed: ConsumedPartition) -> set[int]:
    """Return the slots that wait until they are released, and have nothing here any more.

    A change of the partition count has moved them, and the group has done with what they had here.
    They wait in the partition that they went to; the record here still names them.
    """
    lanes = consumed.keys
    if lanes is None or layout.slots is None:
        return set()
    if lanes.cursor < max(layout.seals.values(), default=0):
        return set()
    return {lane for lane in lanes.held_lanes if not any(lane in each for each in layout.slots)}


def count_keys(layout: PartitionLayout, consumed: ConsumedPartition) -> KeyCounts:
    """Return how many keys wait. `layout`: of the partition, as its record says."""
    lanes = consumed.keys
    if lanes is None:
        return KeyCounts()
    moved, quarantined = moved_keys(layout, consumed), lanes.quarantined_lanes
    return KeyCounts(
        parked=lanes.parked_count - len(moved),
        blocked=lanes.blocked_count - len(moved - quarantined),
        quarantined=len(quarantined - moved),
    )
