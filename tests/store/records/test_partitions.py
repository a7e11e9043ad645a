"""The partition's record: create, groups, claim, yield."""

import asyncio
from dataclasses import replace

import pytest

from partq.core.model import BrokerId, PartitionId
from partq.errors import (
    ConflictError,
    FencedError,
    UnknownGroupError,
    UnknownPartitionError,
)
from tests.store.record import BORN, GROUP, NOTHING, commit, write

# ---- create, groups -----------------------------------------------------------------------------


async def test_create_makes_an_empty_record(partitions, partition):
    await partitions.create(partition)
    record = await partitions.read(partition)
    assert (record.owner, record.broker_epoch, record.next, record.trimmed) == (None, 0, 0, 0)
    assert (record.bytes, record.append_number, record.successor) == (0, -1, None)
    assert record.groups == frozenset()


async def test_create_again_changes_nothing(partitions, partition, broker_epoch):
    before = await partitions.read(partition)
    await partitions.create(partition)
    assert await partitions.read(partition) == before


async def test_only_create_makes_a_record(partitions, log, partition):
    with pytest.raises(UnknownPartitionError):
        await partitions.read(partition)
    with pytest.raises(UnknownPartitionError):
        await partitions.claim(partition, BrokerId("b"), "i", expected=0)
    with pytest.raises(UnknownPartitionError):
        await partitions.add_group(partition, GROUP, start="Latest")
    with pytest.raises(FencedError):
        await partitions.yield_(partition, broker_epoch=0, successor=None)
    with pytest.raises(FencedError):
        await log.trim(partition, broker_epoch=0)
    assert await partitions.read_many([partition]) == {}


async def test_groups_start_where_they_are_told(partitions, partition, broker_epoch, ten_messages):
    await partitions.add_group(partition, "early", start="Earliest")
    await partitions.add_group(partition, "late", start="Latest")
    assert (await partitions.read_cursor(partition, "early")).cursor == 0
    assert (await partitions.read_cursor(partition, "late")).cursor == 10
    assert (await partitions.read(partition)).groups == {GROUP, "early", "late"}


async def test_add_group_again_keeps_its_cursor(partitions, partition, broker_epoch, ten_messages):
    await partitions.add_group(partition, GROUP, start="Latest")
    assert (await partitions.read_cursor(partition, GROUP)).cursor == 0


async def test_remove_group(partitions, partition, broker_epoch):
    await partitions.remove_group(partition, GROUP, born=BORN)
    await partitions.remove_group(partition, GROUP, born=BORN)
    assert (await partitions.read(partition)).groups == frozenset()
    with pytest.raises(UnknownGroupError):
        await partitions.read_cursor(partition, GROUP)
    with pytest.raises(UnknownGroupError):
        await partitions.bind(
            partition,
            GROUP,
            **write(),
            member="m",
            incarnation="x",
            broker_epoch=broker_epoch,
        )
    with pytest.raises(UnknownGroupError):
        await partitions.flush(partition, GROUP, **write(), broker_epoch=broker_epoch, **NOTHING)
    with pytest.raises(UnknownGroupError):
        await commit(partitions, partition, broker_epoch)


# ---- claim, yield -------------------------------------------------------------------------------


async def test_claim_returns_a_snapshot(partitions, partition, broker_epoch, ten_messages):
    await partitions.flush(
        partition,
        GROUP,
        **write(),
        broker_epoch=broker_epoch,
        cursor=2,
        acked=[(4, 6)],
        redeliveries={2: 3},
    )
    claim = await partitions.claim(partition, BrokerId("b-1"), "i-1", expected=broker_epoch)
    assert claim.broker_epoch > broker_epoch
    assert (claim.next, claim.trimmed) == (10, 0)
    assert claim.groups == {GROUP: await partitions.read_cursor(partition, GROUP)}
    assert claim.groups[GROUP].acked == [(4, 6)]
    assert claim.groups[GROUP].redeliveries == {2: 3}
    record = await partitions.read(partition)
    assert (record.owner, record.owner_incarnation) == ("b-1", "i-1")
    assert record.append_number == -1


