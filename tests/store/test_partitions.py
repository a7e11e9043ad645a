"""The partition's record: create, claim, yield, groups, bind, flush, commit."""

import asyncio

import pytest

from partq.core.model import BrokerId, PartitionId
from partq.errors import (
    AttemptRefusedError,
    ConflictError,
    FencedError,
    NotOwnerError,
    UnknownGroupError,
    UnknownPartitionError,
)
from partq.store.log import AppendBatch

GROUP = "workers"
NOTHING = {"cursor": 0, "acked": [], "redeliveries": {}}


@pytest.fixture
async def ten_messages(log, partition, broker_epoch):
    await log.append(
        partition,
        broker_epoch=broker_epoch,
        number=0,
        expected=0,
        batches=[AppendBatch("", 0, 10, b"ten")],
        max_bytes=None,
    )


@pytest.fixture
async def member(partitions, partition, broker_epoch):
    """The member on record, by a first commit of attempt 1."""
    await commit(partitions, partition, broker_epoch, target="m-0")
    return "m-0"


async def commit(partitions, partition, broker_epoch, **changes):
    arguments = {"source": None, "epoch": 0, "attempt": 1, "target": "m-0", "cause": 0, **NOTHING}
    return await partitions.commit(
        partition, GROUP, broker_epoch=broker_epoch, **{**arguments, **changes}
    )


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
    await partitions.remove_group(partition, GROUP)
    await partitions.remove_group(partition, GROUP)
    assert (await partitions.read(partition)).groups == frozenset()
    with pytest.raises(UnknownGroupError):
        await partitions.read_cursor(partition, GROUP)
    with pytest.raises(UnknownGroupError):
        await partitions.bind(
            partition, GROUP, member="m", incarnation="x", broker_epoch=broker_epoch
        )
    with pytest.raises(UnknownGroupError):
        await partitions.flush(partition, GROUP, broker_epoch=broker_epoch, **NOTHING)
    with pytest.raises(UnknownGroupError):
        await commit(partitions, partition, broker_epoch)


# ---- claim, yield -------------------------------------------------------------------------------


async def test_claim_returns_a_snapshot(partitions, partition, broker_epoch, ten_messages):
    await partitions.flush(
        partition, GROUP, broker_epoch=broker_epoch, cursor=2, acked=[(4, 6)], redeliveries={2: 3}
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
        await partitions.bind(partition, GROUP, member=member, incarnation="x", **old)
    with pytest.raises(FencedError):
        await partitions.flush(partition, GROUP, **old, **NOTHING)
    with pytest.raises(FencedError):
        await commit(partitions, partition, broker_epoch, attempt=2)
    with pytest.raises(FencedError):
        await log.trim(partition, **old)
    with pytest.raises(FencedError):
        await log.append(partition, number=1, expected=10, batches=[], max_bytes=None, **old)
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
        await partitions.flush(partition, GROUP, broker_epoch=broker_epoch, **NOTHING)
    await partitions.claim(partition, BrokerId("b-1"), "i", expected=record.broker_epoch)
    assert (await partitions.read(partition)).successor is None


# ---- bind ---------------------------------------------------------------------------------------


async def test_every_bind_raises_the_epoch(partitions, partition, broker_epoch, member):
    epochs = [(await partitions.read_cursor(partition, GROUP)).epoch]
    for incarnation in ("x", "x", "y"):
        epochs.append(
            await partitions.bind(
                partition, GROUP, member=member, incarnation=incarnation, broker_epoch=broker_epoch
            )
        )
    assert epochs == sorted(set(epochs))
    record = await partitions.read_cursor(partition, GROUP)
    assert (record.member, record.incarnation, record.epoch) == (member, "y", epochs[-1])


@pytest.mark.parametrize("stranger", ["m-1", ""])
async def test_only_the_member_on_record_binds(
    partitions, partition, broker_epoch, member, stranger
):
    before = await partitions.read_cursor(partition, GROUP)
    with pytest.raises(NotOwnerError):
        await partitions.bind(
            partition, GROUP, member=stranger, incarnation="x", broker_epoch=broker_epoch
        )
    assert await partitions.read_cursor(partition, GROUP) == before


# ---- flush --------------------------------------------------------------------------------------


async def test_flush_writes_the_whole_state(partitions, partition, broker_epoch, ten_messages):
    for cursor, acked, redeliveries in [(1, [(3, 5), (7, 9)], {1: 2, 5: 1}), (10, [], {})]:
        await partitions.flush(
            partition,
            GROUP,
            broker_epoch=broker_epoch,
            cursor=cursor,
            acked=acked,
            redeliveries=redeliveries,
        )
        record = await partitions.read_cursor(partition, GROUP)
        assert (record.cursor, record.acked, record.redeliveries) == (cursor, acked, redeliveries)


@pytest.mark.parametrize(
    "beyond",
    [{"cursor": 11, "acked": []}, {"cursor": 3, "acked": [(5, 6), (10, 11)]}],
    ids=["the cursor", "a range"],
)
async def test_acks_of_messages_that_the_log_has_lost_count_for_nothing(
    partitions, partition, broker_epoch, ten_messages, member, beyond
):
    before = await partitions.read_cursor(partition, GROUP)
    with pytest.raises(FencedError):
        await partitions.flush(
            partition, GROUP, broker_epoch=broker_epoch, redeliveries={}, **beyond
        )
    with pytest.raises(FencedError):
        await commit(
            partitions,
            partition,
            broker_epoch,
            source=member,
            epoch=before.epoch,
            attempt=2,
            target="m-1",
            **beyond,
        )
    assert await partitions.read_cursor(partition, GROUP) == before


# ---- commit -------------------------------------------------------------------------------------


async def test_commit_hands_over_with_the_acks(
    partitions, partition, broker_epoch, ten_messages, member
):
    epoch = await partitions.bind(
        partition, GROUP, member=member, incarnation="x", broker_epoch=broker_epoch
    )
    new_epoch = await commit(
        partitions,
        partition,
        broker_epoch,
        source=member,
        epoch=epoch,
        attempt=2,
        target="m-1",
        cause=2,
        cursor=4,
        acked=[(5, 7)],
        redeliveries={4: 1},
    )
    record = await partitions.read_cursor(partition, GROUP)
    assert (record.member, record.incarnation, record.epoch) == ("m-1", "", new_epoch)
    assert (record.attempt, record.cause) == (2, 2)
    assert (record.cursor, record.acked, record.redeliveries) == (4, [(5, 7)], {4: 1})
    assert new_epoch > epoch


async def test_commit_to_nobody(partitions, partition, broker_epoch, member):
    epoch = (await partitions.read_cursor(partition, GROUP)).epoch
    await commit(
        partitions, partition, broker_epoch, source=member, epoch=epoch, attempt=2, target=None
    )
    assert (await partitions.read_cursor(partition, GROUP)).member is None


async def test_a_repeated_commit_gets_the_same_answer(
    partitions, partition, broker_epoch, ten_messages, member
):
    epoch = (await partitions.read_cursor(partition, GROUP)).epoch
    move = {"source": member, "epoch": epoch, "attempt": 2, "target": "m-1"}
    new_epoch = await commit(partitions, partition, broker_epoch, **move)
    await partitions.bind(
        partition, GROUP, member="m-1", incarnation="x", broker_epoch=broker_epoch
    )
    before = await partitions.read_cursor(partition, GROUP)
    assert await commit(partitions, partition, broker_epoch, **move, cursor=9) == new_epoch
    assert await partitions.read_cursor(partition, GROUP) == before


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"source": "m-9"}, id="another member is on record"),
        pytest.param({"source": None}, id="a member is on record"),
        pytest.param({"epoch_step": -1}, id="the epoch is older"),
        pytest.param({"epoch_step": 1}, id="the epoch was never drawn"),
        pytest.param({"attempt": 1}, id="the attempt was closed with another target"),
        pytest.param({"attempt": 0}, id="the attempt is older than one closed"),
    ],
)
async def test_commit_is_refused(partitions, partition, broker_epoch, member, change):
    before = await partitions.read_cursor(partition, GROUP)
    move = {"source": member, "attempt": 2, "target": "m-1", **change}
    move["epoch"] = before.epoch + move.pop("epoch_step", 0)
    with pytest.raises(AttemptRefusedError):
        await commit(partitions, partition, broker_epoch, **move)
    assert await partitions.read_cursor(partition, GROUP) == before


