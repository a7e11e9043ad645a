"""Batches of one partition → the same messages by the partitions that take them now."""

from collections.abc import Callable, Sequence
from itertools import chain, pairwise

from partq.client.produce.batching import SealedBatch
from partq.client.produce.results import MessageResult
from partq.core.model import PartitionId
from partq.wire import batch as wire


class _Parts:
    """The results of batches, each divided among the partitions that its messages go to."""

    def __init__(
        self, home: PartitionId, batches: Sequence[SealedBatch], places: Sequence[list[PartitionId]]
    ) -> None:
        self._home = home
        destinations: dict[MessageResult, list[PartitionId]] = {}
        for batch, of_batch in zip(batches, places, strict=True):
            at = 0
            for result, count in batch.results:
                destinations.setdefault(result, []).extend(of_batch[at : at + count])
                at += count
        self._parts = {
            result: result.divided(home, found)
            for result, found in destinations.items()
            if any(each != home for each in found)
        }

    def results(
        self, batch: SealedBatch, places: list[PartitionId], partition: PartitionId
    ) -> list[tuple[MessageResult, int]]:
        """Return the results of a batch's messages that go to one of the partitions."""
        found = []
        at = 0
        for result, count in batch.results:
            here = places[at : at + count].count(partition)
            at += count
            if here:
                parts = self._parts.get(result)
                found.append((result if parts is None else parts[partition], here))
        return found


def cut(
    home: PartitionId,
    batches: Sequence[SealedBatch],
    partition_of: Callable[[int], PartitionId],
) -> dict[PartitionId, list[SealedBatch]]:
    """Return batches of the same messages, by the partition of their slots, as `cut_by_place`.

    Args:
        home: as there.
        batches: as there.
        partition_of: returns the partition of a slot.
    """
    slots = slots_of(batches)
    routes = {slot: partition_of(slot) for slot in set(chain.from_iterable(slots))}
    return cut_by_place(home, batches, slots, [[routes[slot] for slot in each] for each in slots])


def slots_of(batches: Sequence[SealedBatch]) -> list[Sequence[int]]:
    """Return the slots of the messages of each batch."""
    return [wire.read_slots(each.data, wire.read_header(each.data)) for each in batches]


def cut_by_place(
    home: PartitionId,
    batches: Sequence[SealedBatch],
    slots: Sequence[Sequence[int]],
    places: Sequence[list[PartitionId]],
) -> dict[PartitionId, list[SealedBatch]]:
    """Return batches of the same messages, by the partition that each of them goes to.

    The messages for one partition keep their order. One batch is open at a time; a batch whose
    messages stay together keeps its bytes. What is new has no number, and was never sent.

    Args:
        home: the partition that all of them were for.
        batches: in the order of their numbers; their results are told by what is returned.
        slots: of the messages of each batch.
        places: the partition that each of these messages goes to.
    """
    parts = _Parts(home, batches, places)
    found: dict[PartitionId, list[SealedBatch]] = {}
    for batch, of_batch, slots_of_batch in zip(batches, places, slots, strict=True):
        partitions = dict.fromkeys(of_batch)
        if len(partitions) == 1:
            (partition,) = partitions
            batch.results = parts.results(batch, of_batch, partition)
            found.setdefault(partition, []).append(batch)
            continue
        messages = encoded_messages(batch.data)
        for partition in partitions:
            chosen = [at for at, each in enumerate(of_batch) if each == partition]
            part = SealedBatch(
                wire.encode(
                    [messages[at] for at in chosen],
                    [slots_of_batch[at] for at in chosen],
                    wire.read_header(batch.data).codec,
                ),
                parts.results(batch, of_batch, partition),
                first=0,
                size_bytes=sum(len(messages[at]) for at in chosen),
                deadline=batch.deadline,
                ttl_ms=batch.ttl_ms,
                order=[batch.order[at] for at in chosen] if batch.order else (),
                needs=batch.needs,
                due=batch.due,
            )
            found.setdefault(partition, []).append(part)
    return found


def encoded_messages(data: bytes) -> list[bytes]:
    """Return each message of a batch, encoded."""
    ends, body = wire.open_body(data)
    return [bytes(body[start:stop]) for start, stop in pairwise((0, *ends))]
