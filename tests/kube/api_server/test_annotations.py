"""What a person says beside the spec: pause, rebalance not, rebalance now."""

import pytest

from tests.kube.api_server.processes import eventually

QUEUE = "jobs"


@pytest.fixture(scope="module")
def brokers(stage):
    stage.start_operator()
    stage.apply_queue(QUEUE)
    return stage.serve(QUEUE)


def test_a_paused_rebalance_can_be_asked_for_once(stage, brokers, group):
    stage.apply_group(group, QUEUE)
    owner = stage.owner(group, group)
    first = stage.start_pod(brokers, owner, group)
    before = stage.wait_for_shares(QUEUE, group, first)
    stage.annotate("ConsumerGroup", group, pause_rebalance="true")
    stage.wait_for("ConsumerGroup", group, "RebalancePaused", "True", "Annotation")

    second = stage.start_pod(brokers, owner, group)
    eventually(
        lambda: stage.status("ConsumerGroup", group)["members"]["standby"] == 1,
        "the second has joined",
    )
    stage.stays(
        QUEUE, lambda: stage.assignment(QUEUE, group) == before, "nothing moves for balance"
    )

    stage.annotate("ConsumerGroup", group, rebalance_now="monday")
    after = stage.wait_for_shares(QUEUE, group, first, second)
    eventually(
        lambda: stage.status("ConsumerGroup", group).get("rebalanceNow") == "monday",
        "status says that it was done",
    )
    third = stage.start_pod(brokers, owner, group)
    stage.stays(QUEUE, lambda: stage.assignment(QUEUE, group) == after, "it was asked for once")

    second.vanish()  # what nobody consumes moves all the same
    eventually(
        lambda: second.uid not in stage.assignment(QUEUE, group).values(), "its partitions move"
    )
    stage.annotate("ConsumerGroup", group, pause_rebalance=None)
    stage.wait_for_shares(QUEUE, group, first, third)
    stage.wait_for("ConsumerGroup", group, "RebalancePaused", "False", "NotPaused")


def test_a_queue_that_is_paused_is_left_alone(stage, brokers, group):
    stage.apply_group(group, QUEUE)
    owner = stage.owner(group, group)
    first = stage.start_pod(brokers, owner, group)
    before = stage.wait_for_shares(QUEUE, group, first)
    stage.annotate("PartitionedQueue", QUEUE, pause="true")
    stage.wait_for("PartitionedQueue", QUEUE, "Paused", "True", "Annotation")
    stage.wait_for("ConsumerGroup", group, "Paused", "True", "Annotation")
    eventually(
        lambda: stage.status("ConsumerGroup", group)["phase"] == "Paused", "the phase says so"
    )

    spec = {"spec": {"brokers": {"replicas": 2}}}
    stage.kube.patch("PartitionedQueue", stage.namespace, QUEUE, spec)
    stage.start_pod(brokers, owner, group)

    def is_untouched():
        stateful_set = stage.kube.get("StatefulSet", stage.namespace, f"{QUEUE}-broker")
        is_same = stage.assignment(QUEUE, group) == before
        return is_same and stateful_set["spec"]["replicas"] == 1

    stage.stays(QUEUE, is_untouched, "nothing is done")
    assert first.process.is_running

    stage.annotate("PartitionedQueue", QUEUE, pause=None)
    stage.wait_for("ConsumerGroup", group, "Paused", "False")
    eventually(lambda: stage.assignment(QUEUE, group) != before, "the newcomer gets its share")
    brokers.start()
    stage.wait_for("PartitionedQueue", QUEUE, "BrokersReady", "True")


def test_a_paused_rebalance_of_the_queue_is_that_of_its_groups(stage, brokers, group):
    stage.apply_group(group, QUEUE)
    stage.annotate("PartitionedQueue", QUEUE, pause_rebalance="yes")
    stage.wait_for("PartitionedQueue", QUEUE, "RebalancePaused", "True")
    stage.wait_for("ConsumerGroup", group, "RebalancePaused", "True")
    stage.annotate("PartitionedQueue", QUEUE, pause_rebalance="false")
    stage.wait_for("ConsumerGroup", group, "RebalancePaused", "False")
