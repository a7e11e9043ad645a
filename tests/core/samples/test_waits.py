"""Ranges of waits, their sums and their quantiles."""

import pytest

from partq.core.samples.waits import RANGES, WaitCounts, add_counts, quantile_ms


@pytest.mark.parametrize("wait_ms", [0.1, 0.5, 0.7, 1, 3, 40, 999, 60_000, 3_600_000])
def test_a_quantile_is_at_most_the_root_of_two_too_high(wait_ms):
    counts = WaitCounts()
    counts.add(wait_ms)
    assert max(0.5, wait_ms) <= quantile_ms(counts.take(), 0.5) + 0.001
    counts.add(wait_ms)
    assert quantile_ms(counts.take(), 0.5) <= max(0.5, wait_ms * 2**0.5) + 0.001


def test_quantiles_of_many_waits():
    counts = WaitCounts()
    counts.add(1.0, 98)
    counts.add(100.0, 2)
    taken = counts.take()
    assert quantile_ms(taken, 0.5) == 1.0
    assert 100 <= quantile_ms(taken, 0.99) <= 142
    assert counts.take() == ()
    assert quantile_ms((), 0.5) is None


@pytest.mark.parametrize(("wait_ms", "at"), [(-5.0, 0), (0.0, 0), (1e15, RANGES - 1)])
def test_waits_out_of_every_range_are_counted_in_the_nearest(wait_ms, at):
    counts = WaitCounts()
    counts.add(wait_ms)
    taken = counts.take()
    assert (len(taken), taken[at]) == (at + 1, 1)


def test_counts_are_added_range_by_range():
    assert add_counts([(1, 2), (), (0, 0, 3)]) == (1, 2, 3)
    assert add_counts([]) == ()
    assert len(add_counts([[1] * 10_000])) == RANGES
