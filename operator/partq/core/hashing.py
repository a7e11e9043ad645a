"""Partition key → slot → partition index; never changes once released.

A key's slot is the low 16 bits of its Murmur3 hash (x86, 32 bit, seed 0, unsigned), as Pulsar's is.
Every partition owns one contiguous range of the 65,536 slots.
"""

from collections.abc import Collection

import mmh3

from partq.core.model import SLOT_COUNT, BrokerId, PartitionId
from partq.errors import BadRequestError
from partq.excerpts import excerpt

MAX_KEY_BYTES = 1024


def key_hash(key: str) -> int:
    """Return the 32-bit hash of a partition key, unsigned. The empty string is a key, too.

    Raises:
        BadRequestError: the key is above 1 KiB as UTF-8, or has no UTF-8 (a lone surrogate).
    """
    try:
        data = key.encode()  # ours: mmh3 5.3 crashes the process on a text that has no UTF-8
    except UnicodeEncodeError as error:
        raise BadRequestError(
            f"partition key {excerpt(key)!r}: got a lone surrogate at character {error.start}, "
            "expected text that UTF-8 can hold"
        ) from error
    if len(data) > MAX_KEY_BYTES:
        raise BadRequestError(
            f"partition key {excerpt(key)!r}: got {len(data)} bytes of UTF-8, "
            f"expected at most {MAX_KEY_BYTES}; shorten it or hash it first"
        )
    return mmh3.mmh3_32_uintdigest(data, 0)


def slot_of(key: str) -> int:
    """Return the slot of a partition key, from 0 to 65,535; raises as `key_hash` does."""
    return key_hash(key) & 0xFFFF


def slot_of_stored(key: bytes) -> int:
    """Return the slot of a stored key, as UTF-8. Nothing is checked: a broker has stored it."""
    return mmh3.mmh3_32_uintdigest(key, 0) & 0xFFFF


def partition_index(slot: int, partition_count: int) -> int:
    """Return the index of the partition that owns `slot` when there are `partition_count`."""
    return slot * partition_count >> 16


def slot_range(index: int, partition_count: int) -> range:
    """Return the slots that partition `index` of `partition_count` owns; inverts `partition_index`.

    Ranges are contiguous, meet without a gap and differ in size by at most one. Above 65,536
    partitions some are empty.
    """
    first = -(-index * SLOT_COUNT // partition_count)
    end = -(-(index + 1) * SLOT_COUNT // partition_count)
    return range(first, end)


def rendezvous(partition: PartitionId, brokers: Collection[BrokerId]) -> tuple[BrokerId, ...]:
    """Return the brokers in the order in which they may claim an abandoned partition.

    Every broker computes the same order, whatever the order of `brokers`; one that comes or goes
    changes nothing in the order of the others; first places spread evenly over partitions.
    """

    def rank(broker: BrokerId) -> tuple[int, BrokerId]:
        return -mmh3.mmh3_32_uintdigest(f"{broker}/{partition}".encode(), 0), broker

    return tuple(sorted(set(brokers), key=rank))
