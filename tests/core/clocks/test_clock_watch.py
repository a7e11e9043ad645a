"""A clock that jumps stops the expiry of messages."""

import pytest

from partq.core.clocks.clock_watch import MAX_JUMP_S, SUSPENDED_S, ClockWatch, ahead_ms


@pytest.mark.parametrize(
    ("passed_s", "store_passed_s", "jump_s"),
    [
        pytest.param(1.0, 1.0, 0.0, id="both clocks go as fast"),
        pytest.param(500.0, 505.0, 0.0, id="a long time between two looks is not a jump"),
        pytest.param(1.0, 1.0 + MAX_JUMP_S, 0.0, id="set right by as much as may be"),
        pytest.param(1.0, 62.0, 61.0, id="ahead"),
        pytest.param(1.0, -61.0, -62.0, id="back"),
    ],
)
def test_jumps(passed_s, store_passed_s, jump_s):
    watch = ClockWatch()
    assert watch.observe(1_000_000, 5.0, wall_s=1_000) == 0.0
    store_ms = 1_000_000 + int(store_passed_s * 1000)
    # The wall clock says nothing any more: it may be set, too.
    assert watch.observe(store_ms, 5.0 + passed_s, wall_s=0) == jump_s
    assert watch.is_suspended(5.0 + passed_s) == bool(jump_s)


@pytest.mark.parametrize(
    ("looks", "every_s", "step_s", "jumps_s"),
    [
        pytest.param(72, 1.0, 50.0, 36 * [0.0, 100.0], id="each second almost as far as may be"),
        pytest.param(72, 1.0, -50.0, 36 * [0.0, -100.0], id="back in the same way"),
        pytest.param(72, 1.0, 1.0, 60 * [0.0] + [61.0] + 11 * [0.0], id="a second each second"),
        pytest.param(1000, 60.0, 0.03, 1000 * [0.0], id="slewed as fast as a clock is slewed"),
        pytest.param(2, 86_400.0, 50.0, 2 * [0.0], id="set right once a day"),
    ],
)
def test_small_steps_add_up_to_a_jump(looks, every_s, step_s, jumps_s):
    watch = ClockWatch()
    watch.observe(0, 0.0, wall_s=0)
    found = []
    for number in range(1, looks + 1):
        now = number * every_s
        found.append(watch.observe(round((now + number * step_s) * 1000), now, wall_s=now))
        assert watch.is_suspended(now) == any(found)
    assert found == pytest.approx(jumps_s, abs=0.1)


def test_what_was_confirmed_is_where_the_steps_begin():
    watch = ClockWatch()
    watch.observe(0, 0.0, wall_s=0)
    assert watch.observe(51_000, 1.0, wall_s=1) == 0.0
    watch.confirm()
    assert watch.observe(102_000, 2.0, wall_s=2) == 0.0
    assert watch.observe(153_000, 3.0, wall_s=3) == pytest.approx(100.0, abs=0.1)


def test_the_time_of_the_store_is_estimated_by_what_has_passed_since():
    watch = ClockWatch()
    assert watch.estimate_ms(1.0) is None
    watch.observe(1_000_000, 5.0, wall_s=1_000)
    assert watch.estimate_ms(7.5) == 1_002_500


def test_a_suspension_ends_after_its_time_or_when_the_clock_is_confirmed():
    watch = ClockWatch()
    watch.observe(0, 0.0, wall_s=0)
    watch.observe(10**9, 1.0, wall_s=1)
    assert watch.is_suspended(SUSPENDED_S)
    assert not watch.is_suspended(1.0 + SUSPENDED_S)
    watch.confirm()
    assert not watch.is_suspended(2.0)
    watch.observe(10**9 + 1000, 2.0, wall_s=2)  # it continues from where it is now
    assert not watch.is_suspended(2.0)


@pytest.mark.parametrize(
    ("wall_s", "jump_s"),
    [
        pytest.param(1_000, 0.0, id="the same time"),
        pytest.param(940, 0.0, id="as far apart as may be"),
        pytest.param(939, 61.0, id="the store is ahead"),
        pytest.param(1_061, -61.0, id="the store is behind"),
    ],
)
def test_the_first_look_is_compared_with_the_wall_clock(wall_s, jump_s):
    """Whoever starts after a jump has not seen it."""
    watch = ClockWatch()
    assert watch.observe(1_000_000, 5.0, wall_s=wall_s) == jump_s
    assert watch.is_suspended(5.0) == bool(jump_s)