async def test_an_owner_that_affirms_refuses_claims_by_what_was_seen_before(
    partitions, log, partition, broker_epoch, ten_messages
):
    seen = await partitions.read(partition)
    assert await partitions.affirm({partition: broker_epoch}) == set()
    with pytest.raises(FencedError):
        await partitions.claim(
            partition, BrokerId("b-1"), "i-1", expected=broker_epoch, affirmed=seen.affirmed
        )
    record = await partitions.read(partition)
    assert record == replace(seen, affirmed=record.affirmed)
    assert record.affirmed > seen.affirmed
    await partitions.claim(
        partition, BrokerId("b-1"), "i-1", expected=broker_epoch, affirmed=record.affirmed
    )
    unknown = PartitionId(1, 4711)
    held = {partition: broker_epoch, unknown: broker_epoch}
    assert await partitions.affirm(held) == held.keys()
    assert (await partitions.read(partition)).affirmed == record.affirmed
    assert await partitions.read_many([unknown]) == {}


async def test_each_affirmation_is_above_those_before_it(
    partitions, partition, broker_epoch, store, keys
):
    """Also if Redis's clock was set back: else a claim decided before it would count again."""
    ahead = 2**53 - 10
    await store.run("write_fields", [keys.meta(partition)], [1, "affirmed", ahead])
    await partitions.affirm({partition: broker_epoch})
    assert (await partitions.read(partition)).affirmed == ahead + 1


async def test_claim_fences_every_older_epoch(
    partitions, log, partition, broker_epoch, ten_messages, member
):
    await partitions.claim(partition, BrokerId("b-1"), "i-1", expected=broker_epoch)
    old = {"broker_epoch": broker_epoch}
    before = await partitions.read(partition), await partitions.read_cursor(partition, GROUP)
    with pytest.raises(FencedError):
        await partitions.claim(partition, BrokerId("b-2"), "i-2", expected=broker_epoch)
    with pytest.raises(FencedError):
        await partitions.yield_(partition, successor=None, **old)
    with pytest.raises(FencedError):
        await partitions.bind(partition, GROUP, **write(), member=member, incarnation="x", **old)
    with pytest.raises(FencedError):
        await partitions.flush(partition, GROUP, **write(), **old, **NOTHING)
    with pytest.raises(FencedError):
        await commit(partitions, partition, broker_epoch, attempt=2)
    with pytest.raises(FencedError):
        await log.trim(partition, **old)
    with pytest.raises(FencedError):
        await log.append(partition, number=1, expected=10, batches=[], room_bytes=None, **old)
    after = await partitions.read(partition), await partitions.read_cursor(partition, GROUP)
    assert after == before


async def test_of_many_claims_at_once_one_goes_through(partitions, partition, broker_epoch):
    outcomes = await asyncio.gather(
        *[
            partitions.claim(partition, BrokerId(f"b-{n}"), "i", expected=broker_epoch)
            for n in range(5)
        ],
        return_exceptions=True,
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Claim"] + ["FencedError"] * 4


async def test_claim_looks_again_when_a_group_came(partitions, partition, broker_epoch):
    read, reads = partitions.read, 0

    async def read_and_be_late(partition):
        nonlocal reads
        record = await read(partition)
        reads += 1
        if reads == 1:
            await partitions.add_group(partition, "second", start="Earliest")
        return record

    partitions.read = read_and_be_late
    claim = await partitions.claim(partition, BrokerId("b-1"), "i-1", expected=broker_epoch)
    assert set(claim.groups) == {GROUP, "second"}
    assert reads == 2


async def test_claim_gives_up_when_groups_change_all_the_time(partitions, partition, broker_epoch):
    read, reads = partitions.read, 0

    async def read_and_be_late(partition):
        nonlocal reads
        record = await read(partition)
        reads += 1
        await partitions.add_group(partition, f"group-{reads}", start="Earliest")
        return record

    partitions.read = read_and_be_late
    with pytest.raises(ConflictError):
        await partitions.claim(partition, BrokerId("b-1"), "i-1", expected=broker_epoch)


async def test_yield_frees_the_partition_and_ends_its_epoch(partitions, partition, broker_epoch):
    await partitions.yield_(partition, broker_epoch=broker_epoch, successor=BrokerId("b-1"))
    record = await partitions.read(partition)
    assert (record.owner, record.successor) == (None, "b-1")
    assert record.broker_epoch > broker_epoch
    with pytest.raises(FencedError):
        await partitions.flush(partition, GROUP, **write(), broker_epoch=broker_epoch, **NOTHING)
    await partitions.claim(partition, BrokerId("b-1"), "i", expected=record.broker_epoch)
    assert (await partitions.read(partition)).successor is None


async def test_read_many_leaves_out_what_is_not_there(partitions):
    made = [PartitionId(1, index) for index in range(0, 1200, 2)]
    await asyncio.gather(*[partitions.create(partition) for partition in made])
    found = await partitions.read_many(PartitionId(1, index) for index in range(1200))
    assert list(found) == made
