"""What each change of the partition count did to the traffic, by the journals of the workers."""

from collections.abc import Collection, Iterable
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
    """The longest publish of a key that got a new partition: see `publish_pauses_ms`."""
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


def publish_pauses_ms(
    change: RunChange, new: Collection[str], published: Iterable[PublishedRow]
) -> dict[str, float]:
    """Return how long the keys that waited for a new partition did so, in milliseconds.

    Keys wait that publish before a message in their partition is confirmed. The first message of a
    key there waits the longest, from `send` to the confirmation: its time is the key's. The rows
    are in order; those from the next change on do not count. `new`: the partitions of the change.
    """
    first_ns: dict[str, int] = {}
    seen: set[str] = set()
    found: dict[str, float] = {}
    for row in published:
        if row.at_ns >= change.until_ns:
            break
        if row.partition not in new or row.key in seen:
            continue
        seen.add(row.key)
        if row.at_ns - row.took_us * 1000 <= first_ns.setdefault(row.partition, row.at_ns):
            found[row.key] = row.took_us / 1000
    return found


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
    stored_ns = {
        (row.partition, row.offset): row.at_ns
        for row in rows
        if row.partition in new and row.at_ns < change.until_ns
    }
    pauses_ms = publish_pauses_ms(change, new, rows)
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
        publish_pause_ms=round(max(pauses_ms.values(), default=0)),
        hold_ms=max(holds_ns) // 1_000_000,
    )


def _has_moved(before: SlotTable, after: SlotTable, slot: int) -> bool:
    return before.partition_of(slot).index != after.partition_of(slot).index
