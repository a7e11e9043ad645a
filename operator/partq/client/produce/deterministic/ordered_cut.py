"""Batches of several partitions → the same messages by partition, in the order of their sending.

Where numbers stand for the same messages at each attempt, a partition that gets slots of several
others has to count their messages in the order in which the application sends them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from operator import itemgetter
from typing import NamedTuple

from partq.client.produce.batching import BatchLimits, OpenBatch, SealedBatch
from partq.client.produce.results import MessageResult
from partq.client.produce.window_cut import cut_by_place, encoded_messages, slots_of
from partq.core.model import PartitionId

_Row = tuple[int, bytes, int, MessageResult, SealedBatch]
"""The place of a message among all, the message, its slot, its result, and the batch it was in."""


class OrderedCut(NamedTuple):
    """Messages of partitions whose slots have moved."""

    batches: dict[PartitionId, list[SealedBatch]]
    """By the partition that has them, or is to get them; without numbers."""
    stored_counts: Counter[PartitionId]
    """How many of them, which come first, are stored there."""


def ordered_cut(
    windows: Mapping[PartitionId, Sequence[SealedBatch]],
    limits: BatchLimits,
    stored_at: Callable[[int], PartitionId | None],
    partition_of: Callable[[int], PartitionId],
) -> OrderedCut:
    """Return the messages of some partitions by the partitions that they go to.

    Args:
        windows: their batches; each knows the order of its messages.
        limits: of batches that are made of several partitions' messages.
        stored_at: called for each message with its slot, in the order of all; returns where it is
            stored, or None.
        partition_of: returns the partition that messages of a slot, which are not stored, go to.
    """
    slots = {home: slots_of(batches) for home, batches in windows.items()}
    rows = sorted(
        (number, home, slot)
        for home, batches in windows.items()
        for batch, of_batch in zip(batches, slots[home], strict=True)
        for number, slot in zip(batch.order, of_batch, strict=True)
    )
    stored_counts: Counter[PartitionId] = Counter()
    places: dict[PartitionId, list[PartitionId]] = {home: [] for home in windows}
    for _, home, slot in rows:
        place = stored_at(slot)
        if place is None:
            place = partition_of(slot)
        else:
            stored_counts[place] += 1
        places[home].append(place)
    found: dict[PartitionId, list[list[SealedBatch]]] = {}
    for home, batches in windows.items():
        of_home = iter(places[home])
        by_batch = [list(islice(of_home, each.count)) for each in batches]
        for partition, part in cut_by_place(home, batches, slots[home], by_batch).items():
            found.setdefault(partition, []).append(part)
    return OrderedCut(
        {
            partition: parts[0] if len(parts) == 1 else _merged(chain(*parts), limits)
            for partition, parts in found.items()
        },
        stored_counts,
    )


def split(
    batches: Iterable[SealedBatch], count: int
) -> tuple[list[SealedBatch], list[SealedBatch]]:
    """Return the batches of the first messages, `count` of them, and those of the others."""
    head: list[SealedBatch] = []
    tail: list[SealedBatch] = []
    for batch in batches:
        if batch.count <= count:
            head.append(batch)
        elif count:
            first, rest = batch.cut(count)
            head.append(first)
            tail.append(rest)
        else:
            tail.append(batch)
        count -= min(count, batch.count)
    return head, tail


def _merged(batches: Iterable[SealedBatch], limits: BatchLimits) -> list[SealedBatch]:
    """Return batches of the same messages in their order."""
    merged: list[SealedBatch] = []
    gathered = OpenBatch(limits)
    for number, message, slot, result, batch in sorted(_rows(batches), key=itemgetter(0)):
        if batch.is_whole:
            # Its messages have one key and follow each other: it stays as it is.
            if len(gathered):
                merged.append(gathered.seal(0))
            if not merged or merged[-1] is not batch:
                merged.append(batch)
            continue
        while not gathered.fill(
            (message,), (slot,), result, batch.deadline, batch.ttl_ms, (number,)
        ):
            merged.append(gathered.seal(0))
    if len(gathered):
        merged.append(gathered.seal(0))
    return merged


def _rows(batches: Iterable[SealedBatch]) -> Iterator[_Row]:
    for batch in batches:
        (slots,) = slots_of([batch])
        results = chain.from_iterable(repeat(result, count) for result, count in batch.results)
        messages = encoded_messages(batch.data)
        for row in zip(batch.order, messages, slots, results, strict=True):
            yield *row, batch
