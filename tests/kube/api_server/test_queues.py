"""A queue's life: what it owns, what its status says, what becomes of a changed spec."""

import pytest

from tests.kube.api_server.processes import eventually


@pytest.fixture(scope="module", autouse=True)
def operator(stage):
    return stage.start_operator()


@pytest.fixture(scope="module")
def orders(stage):
    made = stage.apply_queue("orders", brokers={"replicas": 2})
    stage.serve("orders")
    return made


def owned(stage, queue):
    """Return every object that a queue owns, by kind and name."""
    found = {}
    for kind in ("Secret", "Service", "StatefulSet", "NetworkPolicy", "PodDisruptionBudget"):
        for body in stage.kube.list(kind, stage.namespace):
            owners = body["metadata"].get("ownerReferences", ())
            if any(owner["uid"] == queue["metadata"]["uid"] for owner in owners):
                found[kind, body["metadata"]["name"]] = body
    return found


@pytest.mark.req("AZR-69")
def test_a_queue_owns_what_serves_it(stage, orders):
    objects = owned(stage, orders)
    assert set(objects) == {
        ("Secret", "orders-tokens"),
        ("Secret", "orders-broker-config"),
        ("Service", "orders-partq"),
        ("Service", "orders-brokers"),
        ("StatefulSet", "orders-broker"),
        ("NetworkPolicy", "orders-broker"),
        ("PodDisruptionBudget", "orders-broker"),
    }
    for body in objects.values():
        (owner,) = body["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == (
            "PartitionedQueue", "orders", True,
        )  # fmt: skip
        assert body["metadata"]["labels"]["partq.dev/queue"] == "orders"


def test_status_says_what_there_is(stage, orders):
    status = stage.status("PartitionedQueue", "orders")
    assert status["observedGeneration"] == orders["metadata"]["generation"]
    assert status["partitions"] == {
        "configured": 8, "ready": 8, "target": 8, "retiring": 0, "summary": "8",
    }  # fmt: skip
    assert status["brokers"] == {"desired": 2, "ready": 2}
    assert status["tokensSecret"] == "orders-tokens"
    conditions = {each["type"]: each for each in status["conditions"]}
    assert {name: each["status"] for name, each in conditions.items()} == {
        "Ready": "True",
        "Reconciling": "False",
        "Stalled": "False",
        "SpecValid": "True",
        "ObjectsApplied": "True",
        "StoreReachable": "True",
        "StoreDurable": "True",
        "PartitionsServed": "True",
        "BrokersReady": "True",
        "WithinQuota": "True",
        "Paused": "False",
        "RebalancePaused": "False",
    }
    assert conditions["StoreDurable"]["reason"] == "SyncedAlways"


def test_an_advice_of_an_earlier_operator_stays(stage, orders):
    """It takes ten minutes until this one has its own; see tests/kube/reconcile."""
    advice = {
        "partitions": 16,
        "reason": "MembersStandBy",
        "message": "group workers has 12 members for 8 partitions: 4 of them get no messages",
        "since": "2026-11-20T12:00:00Z",
    }
    status = {"status": {"advice": advice, "groups": 7}}
    stage.kube.patch("PartitionedQueue", stage.namespace, "orders", status, part="status")
    stage.annotate("PartitionedQueue", "orders", told="again")
    eventually(
        lambda: stage.status("PartitionedQueue", "orders")["groups"] == 0, "the status is written"
    )
    assert stage.status("PartitionedQueue", "orders")["advice"] == advice


def test_nothing_is_written_while_nothing_changes(stage, orders):
    def written():
        queue = stage.kube.get("PartitionedQueue", stage.namespace, "orders")
        versions = [body["metadata"]["resourceVersion"] for body in owned(stage, orders).values()]
        return queue["spec"], queue["status"], queue["metadata"]["finalizers"], versions

    before = written()
    stage.stays("orders", lambda: written() == before, "nothing is written")


def test_more_brokers_leave_those_that_run_alone(stage, orders):
    before = stage.kube.get("StatefulSet", stage.namespace, "orders-broker")
    spec = {"brokers": {"replicas": 3}, "rebalance": {"delaySeconds": 1}}
    changed = stage.kube.patch("PartitionedQueue", stage.namespace, "orders", {"spec": spec})
    generation = changed["metadata"]["generation"]

    def scaled():
        found = stage.kube.get("StatefulSet", stage.namespace, "orders-broker")
        return found if found["spec"]["replicas"] == 3 else None

    after = eventually(scaled, "three replicas")
    assert after["spec"]["template"] == before["spec"]["template"], "no broker is restarted"
    condition = stage.wait_for("PartitionedQueue", "orders", "BrokersReady", "False")
    assert condition["observedGeneration"] == generation
    assert stage.condition("PartitionedQueue", "orders", "Ready")[0] == "True"


def test_what_somebody_else_changes_or_removes_is_theirs_to_explain(stage, orders):
    """A field that we do not set stays; one that we set comes back with the next change."""
    labels = {"metadata": {"labels": {"team": "shop"}}}
    stage.kube.patch("Service", stage.namespace, "orders-partq", labels)
    spec = {"limits": {"maxUnackedPerFlow": 500}}
    stage.kube.patch("PartitionedQueue", stage.namespace, "orders", {"spec": spec})
    stage.wait_for("PartitionedQueue", "orders", "SpecValid", "True")
    service = stage.kube.get("Service", stage.namespace, "orders-partq")
    assert service["metadata"]["labels"]["team"] == "shop"


@pytest.mark.req("AZR-10", "SOL-U10")
def test_another_number_of_partitions_is_shown_and_the_queue_goes_on(stage, orders):
    before = owned(stage, orders)["StatefulSet", "orders-broker"]["metadata"]["resourceVersion"]
    change = {"spec": {"partitions": 12}}
    stage.kube.patch("PartitionedQueue", stage.namespace, "orders", change)
    stage.wait_for_event("PartitionedQueue", "orders", "RescaleStarted")
    stage.wait_for_event("PartitionedQueue", "orders", "RescaleOpened")
    eventually(
        lambda: stage.status("PartitionedQueue", "orders")["partitions"]["ready"] == 12,
        "twelve partitions take messages",
    )
    assert stage.condition("PartitionedQueue", "orders", "Ready")[0] == "True"
    after = owned(stage, orders)["StatefulSet", "orders-broker"]["metadata"]["resourceVersion"]
    assert after == before, "no broker restarts for it"


def test_an_operator_with_other_settings_brings_the_objects_in_line(stage, operator, orders):
    """The NetworkPolicy goes where the installation is told to do without."""
    assert ("NetworkPolicy", "orders-broker") in owned(stage, orders)
    operator.process.terminate()
    operator.process.wait()
    stage.start_operator(
        "operator-1",
        PARTQ_BROKER_NETWORK_POLICY="none",
        PARTQ_BROKER_LOG_LEVEL="warning",
        PARTQ_BROKER_USER="assigned",
    )
    eventually(
        lambda: ("NetworkPolicy", "orders-broker") not in owned(stage, orders),
        "the NetworkPolicy is removed",
    )
    pod = owned(stage, orders)["StatefulSet", "orders-broker"]["spec"]["template"]["spec"]
    assert "runAsUser" not in pod["securityContext"]
    (container,) = pod["containers"]
    assert {"name": "PARTQ_LOG_LEVEL", "value": "warning"} in container["env"]
