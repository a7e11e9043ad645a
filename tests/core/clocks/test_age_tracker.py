"""How long ago stored instants were, for who looks again while the clock of the store jumps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.clocks.age_tracker import AgeTracker

STORE = 1_800_000_000_000
OWN = 5_000


def observe(elapsed, instants, passed_ms=0, jumped_ms=0):
    now_ms = OWN + passed_ms
    return elapsed.observe(instants, store_ms=STORE + passed_ms + jumped_ms, now_ms=now_ms)


@pytest.mark.parametrize(
    ("instant", "age"),
    [
        pytest.param(STORE - 700, {"m": 700}, id="a while ago"),
        pytest.param(STORE, {"m": 0}, id="just now"),
        pytest.param(STORE + 30_000, {}, id="the clock was set back: to be noted anew"),
    ],
)
def test_the_first_look_goes_by_the_store(instant, age):
    assert observe(AgeTracker(), {"m": instant}) == age


@pytest.mark.parametrize("jumped_ms", [-3_600_000, -30_000, -300, 300, 30_000, 3_600_000])
def test_what_was_seen_is_counted_on_one_s_own_clock(jumped_ms):
    elapsed = AgeTracker()
    observe(elapsed, {"m": STORE - 700})
    assert observe(elapsed, {"m": STORE - 700}, 2_000, jumped_ms) == {"m": 2_700}


def test_what_was_not_there_at_the_last_look_is_not_older():
    """Written after it, and then the store's clock was set forward."""
    elapsed = AgeTracker()
    observe(elapsed, {})
    assert observe(elapsed, {"m": STORE + 100}, 500, jumped_ms=30_000) == {"m": 500}


def test_an_instant_that_is_noted_anew_begins_anew():
    elapsed = AgeTracker()
    observe(elapsed, {"m": STORE - 700, "n": STORE - 10})
    assert observe(elapsed, {"m": STORE + 900, "n": STORE - 10}, 1_000) == {"m": 100, "n": 1_010}


def test_what_is_gone_is_forgotten():
    elapsed = AgeTracker()
    observe(elapsed, {"m": STORE - 700})
    observe(elapsed, {}, 1_000)
    assert observe(elapsed, {"m": STORE - 700}, 3_000) == {"m": 2_000}


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(-90_000, 90_000)), max_size=20))
def test_ages_grow_as_time_passes_whatever_the_store_s_clock_does(steps):
    elapsed = AgeTracker()
    observe(elapsed, {"m": STORE})
    passed = jumped = 0
    for more_ms, jump_ms in steps:
        passed, jumped = passed + more_ms, jumped + jump_ms
        assert observe(elapsed, {"m": STORE}, passed, jumped) == {"m": passed}
