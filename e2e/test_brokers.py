"""Brokers that die, and brokers that become more and fewer. The consumers keep their partitions."""

import pytest

from e2e import manifests
from e2e.nodes import Nodes
from e2e.stage import Stage

pytestmark = pytest.mark.timeout(600)


def test_a_broker_dies_and_another_broker_s_pod_is_removed(stage: Stage, nodes: Nodes) -> None:
    stage.open(rebalance=manifests.PATIENT)
    moves = stage.moves()

    crashed, removed = stage.broker(0), stage.broker(1)
    nodes.kill(crashed)
    nodes.await_again(crashed)
    stage.await_brokers(2)
    stage.await_traffic()
    stage.kubectl("delete", "pod", removed["metadata"]["name"], "--force", "--grace-period=0")
    nodes.await_again(removed)
    stage.await_brokers(2)
    stage.await_shared(2)
    stage.await_traffic()

    assert stage.moves() == moves
    stage.close()


def test_brokers_become_more_and_fewer(stage: Stage) -> None:
    stage.open(rebalance=manifests.PATIENT)
    moves = stage.moves()
    first = stage.broker(0)["status"]["startTime"]

    for count in (3, 1):
        stage.apply(manifests.queue(brokers={"replicas": count}, rebalance=manifests.PATIENT))
        stage.await_brokers(count)
        stage.await_shared(2)
        stage.await_traffic()

    assert stage.moves() == moves
    assert stage.broker(0)["status"]["startTime"] == first, "a broker that stays is left alone"
    stage.close()
