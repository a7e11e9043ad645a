"""The end of a queue: what goes with it, what stays, and the next one of its name."""

import pytest
import redis

from tests.kube.api_server.processes import eventually


@pytest.fixture(scope="module", autouse=True)
def operator(stage):
    return stage.start_operator()


def keys_of(stage, keys):
    """Return the names of a queue's keys in Redis."""
    with redis.Redis.from_url(stage.redis_url) as connection:
        patterns = [*keys.patterns(), keys.lives()]
        return sorted(key for pattern in patterns for key in connection.scan_iter(pattern))


def test_its_data_goes_with_it_and_the_name_is_free(stage):
    stage.apply_queue("orders")
    brokers = stage.serve("orders")
    stage.apply_group("workers", "orders")
    keys = stage.keys("orders")
    assert keys_of(stage, keys)

    stage.delete_queue("orders", brokers)
    assert keys_of(stage, keys) == []
    stage.wait_for_event("PartitionedQueue", "orders", "DataRemoved")
    stage.wait_for("ConsumerGroup", "workers", "Ready", "False", "QueueNotFound")

    made = stage.apply_queue("orders")
    for service in ("orders-partq", "orders-brokers"):  # as the garbage collector does
        stage.kube.delete("Service", stage.namespace, service)
    for secret in ("orders-tokens", "orders-broker-config"):
        stage.kube.delete("Secret", stage.namespace, secret)
    for kind in ("NetworkPolicy", "PodDisruptionBudget"):
        stage.kube.delete(kind, stage.namespace, "orders-broker")
    stage.serve("orders")
    assert stage.status("PartitionedQueue", "orders")["storeUid"] == made["metadata"]["uid"][:8]
    stage.wait_for("ConsumerGroup", "workers", "Ready", "True", "NoMember")


def test_retained_data_stays(stage):
    stage.apply_queue("kept", deletionPolicy="Retain")
    brokers = stage.serve("kept")
    keys = stage.keys("kept")
    before = [key for key in keys_of(stage, keys) if b":meta" in key]
    assert len(before) == 8
    stage.delete_queue("kept", brokers)
    assert [key for key in keys_of(stage, keys) if b":meta" in key] == before
    stage.wait_for_event("PartitionedQueue", "kept", "DataRetained")


def test_a_queue_that_never_came_to_be_goes_at_once(stage):
    stage.kube.create(
        stage.resource("PartitionedQueue", "stillborn", {"auth": {"secretName": "nowhere"}})
    )
    stage.wait_for("PartitionedQueue", "stillborn", "Ready", "False", "SecretMissing")
    stage.kube.delete("PartitionedQueue", stage.namespace, "stillborn")
    eventually(
        lambda: stage.kube.get("PartitionedQueue", stage.namespace, "stillborn") is None,
        "it is gone",
    )


def test_a_group_that_is_deleted_leaves_nothing_behind(stage):
    stage.apply_queue("shared")
    stage.serve("shared")
    stage.apply_group("readers", "shared")
    keys = stage.keys("shared")

    def of_group():
        return [key for key in keys_of(stage, keys) if b"readers" in key]

    assert of_group()
    stage.kube.delete("ConsumerGroup", stage.namespace, "readers")
    eventually(lambda: not of_group(), "its keys are gone")
    eventually(
        lambda: stage.status("PartitionedQueue", "shared")["groups"] == 0, "the queue counts none"
    )
