"""The parts of a producer: budget, results, slots, checks, time."""

import asyncio
import random
from collections import Counter
from itertools import pairwise

import pytest

from partq.client.produce.buffer_pool import BufferPool
from partq.client.produce.failures import Failures
from partq.client.produce.message_encoding import encode_checked
from partq.client.produce.partitioner import Partitioner
from partq.client.produce.results import ListResult
from partq.client.produce.slot_routes import SlotRoutes
from partq.client.transport.liveness import PeerLease
from partq.core.hashing import slot_of
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.errors import (
    BadRequestError,
    MessageTooLargeError,
    NotStoredError,
    OutcomeUnknownError,
    UnavailableError,
)
from partq.wire.batch import Message

LAYOUT = Layout.first(4)
ROUTES = SlotRoutes.of(LAYOUT.table)


# ---- budget ----


async def test_calls_are_admitted_in_the_order_in_which_they_came():
    budget = BufferPool(max_count=1, max_bytes=100)
    await budget.take(1, 1)
    order = []

    async def ask(name):
        await budget.take(1, 1)
        order.append(name)

    asking = [asyncio.create_task(ask(name)) for name in "abc"]
    await asyncio.sleep(0)
    assert not budget.try_take(1, 1), "nobody overtakes those in line"
    for _ in asking:
        budget.give_back(1, 1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert order == ["a", "b", "c"]


async def test_who_stops_waiting_takes_nothing():
    budget = BufferPool(max_count=1, max_bytes=100)
    await budget.take(1, 1)
    waiting = asyncio.create_task(budget.take(1, 1))
    await asyncio.sleep(0)
    budget.give_back(1, 1)
    waiting.cancel()  # in the very moment of its admission
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert budget.pending_count == 0


async def test_one_list_may_go_above_the_limit():
    budget = BufferPool(max_count=10, max_bytes=10)
    assert budget.try_take(1000, 1000)
    assert not budget.try_take(1, 1)


async def test_closing_turns_away_who_waits():
    budget = BufferPool(max_count=1, max_bytes=1)
    await budget.take(1, 1)
    waiting = asyncio.create_task(budget.take(1, 1))
    await asyncio.sleep(0)
    budget.close(UnavailableError("gone"))
    with pytest.raises(UnavailableError):
        await waiting


# ---- results ----


def slots_in(*partitions):
    return [LAYOUT.slots(PartitionId(1, index))[0].start for index in partitions]


async def test_positions_are_in_the_order_of_the_list():
    result = ListResult(ROUTES, slots_in(0, 1, 0, 1, 0), Failures())
    result.stored(PartitionId(1, 1), 70, 2)
    result.stored(PartitionId(1, 0), 5, 2)
    result.stored(PartitionId(1, 0), -1, 1)
    positions = await result.future
    assert [(p.partition.index, p.offset) for p in positions] == [
        (0, 5), (1, 70), (0, 6), (1, 71), (0, -1),
    ]  # fmt: skip
    assert len(positions) == 5


async def test_a_list_that_failed_in_part_says_so_and_the_worst_first():
    result = ListResult(ROUTES, slots_in(0, 1, 2), Failures())
    result.failed(PartitionId(1, 0), NotStoredError("no"), 1)
    result.failed(PartitionId(1, 1), OutcomeUnknownError("who knows"), 1)
    result.stored(PartitionId(1, 2), 0, 1)
    with pytest.raises(OutcomeUnknownError, match="2 of 3 messages failed, 1 is stored"):
        await result.future


async def test_an_empty_list_is_stored_at_once():
    assert len(await ListResult(ROUTES, [], Failures()).future) == 0


# ---- slots ----


def slots(policy="Random", unavailable=()):
    return Partitioner(LAYOUT, policy, unavailable, random.Random(7))


@pytest.mark.req("AZR-11", "AZR-18")
def test_a_key_has_the_slot_of_its_hash():
    assert slots().of([Message("a", b""), Message("ü", b"")]) == [slot_of("a"), slot_of("ü")]


def test_sorting_keeps_the_order_within_a_partition():
    messages = [Message(f"k{number % 7}", str(number).encode()) for number in range(50)]
    sorter = slots()
    for _ in range(2):  # nothing is left over from the first time
        parts = sorter.sort(messages, sorter.of(messages))
        assert sum(len(part) for _, part, _ in parts) == 50
        for partition, part, part_slots in parts:
            assert [LAYOUT.partition_of(slot) for slot in part_slots] == [partition] * len(part)
            numbers = [int(message.value) for message in part]
            assert numbers == sorted(numbers)


@pytest.mark.parametrize("policy", ["Random", "RoundRobin"])
def test_messages_without_a_key_avoid_partitions_without_an_owner(policy):
    chooser = slots(policy, {PartitionId(1, 2)})
    used = Counter(LAYOUT.partition_of(chooser.keyless()).index for _ in range(300))
    assert set(used) == {0, 1, 3}


@pytest.mark.req("SOL-12", "SOL-U01", "AZR-11", "AZR-18")
def test_messages_without_a_key_spread_evenly_by_chance():
    """Chi-square with 3 degrees of freedom: 11.3 is what chance exceeds once in a hundred."""
    chooser = slots("Random")
    order = [LAYOUT.partition_of(chooser.keyless()).index for _ in range(4000)]
    counts = Counter(order)
    assert sum((counts[index] - 1000) ** 2 / 1000 for index in range(4)) < 11.3
    assert len(set(pairwise(order))) == 16, "no turns are taken"


def test_round_robin_takes_turns():
    chooser = slots("RoundRobin")
    used = Counter(LAYOUT.partition_of(chooser.keyless()).index for _ in range(400))
    assert used == {0: 100, 1: 100, 2: 100, 3: 100}


def test_with_no_owner_at_all_any_partition_will_do():
    everything = {PartitionId(1, index) for index in range(4)}
    assert 0 <= slots("Random", everything).keyless() < 65_536


@pytest.mark.parametrize("key", [b"bytes", 7, "x" * 1025, "\ud800"])
def test_a_key_that_no_consumer_could_read_is_refused(key):
    with pytest.raises(BadRequestError):
        slots().of([Message(key, b"")])


# ---- checks ----


@pytest.mark.parametrize(
    "parts",
    [
        ("k", "text"),
        ("k", None),
        ("k", b"", {"a": 1}),
        ("k", b"", {1: "a"}),
        ("k", b"", [("a", "b")]),
        ("k", b"", {"a": "\ud800"}),
        ("k", b"", None, 1.5),
        ("k", b"", None, 2**70),
    ],
)
def test_a_message_that_no_consumer_could_read_is_refused(parts):
    with pytest.raises(BadRequestError):
        encode_checked([Message(*parts)], 1000)


def test_what_is_no_message_is_refused():
    with pytest.raises(BadRequestError, match=r"partq\.Message"):
        encode_checked([b"bytes"], 1000)


@pytest.mark.req("PUL-15")
def test_a_message_above_the_limit_is_refused():
    with pytest.raises(MessageTooLargeError):
        encode_checked([Message("k", b"x" * 101)], 100)


# ---- time ----


def test_a_lease_counts_from_the_sending_of_the_answered_ping():
    lease = PeerLease(3.0, 100.0)
    assert not lease.is_proven
    first, second = lease.ping(100.5), lease.ping(101.5)
    lease.answered(second)
    assert lease.is_proven
    assert lease.lost_at == 104.5
    lease.answered(first)  # an older answer takes nothing back
    assert lease.lost_at == 104.5
    assert not lease.is_over(104.4)
    assert lease.is_over(104.5)


def test_an_answer_to_no_ping_proves_nothing():
    lease = PeerLease(3.0, 100.0)
    lease.answered(77)
    assert not lease.is_proven
    assert lease.lost_at == 103.0
