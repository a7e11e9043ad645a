"""What goes wrong is told by a condition and an Event, and mended without a restart."""

import json

import pytest
import redis

from partq.testing.redis_server import RedisServer
from tests.kube.api_server.processes import eventually

SMALL = {"partitions": 2, "brokers": {"replicas": 1}}


@pytest.fixture(scope="module", autouse=True)
def operator(stage):
    return stage.start_operator()


@pytest.fixture
def own_redis(tmp_path):
    """A Redis that a test may stop; it is not started yet."""
    with RedisServer() as server:
        yield server


def at(server):
    """Return the spec of a queue that is stored there."""
    return {**SMALL, "redis": {"url": server.url}}


def wait_for_trouble(stage, kind, name, reason, *, is_stalled, sentence=""):
    condition = stage.wait_for(kind, name, "Ready", "False", reason)
    assert sentence in condition["message"]
    expected = "True" if is_stalled else "False"
    assert stage.condition(kind, name, "Stalled")[0] == expected
    stage.wait_for_event(kind, name, reason)


def test_a_group_of_a_queue_that_is_not_there(stage):
    body = {"queue": "later", "selector": {"matchLabels": {"group": "early"}}}
    stage.kube.create(stage.resource("ConsumerGroup", "early", body))
    wait_for_trouble(stage, "ConsumerGroup", "early", "QueueNotFound", is_stalled=True)
    stage.apply_queue("later")
    stage.serve("later")
    stage.wait_for("ConsumerGroup", "early", "Ready", "True", "NoMember")


def test_a_spec_that_only_the_operator_can_judge(stage):
    """Servers before 1.25 know no rules over several fields."""
    stage.apply_queue("judged")
    stage.serve("judged")
    stage.apply_group("picky", "judged")
    bad = {"spec": {"type": "Exclusive", "strategy": "range"}}
    stage.kube.patch("ConsumerGroup", stage.namespace, "picky", bad)
    wait_for_trouble(
        stage, "ConsumerGroup", "picky", "InvalidSpec", is_stalled=True, sentence="strategy"
    )
    good = {"spec": {"type": "Partitioned", "strategy": "range"}}
    stage.kube.patch("ConsumerGroup", stage.namespace, "picky", good)
    stage.wait_for("ConsumerGroup", "picky", "Ready", "True")

    stage.kube.patch("ConsumerGroup", stage.namespace, "picky", {"spec": {"start": "Latest"}})
    wait_for_trouble(stage, "ConsumerGroup", "picky", "StartImmutable", is_stalled=True)
    stage.kube.patch("ConsumerGroup", stage.namespace, "picky", {"spec": {"start": "Earliest"}})
    stage.wait_for("ConsumerGroup", "picky", "Ready", "True")

    stage.kube.patch("ConsumerGroup", stage.namespace, "picky", {"spec": {"queue": "elsewhere"}})
    wait_for_trouble(stage, "ConsumerGroup", "picky", "QueueImmutable", is_stalled=True)
    stage.kube.patch("ConsumerGroup", stage.namespace, "picky", {"spec": {"queue": "judged"}})
    stage.wait_for("ConsumerGroup", "picky", "Ready", "True")


def test_redis_is_away_and_comes_back(stage, own_redis, tmp_path):
    own_redis.start(tmp_path)
    spec = at(own_redis)
    own_redis.kill()
    stage.kube.create(stage.resource("PartitionedQueue", "waiting", spec))
    wait_for_trouble(stage, "PartitionedQueue", "waiting", "StoreUnreachable", is_stalled=False)
    own_redis.start(tmp_path)
    stage.serve("waiting")

    own_redis.kill()
    stage.wait_for("PartitionedQueue", "waiting", "Ready", "False")
    own_redis.start(tmp_path)
    stage.wait_for("PartitionedQueue", "waiting", "Ready", "True")


