"""From nothing to messages: the chart, `kubectl apply` of a queue, producers and consumers."""

import time

import pytest

from e2e import manifests
from e2e.figures import Figures
from e2e.stage import Stage

pytestmark = pytest.mark.timeout(600)


def test_messages_flow_between_producers_and_consumers(stage: Stage, figures: Figures) -> None:
    began = time.monotonic()
    stage.apply(manifests.queue(), manifests.group())
    stage.await_condition("pq", manifests.QUEUE)
    figures.add("from `kubectl apply` to Ready", f"{time.monotonic() - began:.1f} s")
    stage.open()

    assert stage.close().published
