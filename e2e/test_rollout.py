"""A rolling update of the consumers: each partition moves once, to a pod that stays."""

import pytest

from e2e import manifests
from e2e.figures import Figures
from e2e.stage import Stage

pytestmark = pytest.mark.timeout(600)


def test_a_rolling_update_moves_each_partition_once(stage: Stage, figures: Figures) -> None:
    stage.open(consumers=4)
    moves = stage.moves()

    stage.kubectl("rollout", "restart", f"deployment/{manifests.GROUP}")
    stage.kubectl("rollout", "status", f"deployment/{manifests.GROUP}", "--timeout=110s")
    stage.await_pods(4)
    stage.await_shared(4)
    stage.await_traffic()

    figures.add(
        "moves of the 16 partitions in a rolling update of 4 consumers", f"{stage.moves() - moves}"
    )
    assert stage.moves() - moves == manifests.PARTITIONS
    stage.close()
