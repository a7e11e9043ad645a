"""Consumers that end without a word: removed by force, or crashed and back before the delay."""

import pytest

from e2e import manifests
from e2e.nodes import Nodes
from e2e.stage import Stage

pytestmark = pytest.mark.timeout(600)


def test_a_consumer_removed_by_force_is_replaced(stage: Stage) -> None:
    stage.open(consumers=3)
    lost = stage.pods()[0]["metadata"]["name"]

    stage.kubectl("delete", "pod", lost, "--force", "--grace-period=0")
    stage.eventually(
        lambda: all(lost not in row["pod"] for row in stage.group_status()["assignments"]),
        "nothing assigned to the pod that is gone",
    )
    stage.await_shared(3)
    stage.await_traffic()

    stage.close()


def test_a_consumer_that_crashes_and_comes_back_keeps_its_partitions(
    stage: Stage, nodes: Nodes
) -> None:
    stage.open(rebalance=manifests.PATIENT)
    moves = stage.moves()
    pod = stage.pods()[0]

    nodes.kill(pod)
    nodes.await_again(pod)
    stage.await_shared(2)
    stage.await_traffic()

    assert stage.moves() == moves
    stage.close()
