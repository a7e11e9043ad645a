"""Clocks that go back, and what a store had lost and an archive has."""

import pytest

from partq.pipeline.audit.judge.chain import MAX_CLOCK_STEP_MS
from tests.pipeline.audit.judge.small_record import BEGIN, found, judged, lines_of, publish


@pytest.mark.parametrize(("back_ms", "expected"), [
    (MAX_CLOCK_STEP_MS, []),
    (MAX_CLOCK_STEP_MS + 1, ["time_went_back"]),
])  # fmt: skip
def test_a_clock_may_go_back_a_little(back_ms, expected):
    assert found(BEGIN, publish(5_000, 0, 1), publish(5_000 - back_ms, 1, 2)) == expected


def test_what_a_store_had_lost_does_not_count_behind_the_fork_either():
    """It had four groups more, lost them, and has written two others since."""
    common = [BEGIN, publish(10, 0, 1)]
    lost = lines_of(*common, *(publish(20 + at, at, at + 1) for at in range(1, 5)))
    kept = lines_of(*common, publish(90, 1, 3), publish(91, 3, 4))
    outcome, findings = judged([*lost, *kept[2:]])

    assert [(each.what, each.sequence) for each in findings] == [
        ("forked_chain", 2), ("forked_chain", 3), ("forked_chain", 4), ("forked_chain", 5),
    ]  # fmt: skip
    assert outcome.head == (3, kept[-1].chain)
    assert {(line.sequence, line.chain) for line in lost[2:]} == outcome.log.dropped
    assert [(each.first, each.stop) for each in outcome.log.batches] == [(0, 1), (1, 3), (3, 4)]
