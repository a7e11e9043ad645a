"""A clock that jumps stops the expiry of messages."""

import pytest

from partq.core.clock_watch import MAX_JUMP_S, SUSPENDED_S, ClockWatch


@pytest.mark.parametrize(
    ("passed_s", "store_passed_s", "jump_s"),
    [
        pytest.param(1.0, 1.0, 0.0, id="both clocks go as fast"),
        pytest.param(500.0, 505.0, 0.0, id="a long time between two looks is no jump"),
        pytest.param(1.0, 1.0 + MAX_JUMP_S, 0.0, id="set right by as much as may be"),
        pytest.param(1.0, 62.0, 61.0, id="ahead"),
        pytest.param(1.0, -61.0, -62.0, id="back"),
    ],
)
def test_jumps(passed_s, store_passed_s, jump_s):
    watch = ClockWatch()
    assert watch.observe(1_000_000, 5.0) == 0.0
    assert watch.observe(1_000_000 + int(store_passed_s * 1000), 5.0 + passed_s) == jump_s
    assert watch.is_suspended(5.0 + passed_s) == bool(jump_s)


def test_the_time_of_the_store_is_estimated_by_what_has_passed_since():
    watch = ClockWatch()
    assert watch.estimate_ms(1.0) is None
    watch.observe(1_000_000, 5.0)
    assert watch.estimate_ms(7.5) == 1_002_500


def test_a_suspension_ends_after_its_time_or_when_the_clock_is_confirmed():
    watch = ClockWatch()
    watch.observe(0, 0.0)
    watch.observe(10**9, 1.0)
    assert watch.is_suspended(SUSPENDED_S)
    assert not watch.is_suspended(1.0 + SUSPENDED_S)
    watch.confirm()
    assert not watch.is_suspended(2.0)
    watch.observe(10**9 + 1000, 2.0)  # it goes on from where it is now
    assert not watch.is_suspended(2.0)
