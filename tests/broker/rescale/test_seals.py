"""Publishing while the partition count changes: seals, openings, and answers to repeats."""

import asyncio

import pytest

from partq.broker.retention import periodic_work
from partq.core.hashing import slot_of
from partq.core.model import BrokerId, PartitionId
from partq.core.rescale.layout_steps import abort, prepare
from partq.errors import StoreUnavailableError
from partq.testing import eventually
from tests.audit_record import decode_group
from tests.broker.conftest import queue_and_group
from tests.broker.rescale.change import ChangeByHand, answer, offer, outcome, values

OLD, NEW = PartitionId(1, 0), PartitionId(2, 4)
"""A partition that stays, and one that a change from 4 partitions to 5 makes of slots of all."""
AUDITED = {"publish", "seal", "open"}


@pytest.fixture
def rescaler(running):
    return ChangeByHand(running)


@pytest.fixture
async def keys(rescaler):
    """Return keys of partition 1.0: two that move in a change to 5 partitions, one that stays."""
    before = await rescaler.layout()
    after = before.table.resized(5, 2).table
    found = {True: [], False: []}
    for key in (f"k{number}" for number in range(1000)):
        if before.partition_for(key) == OLD:
            found[after.partition_of(slot_of(key)) == NEW].append(key)
    return *found[True][:2], found[False][0]


async def test_a_repeat_is_answered_and_what_moves_is_refused(running, rescaler, keys, peers):
    moves, also_moves, stays = keys
    producer = await peers.open_producer(running)
    assert await outcome(producer, OLD, 0, moves, stays) == ("stored", 0)
    await rescaler.change(5)

    assert await outcome(producer, OLD, 0, moves, stays, age_ms=5) == ("duplicate", 0)
    assert await outcome(producer, OLD, 1, stays, moves) == ("resend_from", 2)
    assert await outcome(producer, OLD, 7, moves) == ("out_of_sequence", 2)
    assert (await outcome(producer, OLD, 2, stays, also_moves))[0] == "stale_generation"
    assert await outcome(producer, OLD, 2, stays) == ("stored", 2)
    assert await outcome(producer, NEW, 0, moves, also_moves) == ("stored", 0)
    assert await values(running, OLD) == [moves, stays, stays]
    assert await values(running, NEW) == [moves, also_moves]
    record = await running.broker.partitions.read(OLD)
    assert (record.layout.generation, record.layout.seals) == (2, {2: 2})


@pytest.mark.parametrize("resources", [queue_and_group(audit=True)], ids=["audited"])
async def test_the_record_of_an_audited_queue_has_seals_and_openings(
    running, rescaler, keys, peers
):
    producer = await peers.open_producer(running)
    assert await outcome(producer, OLD, 0, keys[0]) == ("stored", 0)
    await rescaler.change(5)
    assert await outcome(producer, OLD, 0, keys[0]) == ("duplicate", 0)
    assert (await outcome(producer, OLD, 1, keys[1]))[0] == "stale_generation"
    assert await outcome(producer, NEW, 0, keys[1]) == ("stored", 0)
    kinds = {}
    for partition in (OLD, NEW):
        groups = await running.broker.audits.read(partition, 0, max_bytes=1 << 20)
        records = [each for group in groups for each in decode_group(partition, group)]
        kinds[partition] = [each.kind for each in records if each.kind in AUDITED]
    assert kinds == {OLD: ["publish", "seal"], NEW: ["open", "publish"]}


async def test_a_slot_that_a_partition_never_had_is_still_the_wrong_partition(
    running, rescaler, keys, peers
):
    producer = await peers.open_producer(running)
    assert (await outcome(producer, PartitionId(1, 3), 0, keys[2]))[0] == "wrong_partition"
    await rescaler.change(5)
    assert (await outcome(producer, NEW, 0, keys[2]))[0] == "wrong_partition"


async def test_a_batch_that_waits_when_the_seal_comes_is_looked_at_again(
    running, rescaler, keys, peers
):
    """It was checked against the slots of before: stored behind the seal, it would be read late."""
    moves, also_moves, stays = keys
    producer, other = await peers.open_producer(running), await peers.open_producer(running, "q")
    assert await outcome(producer, OLD, 0, moves) == ("stored", 0)
    await rescaler.prepare(5)
    gate = peers.Gate(running.broker.log, "append")
    await offer(producer, OLD, 1, moves)
    await gate.is_reached()
    await offer(producer, OLD, 2, also_moves)
    await offer(producer, OLD, 3, stays)
    await offer(producer, OLD, 0, moves)
    await offer(other, OLD, 0, stays)
    appender = running.broker.owned[OLD].appender
    await eventually(lambda: len(appender._pending) == 4, "batches wait behind the first")
    await rescaler.commit()
    await running.broker.refresh()
    gate.opened.set()

    assert await answer(producer) == ("stored", 1)
    assert (await answer(producer))[0] == "stale_generation"
    assert await answer(producer) == ("out_of_sequence", 2)
    assert await answer(producer) == ("duplicate", 0)
    assert await answer(other) == ("stored", 2)
    assert (await running.broker.partitions.read(OLD)).layout.seals == {2: 2}
    assert appender.held_bytes == 0