@pytest.mark.parametrize(
    ("ahead_ms", "jump_s"), [(0, 0.0), (60_000, 0.0), (60_001, 60.001), (-61_000, -61.0)]
)
def test_a_clock_that_takes_over_from_another_one_must_not_differ(ahead_ms, jump_s):
    before, watch = ClockWatch(), ClockWatch()
    before.observe(1_000_000, 5.0, wall_s=1_000)
    watch.observe(1_002_000 + ahead_ms, 7.0, wall_s=1_002 + ahead_ms / 1000)
    assert watch.follow(before, 8.0) == pytest.approx(jump_s)
    assert watch.is_suspended(8.0) == bool(jump_s)
    watch.confirm()
    assert not watch.is_suspended(8.0)


def clocks(*aheads_s):
    """Watches of servers at the same time, each so many seconds ahead of the observer's machine."""
    watches = [ClockWatch() for _ in aheads_s]
    for watch, ahead_s in zip(watches, aheads_s, strict=True):
        watch.observe(1_000_000 + ahead_s * 1000, 5.0, wall_s=1_000 + ahead_s)
    return watches


@pytest.mark.parametrize("ahead_s", [40, -40])
def test_what_the_clocks_of_several_takeovers_differ_by_adds_up(ahead_s):
    """Each is near the one before; the last one judges what the first one has stamped."""
    first, second, third = clocks(0, ahead_s, 2 * ahead_s)
    assert second.follow(first, 5.0) == 0.0
    assert third.follow(second, 5.0) == 2 * ahead_s
    assert third.is_suspended(5.0)


def test_a_takeover_adds_to_the_steps_of_both_clocks():
    first, second = clocks(0, 40)
    first.observe(1_000_000 - 25_000, 5.0, wall_s=0)
    assert second.follow(first, 5.0) == 0.0, "40 s of 65 s were a step back to where it was"
    assert second.observe(1_040_000 + 50_000, 5.0, wall_s=0) == pytest.approx(90.0)


@pytest.mark.parametrize("sign", [1, -1], ids=["ahead", "behind"])
@pytest.mark.parametrize("others", [[35], [90], [90, 35]], ids=["nearer", "opposite", "both"])
def test_a_takeover_from_another_clock_hides_no_earlier_one(others, sign):
    """The partitions of both are judged by one clock, and go on to the last one together."""
    aheads_s = [sign * each for each in (0, 40, *others, 80)]
    first, second, *more, last = clocks(*aheads_s)
    for each in (first, *more):
        assert second.follow(each, 5.0) == 0.0
    assert last.follow(second, 5.0) == sign * 80
    assert last.is_suspended(5.0)


def test_steps_begin_anew_after_a_takeover_from_a_clock_that_is_far():
    before, watch = clocks(0, 65)
    watch.observe(1_065_000 + 40_000, 5.0, wall_s=0)
    assert watch.follow(before, 5.0) == 105
    assert watch.observe(1_105_000 + 30_000, 5.0, wall_s=0) == 0.0, "30 s are no jump by themselves"


def test_takeovers_there_and_back_add_up_to_nothing():
    first, second = clocks(0, 40)
    for _ in range(10):
        assert second.follow(first, 5.0) == 0.0
        assert first.follow(second, 5.0) == 0.0


def test_a_suspension_goes_over_to_the_clock_that_takes_over():
    """Both have jumped, and one's own machine with them: the new one was seen by nobody before."""
    before, watch = ClockWatch(), ClockWatch()
    before.observe(0, 0.0, wall_s=0)
    before.observe(10**9, 1.0, wall_s=0)
    watch.observe(10**9 + 1000, 2.0, wall_s=10**6 + 1)
    assert watch.follow(before, 2.0) == 0.0
    assert watch.is_suspended(2.0)


@pytest.mark.parametrize(("stored_ms", "ahead"), [(0, 0), (160_000, 0), (160_001, 60_001)])
def test_a_partition_is_ahead_by_more_than_a_clock_is_set_right_by(stored_ms, ahead):
    assert ahead_ms(stored_ms, 100_000) == ahead
