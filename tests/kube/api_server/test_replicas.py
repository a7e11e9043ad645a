"""The operator comes and goes: queues and consumers do not notice, and one replica leads."""

import json
import urllib.request

import pytest

from tests.kube.api_server.processes import eventually

QUEUE = "jobs"


@pytest.fixture(scope="module")
def brokers(stage):
    stage.start_operator("operator-0")
    stage.apply_queue(QUEUE, rebalance={"delaySeconds": 30, "maxHandoffSeconds": 2})
    return stage.serve(QUEUE)


@pytest.fixture
def consumers(stage):
    with stage.consumers():
        yield


def leader(stage):
    lease = stage.kube.get("Lease", stage.namespace, "partq-operator")
    return lease["spec"]["holderIdentity"] if lease else None


def publish(brokers, *values):
    """Publish messages, each under a key of its own, by plain HTTP."""
    token = brokers.tokens["produce"]
    body = [{"key": value, "value": value} for value in values]
    request = urllib.request.Request(
        f"{brokers.urls[0]}/v1/queues/{QUEUE}/messages",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 201


def consumed(*pods):
    """Return the values that consumers have printed, each as often as it was."""
    lines = [line for pod in pods for line in pod.process.output().splitlines()]
    return sorted(json.loads(line)["value"] for line in lines if line.startswith("{"))


def updates(stage):
    """Return how many Events say that something of the queue was written."""
    return stage.events("PartitionedQueue", QUEUE).count("Updated")


def test_absence_of_the_operator_stops_and_moves_nothing(stage, brokers, consumers):
    stage.apply_group("absent", QUEUE)
    owner = stage.owner("absent", "absent")
    first, second = (stage.start_pod(brokers, owner, "absent") for _ in range(2))
    before = stage.wait_for_shares(QUEUE, "absent", first, second)
    told = eventually(lambda: updates(stage), "the queue was made, and that is told")
    values = [f"m{number}" for number in range(40)]
    publish(brokers, *values[:20])

    (operator,) = stage.operators
    operator.process.kill()
    publish(brokers, *values[20:])
    eventually(lambda: consumed(first, second) == sorted(values), "every message, once")
    second.crash()
    second.restart()
    values += [f"late{number}" for number in range(20)]
    publish(brokers, *values[40:])
    # What the second had printed and not acknowledged yet when it was killed comes again.
    eventually(lambda: set(consumed(first, second)) == set(values), "both consume, without it")

    operator.process.start()
    eventually(lambda: operator.answers("/readyz"), "the operator is back")
    stage.wait_for("ConsumerGroup", "absent", "Ready", "True", "Stable")
    stage.stays(QUEUE, lambda: stage.assignment(QUEUE, "absent") == before, "nothing moves")
    moved = [each["moved"] for each in stage.status("ConsumerGroup", "absent")["rebalances"]]
    assert sum(moved) in (0, 4), f"only the joining of the two, together or one by one: {moved}"
    assert updates(stage) == told, "what is as it was is no news to an operator that begins"


def test_what_came_while_the_operator_was_away_is_taken_up(stage, brokers, consumers):
    stage.apply_group("meanwhile", QUEUE)
    owner = stage.owner("meanwhile", "meanwhile")
    first = stage.start_pod(brokers, owner, "meanwhile")
    stage.wait_for_shares(QUEUE, "meanwhile", first)

    (operator,) = stage.operators
    operator.process.terminate()
    assert operator.process.wait() == 0
    assert leader(stage) == "", "the Lease is given back"
    second = stage.start_pod(brokers, owner, "meanwhile")
    stage.kube.patch(
        "PartitionedQueue", stage.namespace, QUEUE, {"spec": {"brokers": {"replicas": 2}}}
    )
    operator.process.start()
    stage.wait_for_shares(QUEUE, "meanwhile", first, second)
    brokers.start()
    stage.wait_for("PartitionedQueue", QUEUE, "BrokersReady", "True")


def test_one_replica_leads_and_another_takes_over(stage, brokers, consumers):
    stage.apply_group("pair", QUEUE)
    owner = stage.owner("pair", "pair")
    first = stage.start_pod(brokers, owner, "pair")
    stage.wait_for_shares(QUEUE, "pair", first)
    (leading,) = stage.operators
    standby = stage.start_operator("operator-1")
    eventually(lambda: standby.answers("/readyz"), "the second replica is ready")
    assert leader(stage) == "operator-0"

    leading.process.kill()
    second = stage.start_pod(brokers, owner, "pair")
    stage.wait_for_shares(QUEUE, "pair", first, second)
    assert leader(stage) == "operator-1"

    leading.process.start()
    eventually(lambda: leading.answers("/readyz"), "the first replica is back")
    standby.process.terminate()
    third = stage.start_pod(brokers, owner, "pair")
    stage.wait_for_shares(QUEUE, "pair", first, second, third)
    assert leader(stage) == "operator-0"
    assert standby.process.wait() == 0


def test_the_api_server_goes_away_and_comes_back(stage, api_server, brokers, consumers):
    stage.apply_group("outage", QUEUE)
    owner = stage.owner("outage", "outage")
    first, second = (stage.start_pod(brokers, owner, "outage") for _ in range(2))
    before = stage.wait_for_shares(QUEUE, "outage", first, second)

    api_server.break_down()
    first.process.kill()
    first.process.start()
    publish(brokers, "meanwhile")
    eventually(lambda: consumed(first, second) == ["meanwhile"], "it is consumed")
    api_server.serve()
    third = stage.start_pod(brokers, owner, "outage")
    after = stage.wait_for_shares(QUEUE, "outage", first, second, third)
    assert len([p for p in before if before[p] != after[p]]) == 2
