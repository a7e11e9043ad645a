"""What each change of the partition count did to the traffic, by the journals of the workers."""

from collections.abc import Iterable
from dataclasses import dataclass

from partq.core.hashing import slot_of
from partq.core.model import SLOT_COUNT
from partq.core.slot_table import SlotTable, size_of
from partq.lab.verdict.journal_rows import DeliveredRow, PublishedRow
from partq.lab.verdict.timeline import RunChange


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRescale:
    """What followed from a change of the partition count."""

    from_count: int
    to_count: int
    moved_slots: int
    """Slots of which the partition's index is another one."""
    least_slots: int
    """How many have to move, whatever is done: so that all partitions have as many."""
    moved_keys: int
    key_count: int
    """Of the run."""
    new_partitions: int
    publish_pause_ms: int
    """The longest time in which no message of the keys of a new partition was confirmed, from the
    last one in an older partition on."""
    hold_ms: int
    """The longest time from a confirmation to the processing of a message in a new partition."""

    @property
    def is_least(self) -> bool:
        """Whether no more slots have moved than had to."""
        return self.moved_slots <= self.least_slots


def least_moved_slots(before: SlotTable, partition_count: int) -> int:
    """Return how many slots get another index at least when a partition count changes.

    Each partition that stays keeps what it had, or its new share if that is less. The larger shares
    go to those that had more.
    """
    stay = [size_of(each) for of, each in before.slots.items() if of.index < partition_count]
    share, extra = divmod(SLOT_COUNT, partition_count)
    kept = (
        min(size, share + (rank < extra)) for rank, size in enumerate(sorted(stay, reverse=True))
    )
    return SLOT_COUNT - sum(kept)


def measure_rescale(
    change: RunChange,
    before: SlotTable,
    after: SlotTable,
    published: Iterable[PublishedRow],
    deliveries: Iterable[DeliveredRow],
) -> ObservedRescale:
    """Return what followed from a change; the rows are of the whole run, in order."""
    new = {str(partition) for partition in after.slots if partition not in before.slots}
    rows = [*published]
    slots = {row.key: slot_of(row.key) for row in rows}
    homes = {key: str(after.partition_of(slot)) for key, slot in slots.items()}
    last_ns: dict[str, int] = {}
    stored_ns: dict[tuple[str, int], int] = {}
    pauses_ns: dict[str, int] = {}
    for row in rows:
        home = homes[row.key]
        if home not in new or row.at_ns >= change.until_ns:
            continue
        if row.partition != home:
            last_ns[home] = row.at_ns
            continue
        stored_ns[home, row.offset] = row.at_ns
        if home not in pauses_ns and home in last_ns:
            pauses_ns[home] = row.at_ns - last_ns[home]
    holds_ns = [0]
    for delivered in deliveries:
        at_ns = stored_ns.pop((delivered.partition, delivered.offset), None)
        if at_ns is not None:
            holds_ns.append(delivered.at_ns - at_ns)
    return ObservedRescale(
        from_count=before.partition_count,
        to_count=after.partition_count,
        moved_slots=sum(_has_moved(before, after, slot) for slot in range(SLOT_COUNT)),
        least_slots=least_moved_slots(before, after.partition_count),
        moved_keys=sum(_has_moved(before, after, slot) for slot in slots.values()),
        key_count=len(slots),
        new_partitions=len(new),
        publish_pause_ms=max(pauses_ns.values(), default=0) // 1_000_000,
        hold_ms=max(holds_ns) // 1_000_000,
    )


def _has_moved(before: SlotTable, after: SlotTable, slot: int) -> bool:
    return before.partition_of(slot).index != after.partition_of(slot).index
