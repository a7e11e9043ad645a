"""Messages made of a few numbers, the same every time: a producer can continue where it died."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from partq.core.model import PartitionId
from partq.lab.workload.events import WorkloadEvent


def key_prefix(producer: str) -> str:
    """Return what the keys of a producer's events begin with; no other producer's do."""
    return f"{producer}/"


def key_names(producer: str, count: int) -> list[str]:
    """Return the keys of a producer's events."""
    return [f"{key_prefix(producer)}{index}" for index in range(count)]


def in_turn(keys: Sequence[str], partition_of: Callable[[str], PartitionId]) -> list[str]:
    """Return keys so that the partitions follow each other in turn, as many keys of each.

    Keys that are too many for that are left out.
    """
    of_partition: defaultdict[PartitionId, list[str]] = defaultdict(list)
    for key in keys:
        of_partition[partition_of(key)].append(key)
    return list(chain.from_iterable(zip(*of_partition.values(), strict=False)))


def generate(keys: Sequence[str], *, messages: int, size_bytes: int) -> Iterator[WorkloadEvent]:
    """Yield `messages` events over the keys in turn, numbered from 1 per key.

    Equal arguments give equal events. A value names its event at its begin; the rest is filler
    that does not compress to nothing.
    """
    filler = _filler(size_bytes)
    for index in range(messages):
        key, number = keys[index % len(keys)], index // len(keys) + 1
        name = f"{key}#{number}:".encode()
        yield WorkloadEvent(key, number, (name + filler)[:size_bytes])


def _filler(size_bytes: int) -> bytes:
    # A multiplicative generator: no two neighbours alike, and no source of randomness to seed.
    state, filler = 1, bytearray()
    while len(filler) < size_bytes:
        state = state * 48_271 % 2_147_483_647
        filler += state.to_bytes(4, "little")
    return bytes(filler)
