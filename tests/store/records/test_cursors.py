"""A group's part of the partition's record: bind, flush, commit, and epochs that only grow."""

import pytest

from partq.core.model import BrokerId
from partq.errors import (
    AttemptRefusedError,
    ConflictError,
    FencedError,
    NotOwnerError,
    SupersededError,
    UnknownGroupError,
)
from partq.store.records.log import AppendBatch
from tests.store.record import GROUP, NOTHING, commit, write

# ---- bind ---------------------------------------------------------------------------------------


async def test_every_bind_raises_the_epoch(partitions, partition, broker_epoch, member):
    epochs = [(await partitions.read_cursor(partition, GROUP)).epoch]
    for incarnation in ("x", "x", "y"):
        epochs.append(
            await partitions.bind(
                partition,
                GROUP,
                **write(),
                member=member,
                incarnation=incarnation,
                broker_epoch=broker_epoch,
            )
        )
    assert epochs == sorted(set(epochs))
    record = await partitions.read_cursor(partition, GROUP)
    assert (record.member, record.incarnation, record.epoch) == (member, "y", epochs[-1])


@pytest.mark.req("SOL-05")
@pytest.mark.parametrize("stranger", ["m-1", ""])
async def test_only_the_recorded_member_binds(
    partitions, partition, broker_epoch, member, stranger
):
    before = await partitions.read_cursor(partition, GROUP)
    with pytest.raises(NotOwnerError):
        await partitions.bind(
            partition,
            GROUP,
            **write(),
            member=stranger,
            incarnation="x",
            broker_epoch=broker_epoch,
        )
    assert await partitions.read_cursor(partition, GROUP) == before


# ---- flush --------------------------------------------------------------------------------------


