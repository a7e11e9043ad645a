"""Ids of messages across changes of the partition count: the new partition asks the old ones."""

import pytest
from redis import Redis

from partq.broker.log.known_ids import SLACK_S
from partq.core.model import PartitionId
from partq.core.numbering.message_ids import id_digest
from partq.errors import FencedError
from partq.store.message_ids import MAX_FORGOTTEN, IdRecords
from partq.testing import eventually
from tests.broker.conftest import queue_and_group
from tests.broker.rescale.change import ChangeByHand, keys_for_five

MESSAGES = "/v1/queues/orders/messages"
OLD, NEW = PartitionId(1, 0), PartitionId(2, 4)
WINDOW_S = 600


@pytest.fixture
def resources():
    return queue_and_group(duplicateDetection={"windowSeconds": WINDOW_S})


@pytest.fixture
def rescaler(running):
    return ChangeByHand(running)


@pytest.fixture
def redis(redis_server):
    with Redis.from_url(redis_server.url) as client:
        yield client


@pytest.fixture
def send(running, peers):
    """Publish by plain HTTP; return partition and offset, None for a duplicate."""

    async def send(key, message_id):
        body = {"key": key, "value": "v", "message_id": message_id}
        _, answer = await running.call("POST", MESSAGES, token=peers.PRODUCE, json=body)
        return answer["partition"], answer["offset"]

    return send


@pytest.mark.req("AZR-29")
async def test_an_id_is_known_where_its_key_is_now(rescaler, send):
    moves, stays = keys_for_five(await rescaler.layout())
    for key in (moves, stays):
        assert (await send(key, f"a of {key}"))[0] == "1.0"
    await rescaler.change(5)
    assert await send(moves, f"a of {moves}") == ("2.4", None)
    assert await send(stays, f"a of {stays}") == ("1.0", None)
    assert await send(moves, "b") == ("2.4", 0)
    assert await send(moves, "b") == ("2.4", None)
    layout = await rescaler.change(4)
    place = str(layout.partition_for(moves))
    assert place.startswith("3.")
    assert await send(moves, f"a of {moves}") == (place, None), "of the first of three"
    assert await send(moves, "b") == (place, None)
    assert await send(moves, "c") == (place, 0)


async def test_ids_of_a_partition_that_is_removed_stay_for_the_window(
    running, rescaler, send, redis
):
    moves, _ = keys_for_five(await rescaler.layout())
    await rescaler.change(5)
    assert await send(moves, "a") == ("2.4", 0)
    await running.broker.trimmer.trim()
    layout = await rescaler.change(4)
    assert NEW in layout.retired
    await rescaler.seals.erase(NEW)
    await rescaler.seals.erase(NEW)  # a repeat
    assert await send(moves, "a") == (str(layout.partition_for(moves)), None)
    left_ms = redis.pttl(running.broker.keys.ids(NEW))
    assert 0 < left_ms <= WINDOW_S * 1000
    assert redis.pttl(running.broker.keys.removal(NEW)) > WINDOW_S * 1000


async def test_what_is_removed_is_remembered_as_long_as_its_ids(running, rescaler, redis):
    week_ms = 7 * 24 * 3_600_000
    keys = running.broker.keys
    redis.hset(keys.meta(NEW), mapping={"ids": f"1 {week_ms}", "preds": "1.0:0-9"})
    redis.zadd(keys.ids(NEW), {b"x" * 16: 1})
    for _ in range(2):  # a repeat
        await rescaler.seals.erase(NEW)
        assert redis.pttl(keys.removal(NEW)) > week_ms - 60_000
        assert redis.pttl(keys.ids(NEW)) > week_ms - 60_000


async def test_predecessors_are_asked_until_the_window_is_over(
    running, rescaler, send, clock, monkeypatch
):
    moves, _ = keys_for_five(await rescaler.layout())
    asked = []
    find = IdRecords.find

    async def counted(self, wanted):
        asked.append(wanted)
        return await find(self, wanted)

    monkeypatch.setattr(IdRecords, "find", counted)
    assert await send(moves, "a") == ("1.0", 0)
    assert asked == [], "a partition of the first layout has nobody to ask"
    await rescaler.change(5)
    assert await send(moves, "b") == ("2.4", 0)
    assert asked == [{id_digest("b"): [OLD]}], "no partition that never had the slot"
    running.broker.owned[NEW].ids.since -= WINDOW_S + SLACK_S + 1
    assert await send(moves, "c") == ("2.4", 1)
    assert len(asked) == 1


async def test_of_several_partitions_the_latest_time_of_an_id_counts(running, redis):
    keys = running.broker.keys
    for partition, at_ms in ((OLD, 7), (NEW, 5)):
        redis.zadd(keys.ids(partition), {bytes.fromhex(id_digest("a")): at_ms})
    ids = IdRecords(running.store, keys)
    assert await ids.find({id_digest("a"): [OLD, NEW]}) == {id_digest("a"): 7}


async def test_the_record_says_that_there_are_ids_until_the_last_is_forgotten(running, redis):
    """The next owner forgets them, too, of a queue that asks for none any more."""
    keys, epoch = running.broker.keys, running.broker.owned[OLD].broker_epoch
    redis.zadd(keys.ids(OLD), {b"%016d" % each: each for each in range(MAX_FORGOTTEN + 1)})
    ids = IdRecords(running.store, keys)
    assert await ids.forget(OLD, broker_epoch=epoch, window_ms=0) == (1, False)
    assert redis.hget(keys.meta(OLD), "ids") == b"1 0"
    assert await ids.forget(OLD, broker_epoch=epoch, window_ms=0) == (0, True)
    assert redis.hget(keys.meta(OLD), "ids") is None


async def test_a_former_owner_adopts_nothing(running, rescaler, redis):
    await rescaler.change(5)
    ids = IdRecords(running.store, running.broker.keys)
    epoch = running.broker.owned[NEW].broker_epoch
    known = {id_digest("a"): 5, id_digest("b"): 7}
    for _ in range(2):  # a repeat
        await ids.adopt(NEW, known, broker_epoch=epoch)
    await ids.adopt(NEW, {id_digest("a"): 9}, broker_epoch=epoch)
    assert await ids.find({key: [NEW] for key in [*known, id_digest("c")]}) == known
    with pytest.raises(FencedError):
        await ids.adopt(NEW, {id_digest("c"): 9}, broker_epoch=epoch - 1)
    with pytest.raises(FencedError):
        await ids.forget(NEW, broker_epoch=epoch - 1, window_ms=0)
    assert redis.zcard(running.broker.keys.ids(NEW)) == 2


async def test_the_id_of_a_message_that_waited_and_is_cancelled_elsewhere_may_be_sent_again(
    running, rescaler, send, peers
):
    moves, _ = keys_for_five(await rescaler.layout())

    async def call(method, path, **more):
        return (await running.call(method, path, token=peers.PRODUCE, **more))[1]

    body = {"key": moves, "value": "v", "message_id": "a"}
    later = {"Partq-Deliver-After-Ms": "3600000"}
    first = await call("POST", MESSAGES, json=body, headers=later)
    assert first["scheduled"].startswith("1.0/")
    await rescaler.change(5)
    scheduled = first["scheduled"].replace("1.0", "2.4")

    async def is_there():
        return await running.store.read("ZCARD", running.broker.keys.due(NEW)) == 1

    await eventually(is_there, "it waits where its slot is")
    assert await send(moves, "a") == ("2.4", None)
    answer = await call("DELETE", f"/v1/queues/orders/scheduled/{scheduled}")
    assert answer == {"is_cancelled": True}
    assert await send(moves, "a") == ("2.4", 0)
