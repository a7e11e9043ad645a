"""`kubectl scale` of the consumers: partitions go to who comes, and away from who leaves."""

import pytest

from e2e.stage import Stage

pytestmark = pytest.mark.timeout(600)


def test_consumers_scale_up_and_down_under_load(stage: Stage):
    stage.open(consumers=2)
    before = stage.moves()

    stage.scale(4)
    stage.await_shared(4)
    stage.await_traffic()
    # One half of 16; one more when one of the two joins before the other: 8+8, 6+5+5, 4+4+4+4.
    assert 8 <= stage.moves() - before <= 9

    stage.scale(1)
    stage.await_shared(1)
    stage.await_traffic()

    stage.close()