async def test_flush_writes_the_whole_state(partitions, partition, broker_epoch, ten_messages):
    for cursor, acked, redeliveries in [(1, [(3, 5), (7, 9)], {1: 2, 5: 1}), (10, [], {})]:
        await partitions.flush(
            partition,
            GROUP,
            **write(),
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
            partition,
            GROUP,
            **write(),
            broker_epoch=broker_epoch,
            redeliveries={},
            **beyond,
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


@pytest.mark.parametrize("script", ["flush", "reset", "commit", "bind"])
async def test_a_write_that_comes_after_a_later_one_writes_nothing(
    partitions, partition, broker_epoch, ten_messages, member, script
):
    epoch = (await partitions.read_cursor(partition, GROUP)).epoch
    place = {"broker_epoch": broker_epoch}
    move = {"source": member, "epoch": epoch, "attempt": 2, "target": "m-1", "cause": 0}
    late, late_call = write(), {
        "flush": {**NOTHING, "cursor": 3},
        "reset": {"epoch": epoch, "offset": 3},
        "commit": {**move, **NOTHING, "cursor": 3},
        "bind": {"member": member, "incarnation": "x"},
    }  # fmt: skip
    newer = {**NOTHING, "cursor": 7}
    await partitions.flush(partition, GROUP, **write(), **place, **newer)
    before = await partitions.read_cursor(partition, GROUP)
    call = getattr(partitions, script)
    with pytest.raises(SupersededError):
        await call(partition, GROUP, **late, **place, **late_call[script])
    assert await partitions.read_cursor(partition, GROUP) == before


async def test_a_write_whose_answer_was_lost_is_answered_again_and_changes_nothing(
    partitions, partition, broker_epoch, ten_messages, member
):
    place = {"broker_epoch": broker_epoch}
    for name, call in [
        ("bind", {"member": member, "incarnation": "x"}),
        ("flush", {**NOTHING, "cursor": 3}),
        ("reset", {"offset": 5}),
    ]:
        if name == "reset":
            call["epoch"] = (await partitions.read_cursor(partition, GROUP)).epoch
        this = write()
        asked = getattr(partitions, name)
        first = await asked(partition, GROUP, **this, **place, **call)
        after = await partitions.read_cursor(partition, GROUP)
        assert await asked(partition, GROUP, **this, **place, **call) == first
        assert await partitions.read_cursor(partition, GROUP) == after


async def test_another_broker_numbers_from_the_beginning(
    partitions, partition, broker_epoch, ten_messages
):
    book = {**NOTHING, "cursor": 3}
    last = {**write(), "number": 2**40}
    await partitions.flush(partition, GROUP, **last, broker_epoch=broker_epoch, **book)
    claim = await partitions.claim(partition, BrokerId("b-1"), "i", expected=broker_epoch)
    book = {**NOTHING, "cursor": 4}
    first = {**write(), "number": 0}
    await partitions.flush(partition, GROUP, **first, broker_epoch=claim.broker_epoch, **book)
    assert (await partitions.read_cursor(partition, GROUP)).cursor == 4


# ---- commit -------------------------------------------------------------------------------------


@pytest.mark.req("FAIL-11", "PUL-119")
async def test_commit_hands_over_with_the_acks(
    partitions, partition, broker_epoch, ten_messages, member
):
    epoch = await partitions.bind(
        partition,
        GROUP,
        **write(),
        member=member,
        incarnation="x",
        broker_epoch=broker_epoch,
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
        partition,
        GROUP,
        **write(),
        member="m-1",
        incarnation="x",
        broker_epoch=broker_epoch,
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


@pytest.mark.req("FAIL-10")
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
                **write(),
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
        partition,
        GROUP,
        **write(),
        member=member,
        incarnation="x",
        broker_epoch=high + 1,
    )
    assert epoch == high + 1
    move = {"source": member, "epoch": epoch, "attempt": 2, "target": "m-1"}
    assert await commit(partitions, partition, high + 1, **move) == high + 2
    assert (await partitions.read_cursor(partition, GROUP)).epoch == high + 2
    await partitions.yield_(partition, broker_epoch=high + 1, successor=None)
    assert (await partitions.read(partition)).broker_epoch == high + 2


# ---- reset --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "cursor"),
    [
        pytest.param(0, 5, id="trimmed: the first that is still there"),
        pytest.param(7, 7, id="back"),
        pytest.param(10, 10, id="the end"),
        pytest.param(2**53, 10, id="beyond the end"),
    ],
)
async def test_a_reset_moves_the_cursor_and_ends_every_token(
    partitions, log, partition, broker_epoch, member, offset, cursor
):
    for number in range(2):
        await log.append(
            partition, broker_epoch=broker_epoch, number=number, expected=5 * number,
            batches=[AppendBatch("", 0, 5, b"five")], room_bytes=None,
        )  # fmt: skip
    book = {"broker_epoch": broker_epoch, "cursor": 8, "acked": [(9, 10)], "redeliveries": {8: 2}}
    await partitions.flush(partition, GROUP, **write(), **book)
    await log.trim(partition, broker_epoch=broker_epoch)
    before = await partitions.read_cursor(partition, GROUP)
    token = {"broker_epoch": broker_epoch, "epoch": before.epoch, "offset": offset}
    moved = await partitions.reset(partition, GROUP, **write(), **token)
    after = await partitions.read_cursor(partition, GROUP)
    assert (moved.cursor, after.cursor, after.acked, after.redeliveries) == (cursor, cursor, [], {})
    assert after.epoch == moved.epoch > before.epoch
    assert (after.member, after.attempt) == (before.member, before.attempt)
    with pytest.raises(ConflictError, match="look again"):
        await partitions.reset(partition, GROUP, **write(), **token)
    await log.trim(partition, broker_epoch=broker_epoch)
    assert (await partitions.read(partition)).trimmed == min(10, cursor // 5 * 5)


async def test_a_reset_goes_above_an_epoch_that_the_clock_of_redis_is_behind(
    partitions, store, keys, partition, broker_epoch, member, ten_messages
):
    """The clock was set back since the epoch was drawn; the older token ends all the same."""
    high = 2**53 - 10
    await store.run("write_fields", [keys.cursor(partition, GROUP)], [1, "epoch", high])
    place = {"broker_epoch": broker_epoch, "offset": 3}
    moved = await partitions.reset(partition, GROUP, **write(), **place, epoch=high)
    assert moved.epoch == high + 1
    assert (await partitions.read_cursor(partition, GROUP)).epoch == high + 1


async def test_a_reset_under_an_ended_broker_epoch_or_of_no_group_writes_nothing(
    partitions, partition, broker_epoch, member, ten_messages
):
    before = await partitions.read_cursor(partition, GROUP)
    place = {"epoch": before.epoch, "offset": 5}
    with pytest.raises(FencedError):
        await partitions.reset(partition, GROUP, **write(), broker_epoch=broker_epoch - 1, **place)
    with pytest.raises(UnknownGroupError):
        await partitions.reset(
            partition, "strangers", **write(), broker_epoch=broker_epoch, **place
        )
    assert await partitions.read_cursor(partition, GROUP) == before