async def test_a_new_partition_takes_nothing_before_all_predecessors_are_sealed(
    running, rescaler, keys, peers
):
    producer = await peers.open_producer(running)
    await rescaler.prepare(5)
    assert await outcome(producer, NEW, 0, keys[0]) == ("not_stored", -1)
    seals = running.broker.layout_follower._sealer._seals
    seal = seals.seal
    gate = peers.Gate(seals, "seal")
    held = seals.seal
    seals.seal = lambda each, **args: (held if each == OLD else seal)(each, **args)
    await rescaler.commit()
    await running.broker.refresh()
    await gate.is_reached()
    await eventually(
        lambda: all(
            running.broker.owned[PartitionId(1, index)].layout.seals for index in (1, 2, 3)
        ),
        "the others are sealed",
    )
    assert await outcome(producer, NEW, 0, keys[0]) == ("not_stored", -1)
    gate.opened.set()
    await eventually(lambda: running.broker.owned[NEW].layout.is_open, "it is open")
    assert await outcome(producer, NEW, 0, keys[0]) == ("stored", 0)
    record = await running.broker.partitions.read(NEW)
    assert record.layout.is_open


async def test_those_that_wait_are_woken_when_a_partition_opens(running, rescaler):
    """Else each of them waits for its longest time."""
    follower = running.broker.layout_follower
    await rescaler.prepare(5)
    waiting = asyncio.create_task(follower.opener.opened.wait_at_most(300.0))
    await rescaler.commit()
    await running.broker.refresh()
    assert await waiting


async def test_gates_are_looked_at_when_the_layout_is_followed(running, rescaler):
    """Else a gate is found by the look that comes twice a second anyway."""
    follower = running.broker.layout_follower
    await rescaler.change(5)
    follower.gatekeeper._wake.clear()
    follower.follow_one(running.broker.owned[NEW])
    assert follower.gatekeeper._wake.is_set()


async def test_the_next_owner_seals_before_it_appends(running, start_broker, keys, peers):
    """It knows the layout and finds no seal: the owner before it had not come that far."""
    rescaler = ChangeByHand(running)
    await rescaler.prepare(5)
    gate = peers.Gate(running.broker.layout_follower._sealer._seals, "seal")
    await rescaler.commit()
    await running.broker.refresh()
    await gate.is_reached()
    running.broker.ownership.lose(running.broker.owned[OLD], StoreUnavailableError("a test"))
    await running.broker.partitions.yield_(
        OLD, broker_epoch=(await running.broker.partitions.read(OLD)).broker_epoch, successor=None
    )
    other = await start_broker("orders-1")
    (claimed,) = await other.admin("/claim", {"partitions": [str(OLD)]})
    assert "error" not in claimed
    producer = await peers.open_producer(other)
    assert (await outcome(producer, OLD, 0, keys[0]))[0] == "stale_generation"
    assert await outcome(producer, OLD, 0, keys[2]) == ("stored", 0)
    assert (await other.broker.partitions.read(OLD)).layout.seals == {2: 0}
    gate.opened.set()


async def test_the_next_owner_knows_the_seal_without_the_layout(
    running, rescaler, start_broker, keys, peers, monkeypatch
):
    """Its layout is that of before: the record says which slots have left."""
    other = await start_broker("orders-1")
    monkeypatch.setattr(periodic_work, "LOOK_GAP_S", 3600.0)
    gone = await peers.open_producer(running)
    assert await outcome(gone, OLD, 0, keys[0]) == ("stored", 0)
    await rescaler.change(5)
    await running.admin("/yield", {"partitions": [str(OLD)]})
    (claimed,) = await other.admin("/claim", {"partitions": [str(OLD)]})
    assert "error" not in claimed
    assert other.broker.config.layout.generation == 1
    producer = await peers.open_producer(other)
    assert await outcome(producer, OLD, 0, keys[0], age_ms=5) == ("duplicate", 0)
    assert (await outcome(producer, OLD, 1, keys[1]))[0] == "stale_generation"
    assert await outcome(producer, OLD, 1, keys[2]) == ("stored", 1)


async def test_an_owner_that_was_replaced_seals_nothing(running, rescaler, keys):
    await rescaler.prepare(5)
    partitions, owned = running.broker.partitions, running.broker.owned[OLD]
    await partitions.claim(OLD, BrokerId("another"), "i", expected=owned.broker_epoch)
    await rescaler.commit()
    await running.broker.refresh()
    await eventually(lambda: running.broker.owned.get(OLD) is not owned, "it is lost")
    assert owned.layout.seals == {}


