"""Hashing never changes once released: golden values, and laws that hold for every input."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.hashing import (
    MAX_KEY_BYTES,
    key_hash,
    partition_index,
    rendezvous,
    slot_of,
    slot_range,
)
from partq.core.model import SLOT_COUNT, BrokerId, PartitionId
from partq.errors import BadRequestError

SLOTS = st.integers(0, SLOT_COUNT - 1)
COUNTS = st.integers(1, SLOT_COUNT)
BROKERS = st.sets(st.text("abc-01", min_size=1, max_size=6).map(BrokerId), max_size=8)
PARTITIONS = st.builds(PartitionId, st.integers(1, 4), st.integers(0, 999))


def murmur3(data: bytes) -> int:
    """Murmur3 x86 32-bit, seed 0, from its description: the oracle for the library."""

    def rotate(value: int, by: int) -> int:
        return (value << by | value >> 32 - by) & 0xFFFFFFFF

    def scramble(value: int) -> int:
        return rotate(value * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF

    state = 0
    body = len(data) & ~3
    for start in range(0, body, 4):
        state ^= scramble(int.from_bytes(data[start : start + 4], "little"))
        state = (rotate(state, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    state ^= scramble(int.from_bytes(data[body:], "little"))
    state ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ state >> shift) * factor & 0xFFFFFFFF
    return state ^ state >> 16


@pytest.mark.req("PUL-U03", "SOL-01", "SOL-U01", "PUL-129")
@pytest.mark.parametrize(("key", "hashed", "slot"), [
    pytest.param("Order-3459134", 3112179635, 6067, id="PUL-U03, first"),
    pytest.param("orders-aggregator-pod-2345-consumer1", 1003084738, 56258, id="PUL-U03, second"),
    pytest.param("", 0, 0, id="the empty string is a key"),
    pytest.param("a", 1009084850, 27058, id="one byte"),
    pytest.param("schlüssel", 2725644029, 1789, id="two-byte characters"),
    pytest.param("鍵🔑", 798329728, 35712, id="three and four-byte characters"),
])  # fmt: skip
def test_golden(key, hashed, slot):
    assert (key_hash(key), slot_of(key)) == (hashed, slot)


@pytest.mark.req("SOL-01")
@given(st.text(max_size=256))
def test_hash_is_murmur3_of_the_utf8_bytes(key):
    assert key_hash(key) == murmur3(key.encode())
    assert slot_of(key) == key_hash(key) & 0xFFFF


@pytest.mark.parametrize("key", ["x" * 1024, "é" * 512, "🔑" * 256])
def test_a_key_of_exactly_one_kibibyte_is_taken(key):
    assert len(key.encode()) == MAX_KEY_BYTES
    assert key_hash(key) == murmur3(key.encode())


@pytest.mark.parametrize(("key", "got"), [
    pytest.param("x" * 1025, "got 1025 bytes", id="ascii"),
    pytest.param("é" * 513, "got 1026 bytes", id="characters are not bytes"),
    pytest.param("🔑" * 257, "got 1028 bytes", id="four bytes each"),
    pytest.param("a\ud800", "lone surrogate at character 1", id="short, no UTF-8"),
    pytest.param("\udfff" + "a" * 999, "lone surrogate at character 0", id="long, no UTF-8"),
])  # fmt: skip
def test_a_bad_key_is_refused(key, got):
    with pytest.raises(BadRequestError, match=got):
        slot_of(key)


@given(SLOTS, COUNTS)
def test_slot_range_inverts_partition_index(slot, partition_count):
    index = partition_index(slot, partition_count)
    assert 0 <= index < partition_count
    assert slot in slot_range(index, partition_count)


@pytest.mark.parametrize("partition_count", [1, 2, 3, 7, 16, 100, 1000, 65_535, 65_536, 100_000])
def test_ranges_meet_without_gap_and_differ_by_at_most_one(partition_count):
    ranges = [slot_range(index, partition_count) for index in range(partition_count)]
    assert ranges[0].start == 0
    assert ranges[-1].stop == SLOT_COUNT
    assert all(a.stop == b.start for a, b in pairwise(ranges))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


def test_golden_ranges():
    assert [slot_range(i, 3) for i in range(3)] == [
        range(21846), range(21846, 43691), range(43691, 65536),
    ]  # fmt: skip
    assert slot_range(5, 16) == range(5 * 4096, 6 * 4096)


@pytest.mark.req("SOL-11")
@pytest.mark.parametrize("kind", ["order-{}", "{:08x}", "customer/{}/cart"])
def test_many_keys_spread_evenly(kind):
    """Chi-square with 15 degrees of freedom: 30.6 is what chance exceeds once in a hundred."""
    counts = Counter(partition_index(slot_of(kind.format(n)), 16) for n in range(16 * 200))
    assert sum((counts[index] - 200) ** 2 / 200 for index in range(16)) < 30.6


@given(PARTITIONS, BROKERS, st.randoms(use_true_random=False))
def test_rendezvous_ignores_the_order_of_brokers(partition, brokers, random):
    shuffled = sorted(brokers)
    random.shuffle(shuffled)
    assert rendezvous(partition, shuffled) == rendezvous(partition, brokers)
    assert sorted(rendezvous(partition, brokers)) == sorted(brokers)


@given(PARTITIONS, BROKERS.filter(bool), st.data())
def test_a_lost_broker_changes_no_other_place(partition, brokers, data):
    lost = data.draw(st.sampled_from(sorted(brokers)))
    rest = tuple(b for b in rendezvous(partition, brokers) if b != lost)
    assert rendezvous(partition, brokers - {lost}) == rest


def test_first_places_spread_evenly():
    brokers = [BrokerId(f"queue-{number}") for number in range(4)]
    firsts = [rendezvous(PartitionId(1, index), brokers)[0] for index in range(4000)]
    assert all(850 < firsts.count(broker) < 1150 for broker in brokers)


def test_golden_rendezvous():
    brokers = [BrokerId(name) for name in ("b-0", "b-1", "b-2")]
    orders = [rendezvous(PartitionId(1, index), brokers) for index in range(3)]
    assert orders == [
        ("b-2", "b-0", "b-1"),
        ("b-0", "b-2", "b-1"),
        ("b-0", "b-1", "b-2"),
    ]