# ---- a store that forgot ------------------------------------------------------------------------


async def test_epochs_never_repeat_whatever_the_store_forgets(
    store, keys, partitions, partition, broker_epoch, member, clock_passes
):
    """The record as it was, restored after each step, gives out only new numbers."""
    meta, cursor = keys.meta(partition), keys.cursor(partition, GROUP)
    old_meta = await store.read("HGETALL", meta)
    old_cursor = await store.read("HGETALL", cursor)
    old_epoch = (await partitions.read_cursor(partition, GROUP)).epoch
    broker_epochs, epochs = [broker_epoch], [old_epoch]
    for attempt in range(2, 6):
        claim = await partitions.claim(partition, BrokerId("b"), "i", expected=broker_epoch)
        broker_epochs.append(claim.broker_epoch)
        epochs.append(
            await partitions.bind(
                partition,
                GROUP,
                member=member,
                incarnation="x",
                broker_epoch=claim.broker_epoch,
            )
        )
        epochs.append(
            await commit(
                partitions,
                partition,
                claim.broker_epoch,
                source=member,
                epoch=epochs[-1],
                attempt=attempt,
                target="m-1",
            )
        )
        await store.read("HSET", meta, *old_meta)
        await store.read("HSET", cursor, *old_cursor)
        await clock_passes(max(broker_epochs + epochs))
    assert broker_epochs == sorted(set(broker_epochs))
    assert epochs == sorted(set(epochs))


async def test_epochs_grow_when_the_clock_stands_behind_them(
    store, keys, partitions, partition, broker_epoch, member
):
    """2**53 - 10 is above every clock: the numbers still grow by one and stay exact."""
    high = 2**53 - 10
    await store.read("HSET", keys.meta(partition), "broker_epoch", high)
    await store.read("HSET", keys.cursor(partition, GROUP), "epoch", high)
    claim = await partitions.claim(partition, BrokerId("b"), "i", expected=high)
    assert claim.broker_epoch == high + 1
    epoch = await partitions.bind(
        partition, GROUP, member=member, incarnation="x", broker_epoch=high + 1
    )
    assert epoch == high + 1
    move = {"source": member, "epoch": epoch, "attempt": 2, "target": "m-1"}
    assert await commit(partitions, partition, high + 1, **move) == high + 2
    assert (await partitions.read_cursor(partition, GROUP)).epoch == high + 2
    await partitions.yield_(partition, broker_epoch=high + 1, successor=None)
    assert (await partitions.read(partition)).broker_epoch == high + 2


async def test_read_many_leaves_out_what_is_not_there(partitions):
    made = [PartitionId(1, index) for index in range(0, 1200, 2)]
    await asyncio.gather(*[partitions.create(partition) for partition in made])
    found = await partitions.read_many(PartitionId(1, index) for index in range(1200))
    assert list(found) == made
