"""`kubectl patch` of the number of partitions, up and down, while messages flow."""

import json
import time

import pytest

from e2e import manifests
from e2e.figures import Figures
from e2e.nodes import Nodes
from e2e.stage import Stage

pytestmark = pytest.mark.timeout(600)


def test_partitions_become_more_and_fewer_under_load(
    stage: Stage, nodes: Nodes, figures: Figures
) -> None:
    stage.open(publishing=["--drawn-id"])
    duration_s = change(stage, 24)
    figures.add("from `kubectl patch` of 16 to 24 partitions to all open", f"{duration_s:.1f} s")

    crashed = stage.broker(0)
    patch(stage, 10)
    nodes.kill(crashed)
    await_opened(stage, 10)
    nodes.await_again(crashed)
    stage.await_brokers(2)
    stage.await_traffic(10)
    reasons = {each["reason"] for each in stage.get("events")["items"]}
    assert {"RescaleStarted", "RescaleCommitted", "RescaleOpened"} <= reasons

    stage.close()


def change(stage: Stage, count: int) -> float:
    """Change the number, wait for traffic in all new partitions, and return the seconds it took."""
    began = time.monotonic()
    patch(stage, count)
    await_opened(stage, count)
    duration_s = time.monotonic() - began
    stage.await_condition("pq", manifests.QUEUE)
    stage.await_traffic(count)
    return duration_s


def patch(stage: Stage, count: int) -> None:
    document = json.dumps({"spec": {"partitions": count}})
    stage.kubectl("patch", "pq", manifests.QUEUE, "--type", "merge", "--patch", document)


def await_opened(stage: Stage, count: int) -> None:
    def is_opened() -> bool:
        status = stage.get("pq", manifests.QUEUE)["status"].get("rescale") or {}
        return status.get("to") == count and status["phase"] in {"Draining", "Settled"}

    stage.eventually(is_opened, f"{count} partitions that take messages")
