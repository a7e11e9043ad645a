"""Resets of a group in all partitions: their ids, by which they hold gates, and their order."""

from collections.abc import Iterable

from partq.core.model import PartitionId

RESET_ID = r"^\d{1,16}-[0-9a-z]{1,32}@\d{1,10}$"
"""What the id of a reset of all partitions looks like."""


def new_reset_id(began_ms: int, name: str, generation: int) -> str:
    """Return the id of a reset of all partitions, by which it holds gates.

    Args:
        began_ms: when it began, in Redis's time, for people.
        name: that no other reset has.
        generation: of the layout that says which partitions are all.
    """
    return f"{began_ms}-{name}@{generation}"


def by_generation(partitions: Iterable[PartitionId]) -> list[list[PartitionId]]:
    """Return partitions by their generations, the oldest first: none follows a later one."""
    found: dict[int, list[PartitionId]] = {}
    for partition in sorted(partitions):
        found.setdefault(partition.generation, []).append(partition)
    return [found[generation] for generation in sorted(found)]
