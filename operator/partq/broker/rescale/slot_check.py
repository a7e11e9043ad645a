"""Whether a partition takes a batch, now that its slots may have moved to other partitions."""

from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.layout import Layout
from partq.core.model import SLOT_COUNT, PartitionId
from partq.core.rescale.seals import has_given
from partq.core.slot_table import SlotRanges, size_of
from partq.errors import (
    NotStoredError,
    PartqError,
    StaleGenerationError,
    UnknownProducerError,
    WrongPartitionError,
)
from partq.wire import batch

OPENING_RETRY_S = 0.02
"""When a producer tries again whose partition takes no messages yet."""
_ALL_SLOTS = (range(SLOT_COUNT),)


def check_batch(
    owned: OwnedPartition,
    layout: Layout,
    data: bytes,
    *,
    is_numbered: bool,
    fixed_generation: int,
    max_message_bytes: int,
) -> tuple[batch.BatchHeader, bytes]:
    """Check a batch as it comes; return its header, and what is to be appended.

    Nothing is, if a slot of it has left the partition: its numbers are judged first, as it may
    repeat what is stored. Nor if its numbers are fixed, and were counted for an earlier layout of
    the partition (`fixed_generation`; 0: not fixed): there they stand for other messages.

    Raises:
        NotStoredError: the partition is not open yet, or not at the layout of fixed numbers.
        StaleGenerationError: a slot has left the partition, and the batch has no numbers.
        UnknownPartitionError: the layout does not have it.
        BadBatchError, WrongPartitionError, MessageTooLargeError: as `wire.batch.check`.
    """
    if not owned.layout.is_open:
        raise NotStoredError(
            f"partition {owned.id}: opening, as its slots have not left all of the partitions "
            "that had them; publish again",
            retry_after_s=OPENING_RETRY_S,
        )
    if fixed_generation > owned.layout.generation:
        raise NotStoredError(
            f"partition {owned.id}: got numbers for its layout {fixed_generation}, and it is at "
            f"{owned.layout.generation}, until the slots that it gives away have left it; publish "
            "again",
            retry_after_s=OPENING_RETRY_S,
        )
    slots = current_slots(owned, layout)
    try:
        header = batch.check(data, slots=slots, max_message_bytes=max_message_bytes)
        is_past = 0 < fixed_generation < owned.layout.generation
        return header, b"" if is_past else data
    except WrongPartitionError:
        if not has_lost_slots(owned, layout):
            raise
    header = batch.check(data, slots=_ALL_SLOTS, max_message_bytes=max_message_bytes)
    if not is_numbered:
        raise StaleGenerationError.of(owned.id, max(owned.layout.generation, layout.generation))
    return header, b""


def current_slots(owned: OwnedPartition, layout: Layout) -> SlotRanges:
    """Return the slots of a partition by its record or the layout, whichever are fewer.

    Slots only leave a partition, so the one with fewer is the newer of both.

    Raises:
        UnknownPartitionError: the layout does not have it, nor says its record anything.
    """
    recorded = owned.layout.slots
    if recorded is None:
        return layout.slots(owned.id)
    if owned.id not in layout:
        return recorded
    return min(recorded, layout.slots(owned.id), key=size_of)


def has_lost_slots(owned: OwnedPartition, layout: Layout) -> bool:
    """Whether a partition has had more slots than it has."""
    return owned.layout.generation > owned.id.generation or has_given(layout, owned.id)


def unknown_partition(layout: Layout, partition: PartitionId, *, is_repeat: bool) -> PartqError:
    """Return the error of a batch for a partition that the layout does not have.

    `is_repeat`: its producer has sent it before, and did not get the answer.
    """
    if not layout.is_past(partition):
        return layout.unknown(partition)
    if not is_repeat:
        return StaleGenerationError.of(partition, layout.generation)
    return UnknownProducerError(
        f"partition {partition}: removed by a change of the partition count, with the numbers of "
        "its producers, so an earlier try of the batch may or may not be stored; check it, or "
        "publish its messages to their partitions now, and take the risk of duplicates"
    )
