"""`kubectl scale` of the consumers: partitions go to new members, and away from leaving ones."""

import time

import pytest

from e2e.figures import Figures
from e2e.stage import Stage
from partq.lab.verdict.journal_rows import ASSIGNED, HeldRow

pytestmark = pytest.mark.timeout(600)


def test_consumers_scale_up_and_down_under_load(stage: Stage, figures: Figures) -> None:
    stage.open(consumers=2)
    before = stage.moves()
    plan = stage.partq("plan", "--from-live", "--members", "4")
    assert (plan["moved"], plan["assigned"]) == (8, 0)

    began = time.monotonic()
    stage.scale(4)
    stage.await_shared(4)
    figures.add(
        "from `kubectl scale` 2 to 4 to all partitions Ready", f"{time.monotonic() - began:.1f} s"
    )
    figures.add("the longest pause of a partition in it", f"{stage.longest_pause_ms()} ms")
    stage.await_traffic()
    # One half of 16; one more when one of the two joins before the other: 8+8, 6+5+5, 4+4+4+4.
    assert 8 <= stage.moves() - before <= 9
    assigned = [row for row in stage.rows() if isinstance(row, HeldRow) and row.change == ASSIGNED]
    told = stage.partq("explain", assigned[-1].partition)
    assert (told["member"], told["state"]) == (assigned[-1].member, "Ready")
    assert told["waits_for"]["what"] == "nothing"
    assert told["moves"][0]["evidence"] in {"newcomer", "uneven"}

    stage.scale(1)
    stage.await_shared(1)
    stage.await_traffic()

    stage.close()
