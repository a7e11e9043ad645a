"""Redis dies by kill -9, and its pod is removed by force: nothing is lost and nothing moves."""

import pytest

from e2e import manifests
from e2e.nodes import Nodes
from e2e.release import Release
from e2e.stage import Stage

pytestmark = pytest.mark.timeout(600)


def test_redis_dies_under_load(stage: Stage, release: Release, nodes: Nodes) -> None:
    stage.open(rebalance=manifests.PATIENT)
    moves = stage.moves()

    for strike in (nodes.kill, release.remove):
        redis = release.redis()
        strike(redis)
        nodes.await_again(redis)
        stage.await_traffic()
        stage.await_shared(2)

    assert stage.moves() == moves
    stage.close()