def test_a_redis_that_evicts_is_not_used(stage, own_redis, tmp_path):
    own_redis.start(tmp_path, config={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"})
    stage.kube.create(stage.resource("PartitionedQueue", "evicted", at(own_redis)))
    wait_for_trouble(
        stage,
        "PartitionedQueue",
        "evicted",
        "StoreUnusable",
        is_stalled=True,
        sentence="allkeys-lru",
    )
    with redis.Redis.from_url(own_redis.url) as connection:
        connection.config_set("maxmemory-policy", "noeviction")
    stage.serve("evicted")


def test_a_redis_that_keeps_nothing_is_used_and_told_of(stage, own_redis, tmp_path):
    own_redis.start(tmp_path, config={"appendonly": "no"})
    stage.kube.create(stage.resource("PartitionedQueue", "forgetful", at(own_redis)))
    stage.serve("forgetful")
    stage.wait_for("PartitionedQueue", "forgetful", "StoreDurable", "False", "NotSynced")
    stage.wait_for_event("PartitionedQueue", "forgetful", "NotSynced")


def test_a_redis_that_has_the_data_of_another_clusters_queue(stage, own_redis, tmp_path):
    own_redis.start(tmp_path)
    with redis.Redis.from_url(own_redis.url) as connection:
        key = f"kube-troubles:{{{stage.namespace}/taken}}:lives"
        connection.hset(key, mapping={"current": "deadbeef", "deadbeef": "1"})
    stage.kube.create(stage.resource("PartitionedQueue", "taken", at(own_redis)))
    wait_for_trouble(
        stage,
        "PartitionedQueue",
        "taken",
        "StoreOwnedByAnother",
        is_stalled=True,
        sentence="deadbeef",
    )


def test_a_secret_that_is_missing_may_come_later(stage):
    spec = {**SMALL, "redis": {"secretRef": {"name": "redis-of-mine"}}}
    stage.kube.create(stage.resource("PartitionedQueue", "secretive", spec))
    wait_for_trouble(
        stage,
        "PartitionedQueue",
        "secretive",
        "SecretMissing",
        is_stalled=True,
        sentence="redis-of-mine",
    )
    stage.kube.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "redis-of-mine", "namespace": stage.namespace},
            "stringData": {"url": stage.redis_url},
        }
    )
    stage.serve("secretive")


def test_an_object_of_somebody_else_is_not_touched(stage):
    made = stage.kube.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "crowded-partq", "namespace": stage.namespace},
            "spec": {"ports": [{"port": 80}]},
        }
    )
    stage.apply_queue("crowded")
    wait_for_trouble(
        stage,
        "PartitionedQueue",
        "crowded",
        "NameTaken",
        is_stalled=True,
        sentence="crowded-partq",
    )
    after = stage.kube.get("Service", stage.namespace, "crowded-partq")
    assert after["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    stage.kube.delete("Service", stage.namespace, "crowded-partq")
    stage.serve("crowded")


def test_brokers_that_do_not_answer(stage):
    stage.apply_queue("mute")
    brokers = stage.serve("mute")
    for pod in brokers.pods:
        pod.crash()
    stage.wait_for("PartitionedQueue", "mute", "Ready", "False")
    stage.wait_for("PartitionedQueue", "mute", "BrokersReady", "False", "BrokersMissing")
    eventually(
        lambda: stage.status("PartitionedQueue", "mute")["partitions"]["ready"] == 0,
        "no partition is served",
    )
    for pod in brokers.pods:
        pod.restart()
    stage.wait_for("PartitionedQueue", "mute", "Ready", "True")
    stage.wait_for_event("PartitionedQueue", "mute", "Recovered")


def test_a_broker_that_does_not_answer_the_operator(stage):
    """It serves consumers and producers, but has lost the operator's token."""
    stage.apply_queue("deaf")
    brokers = stage.serve("deaf")
    text = brokers.tokens_file.read_text()
    grants = [grant for grant in json.loads(text) if grant["role"] != "admin"]
    put_into(brokers.tokens_file, json.dumps(grants))
    wait_for_trouble(
        stage,
        "PartitionedQueue",
        "deaf",
        "BrokerUnreachable",
        is_stalled=False,
        sentence="deaf-broker-0",
    )
    put_into(brokers.tokens_file, text)
    stage.wait_for("PartitionedQueue", "deaf", "Ready", "True")


def put_into(file, text):
    """Replace a mounted file in one step, as the kubelet does."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)
