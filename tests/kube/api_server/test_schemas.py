"""What `kubectl apply` takes and refuses, as the API server judges it."""

import pytest

from tests.kube.api_server.client import ApiError

SELECTOR = {"matchLabels": {"app": "consumer"}}


def at(path, value, spec=None):
    """Return a spec with `value` at a path such as `limits.maxMessageBytes`."""
    body = dict(spec or {})
    inner = body
    *parents, last = path.split(".")
    for step in parents:
        inner = inner.setdefault(step, {})
    inner[last] = value
    return body


def test_defaults_are_filled_in(stage):
    made = stage.kube.create(stage.resource("PartitionedQueue", "plain", {}))
    assert made["spec"]["partitions"] == 16
    assert made["spec"]["brokers"]["replicas"] == 2
    assert made["spec"]["brokers"]["limits"]["requestMemoryBytes"] == 128 * 2**20
    assert made["spec"]["rebalance"] == {
        "delaySeconds": 5,
        "maxHandoffSeconds": 3,
        "maxMovesPerMinute": 0,
        "maxPausedPartitions": 0,
        "minMoveIntervalSeconds": 0,
        "policy": "KubernetesAware",
        "standby": "AtOnce",
    }

    made = stage.kube.create(
        stage.resource("ConsumerGroup", "plain", {"queue": "plain", "selector": SELECTOR})
    )
    assert (made["spec"]["type"], made["spec"].get("start")) == ("Partitioned", None)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("partitions", 0),
        ("partitions", 4097),
        ("partitions", "16"),
        ("partitionsPolicy.mode", "Apply"),
        ("partitionsPolicy.cooldownSeconds", -1),
        ("keylessPolicy", "Any"),
        ("brokers.replicas", 0),
        ("brokers.replicas", 65),
        ("brokers.resources", {"limits": {"cpu": "much"}}),
        ("brokers.limits.pendingBytes", 1),
        ("brokers.limits.maxConnections", 15),
        ("brokers.limits.idleTimeoutSeconds", "75"),
        ("brokers.tolerations", [{"operator": "Perhaps"}]),
        ("rebalance.delaySeconds", -1),
        ("rebalance.policy", "Never"),
        ("rebalance.standby", "Never"),
        ("limits.maxMessageBytes", 1),
        ("redis.url", "http://redis:6379"),
        ("redis", {}),
        ("redis", {"url": "redis://redis:6379", "secretRef": {"name": "redis"}}),
        ("auth.secretName", "No Name"),
        ("tls", {}),
        ("tls.secretName", "No Name"),
        ("deletionPolicy", "Keep"),
    ],
)
def test_a_bad_queue_is_refused(stage, path, value):
    with pytest.raises(ApiError) as refused:
        stage.kube.create(stage.resource("PartitionedQueue", "bad", at(path, value)))
    assert refused.value.status == 422
    assert f"spec.{path}" in str(refused.value)


@pytest.mark.parametrize("name", ["a" * 46, "Orders", "orders-"])
def test_a_name_that_brokers_could_not_have_is_refused(stage, name):
    with pytest.raises(ApiError):
        stage.kube.create(stage.resource("PartitionedQueue", name, {}))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("queue", None),
        ("queue", "No Name"),
        ("selector", None),
        ("selector", {}),
        ("selector.matchExpressions", [{"key": "app", "operator": "Like"}]),
        ("type", "Common"),
        ("type", "session"),
        ("session.lockSeconds", -5),
        ("session.lockSeconds", "60s"),
        ("session.maxSessions", 0),
        ("strategy", "random"),
        ("start", "Yesterday"),
        ("startAt", "Yesterday"),
        ("rebalance.maxHandoffSeconds", 3601),
    ],
)
def test_a_bad_group_is_refused(stage, path, value):
    spec = at(path, value, {"queue": "plain", "selector": dict(SELECTOR)})
    with pytest.raises(ApiError) as refused:
        stage.kube.create(stage.resource("ConsumerGroup", "bad", spec))
    assert refused.value.status == 422
    assert f"spec.{path.partition('.')[0]}" in str(refused.value)


def test_a_field_that_is_not_known_is_not_stored(stage):
    """`kubectl apply` refuses it; whoever calls the API without a check does not get it."""
    spec = {"partition": 4}
    made = stage.kube.create(stage.resource("PartitionedQueue", "unknown-field", spec))
    assert "partition" not in made["spec"]


def test_status_is_written_on_its_own(stage):
    stage.kube.create(stage.resource("PartitionedQueue", "status", {}))
    changes = {"spec": {"partitions": 4}, "status": {"url": "http://status"}}
    stage.kube.patch("PartitionedQueue", stage.namespace, "status", changes, part="status")
    after = stage.kube.patch("PartitionedQueue", stage.namespace, "status", changes)
    assert after["status"]["url"] == "http://status"
    assert after["metadata"]["generation"] == 2, "the spec, changed once"


def test_short_names_and_the_first_columns(stage):
    path = f"/apis/partq.dev/v1alpha1/namespaces/{stage.namespace}/partitionedqueues"
    kinds = {each["kind"]: each for each in stage.kube.call("GET", "/apis/partq.dev/v1alpha1")
             ["resources"] if "/" not in each["name"]}  # fmt: skip
    assert kinds["PartitionedQueue"]["shortNames"] == ["pq"]
    assert kinds["ConsumerGroup"]["shortNames"] == ["cg"]
    assert {kind["categories"][0] for kind in kinds.values()} == {"partq"}
    table = stage.kube.call("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names[:3] == ["Name", "Ready", "Reason"]
