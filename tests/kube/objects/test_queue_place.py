"""A queue stays where its messages are, and never begins empty without a word."""

import pytest

from partq.kube.names import REDIS
from partq.kube.objects.queue_place import place_of, refuse_move
from tests.kube.bodies import queue_body
from tests.kube.fake_store import FakeStore
from tests.kube.reconcile.test_queue_worker import KEY, Stage, condition, troubles

HELD = {"partitions": {"configured": 4, "ready": 4}, "store": "redis:6379", "tokensSecret": "t"}
"""The status of a queue that has been served."""
ELSEWHERE = {"url": "redis://other.example:6380/2"}


async def test_a_redis_that_has_lost_a_queue_is_not_taken_for_a_new_one(stage):
    stage.put_queue(partitions=4)
    worker, _ = stage.operator()
    await worker.look()
    assert (await stage.status(worker))["store"] == "redis:6379"

    stage.store.layout = stage.store.config = None
    stage.store.writes.clear()
    for named in (None, "redis:6379"):
        annotations = {REDIS: named} if named else None
        stage.put_queue(partitions=4, status=HELD, annotations=annotations)
        worker, host = stage.operator()
        assert not await worker.look()
        assert troubles(worker) == ["StoreEmpty"], "the annotation is for another place"
        assert not host.is_coordinating
        assert stage.store.writes == [], "nothing is made there"
    status = await stage.status(worker)
    assert condition(status, "Ready") == ("False", "StoreEmpty")
    assert condition(status, "Stalled") == ("True", "StoreEmpty")


async def test_another_redis_is_refused_and_the_old_one_stays_in_use(stage):
    stage.put_queue(partitions=4)
    worker, host = stage.operator()
    await worker.look()
    stage.put_queue(partitions=4, status=HELD, redis=ELSEWHERE)
    for is_restarted in (False, True):
        if is_restarted:
            worker, host = stage.operator()
        opened = len(stage.opened)
        assert not await worker.look()
        assert troubles(worker) == ["RedisImmutable"]
        assert set(stage.opened[opened:]) == {"redis://redis:6379/0"}
        assert host.is_coordinating
    status = await stage.status(worker)
    assert condition(status, "SpecValid") == ("False", "RedisImmutable")
    assert condition(status, "Stalled") == ("True", "RedisImmutable")
    assert status["store"] == "redis:6379"


async def test_an_annotation_that_names_the_new_place_lets_it_begin_there(stage):
    stage.put_queue(partitions=4)
    worker, _ = stage.operator()
    await worker.look()
    stage.store = FakeStore()
    annotations = {REDIS: "other.example:6380/2"}
    stage.put_queue(partitions=4, status=HELD, redis=ELSEWHERE, annotations=annotations)
    assert await worker.look()
    assert stage.opened[-1] == "redis://other.example:6380/2"
    assert stage.store.layout.partition_count == 4
    assert (await stage.status(worker))["store"] == "other.example:6380/2"


async def test_a_queue_that_goes_is_removed_from_where_its_messages_are(stage):
    stage.put_queue(partitions=4)
    worker, _ = stage.operator()
    await worker.look()
    body = stage.put_queue(partitions=4, status=HELD, redis=ELSEWHERE)
    body["metadata"]["deletionTimestamp"] = "2026-11-20T12:00:00Z"
    body["metadata"]["resourceVersion"] = "999"
    stage.cache.put_queue(body)
    worker, _ = stage.operator()
    opened = len(stage.opened)
    await worker.look()
    assert stage.opened[opened:] == ["redis://redis:6379/0"]


@pytest.fixture
def stage(monkeypatch):
    return Stage(monkeypatch)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://one", "one:6379"),
        ("rediss://user:hidden@one:7000/0", "one:7000"),
        ("redis://one:7000/3", "one:7000/3"),
        ("redis://one:7000?db=4", "one:7000/4"),
        ("redis://one:7000/3?ssl_check_hostname=false&db=4", "one:7000/4"),
        ("redis://one:7000/3?db=0", "one:7000"),
        ("redis://a:7000,b:7001", "a:7000,b:7001"),
        ("redis://[fd00::7]:7000/1", "[fd00::7]:7000/1"),
    ],
)
def test_a_place_has_no_password(url, place):
    assert place_of(url) == place


def test_other_nodes_of_a_cluster_are_the_same_place():
    body = {**queue_body(), "status": {"store": "a:7000,b:7001"}}
    refuse_move(KEY, body, "redis://b:7001,c:7002")