async def test_a_seal_is_repeated_until_redis_answers(running, rescaler, keys, peers):
    seals = running.broker.layout_follower._sealer._seals
    calls, call = [], seals.seal

    async def seal(partition, **args):
        calls.append(partition)
        if calls.count(partition) == 1:
            raise StoreUnavailableError("a test")
        return await call(partition, **args)

    seals.seal = seal
    producer = await peers.open_producer(running)
    await rescaler.change(5)
    assert calls.count(OLD) == 2
    assert await outcome(producer, OLD, 0, keys[2]) == ("stored", 0)


async def test_a_seal_is_not_repeated_for_a_change_that_the_store_has_lost(
    running, rescaler, monkeypatch
):
    """The server of the partition is silent meanwhile. The change may be aborted by now."""
    store, name = running.store, running.broker.keys.layout()
    await rescaler.prepare(5)
    before = await store.read("HGETALL", name)
    owned, failed = running.broker.owned[OLD], asyncio.Event()
    seals = running.broker.layout_follower._sealer._seals
    call = seals.seal

    async def seal(partition, **args):
        if partition == OLD and (await rescaler.layout()).generation == 2:
            failed.set()
            raise StoreUnavailableError("a test")
        return await call(partition, **args)

    monkeypatch.setattr(seals, "seal", seal)
    await rescaler.commit()
    await running.broker.refresh()
    await failed.wait()
    await store.read("DEL", name)
    await store.read("HSET", name, *before)
    await running.broker.refresh()
    await eventually(lambda: running.broker.owned.get(OLD) is not owned, "its record is read again")
    assert (await running.broker.partitions.read(OLD)).layout.seals == {}


async def test_what_an_aborted_change_had_prepared_is_forgotten(running, rescaler, keys, peers):
    producer = await peers.open_producer(running)
    assert await rescaler.prepare(5) == [NEW]
    assert NEW in running.broker.owned
    await rescaler.layouts.write(abort(await rescaler.layout()))
    await running.broker.refresh()
    assert NEW not in running.broker.owned
    assert await outcome(producer, NEW, 0, keys[0]) == ("unknown_partition", -1)
    assert await outcome(producer, OLD, 0, keys[0]) == ("stored", 0)


async def test_two_changes_that_make_partitions_of_new_ones(running, rescaler, keys, peers):
    """The count falls again: 2.4 goes away, and repeats are still answered by what is retired."""
    producer = await peers.open_producer(running)
    await rescaler.change(5)
    assert await outcome(producer, NEW, 0, keys[0]) == ("stored", 0)
    layout = await rescaler.change(4)
    assert set(layout.retired) == {PartitionId(1, 0), PartitionId(1, 1), PartitionId(1, 2),
                                   PartitionId(1, 3), NEW}  # fmt: skip
    assert await outcome(producer, NEW, 0, keys[0], age_ms=5) == ("duplicate", 0)
    assert (await outcome(producer, NEW, 1, keys[0]))[0] == "stale_generation"
    assert (await outcome(producer, OLD, 0, keys[2]))[0] == "stale_generation"
    place = layout.partition_for(keys[0])
    assert place.generation == 3
    assert await outcome(producer, place, 0, keys[0]) == ("stored", 0)


async def test_a_removed_partition_says_where_the_truth_ends(running, rescaler, keys, peers):
    """New messages are certainly not stored; what an earlier try has stored, nobody knows."""
    producer = await peers.open_producer(running)
    await rescaler.change(5)
    layout = await rescaler.change(4)
    gone = layout.__class__(
        table=layout.table, generation=layout.generation, last_generation=layout.last_generation,
        revision=layout.revision + 1,
    )  # fmt: skip
    await rescaler.layouts.write(gone)
    await running.broker.refresh()
    assert OLD not in running.broker.owned
    assert (await outcome(producer, OLD, 0, keys[2]))[0] == "stale_generation"
    assert (await outcome(producer, OLD, 0, keys[2], age_ms=5))[0] == "unknown_producer"


async def test_a_broker_follows_the_layout_when_it_is_called(running, rescaler, keys):
    await rescaler.prepare(5)
    await rescaler.commit()
    path = "/admin/v1/queues/orders/refresh"
    assert await running.call("POST", path) == (204, None)
    assert running.broker.config.layout.generation == 2
    status, _ = await running.call("POST", path, token="produce-token-0001")
    assert status == 403


async def test_a_layout_that_was_read_before_a_restart_is_not_learned(running, rescaler, peers):
    """The store may have forgotten it between that read and the next one of the same look."""
    refresher, learned = running.broker._refresher, []
    learn = refresher._learn

    def note(*found):
        learned.append(found)
        learn(*found)

    refresher._learn = note
    gate = peers.Gate(refresher._leases, "peer_token")
    looking = asyncio.create_task(running.broker.refresh())
    await gate.is_reached()
    await rescaler.layouts.write(prepare(await rescaler.layout(), 5))
    refresher.forget()
    gate.opened.set()
    await looking
    config, _ = learned[0]
    assert config.layout.next is not None
    assert not refresher.is_void
