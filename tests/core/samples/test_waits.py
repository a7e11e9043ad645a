"""Ranges of waits, their sums and their quantiles."""

import pytest

from partq.core.samples.waits import RANGES, WaitCounts, add_spans, dense, quantiles_ms, span_of


def taken(*waits_ms):
    counts = WaitCounts()
    for wait_ms in waits_ms:
        counts.add(wait_ms)
    return counts.take()


@pytest.mark.parametrize("wait_ms", [0.1, 0.5, 0.7, 1, 3, 40, 999, 60_000, 3_600_000])
def test_a_quantile_is_at_most_a_tenth_too_high(wait_ms):
    (found,) = quantiles_ms(taken(wait_ms), [0.5])
    assert max(0.5, wait_ms) <= found + 0.001
    assert found <= max(0.5, wait_ms * 1.0906) + 0.001


def test_quantiles_of_many_waits():
    counts = WaitCounts()
    counts.add(1.0, 98)
    counts.add(100.0, 2)
    span = counts.take()
    p50, p99 = quantiles_ms(span, [0.5, 0.99])
    assert p50 == 1.0
    assert 100 <= p99 <= 110
    assert list(counts.take()) == []
    assert quantiles_ms((), [0.5, 0.99]) == [None, None]
    assert quantiles_ms((3, 0, 0), [0.5]) == [None]


@pytest.mark.parametrize(("wait_ms", "at"), [(-5.0, 0), (0.0, 0), (1e15, RANGES - 1)])
def test_waits_out_of_every_range_are_counted_in_the_nearest(wait_ms, at):
    assert list(taken(wait_ms)) == [at, 1]
    assert quantiles_ms(taken(wait_ms), [0.5])[0] is not None


def test_a_span_leaves_out_the_empty_ranges_at_both_ends():
    assert span_of([0, 0, 3, 0, 1, 0]) == [2, 3, 0, 1]
    assert span_of([7]) == [0, 7]
    assert span_of([0, 0]) == []
    assert dense([2, 3, 0, 1]) == [0, 0, 3, 0, 1]
    assert dense([]) == []


def test_spans_are_added_range_by_range():
    assert list(add_spans([[0, 1, 2], [], [2, 3]])) == [0, 1, 2, 3]
    assert list(add_spans([[5, 1], [3, 1, 1, 1]])) == [3, 1, 1, 2]
    assert list(add_spans([[4, 2]])) == [4, 2]
    assert list(add_spans([])) == []


@pytest.mark.parametrize("odd", [[RANGES, 1], [-1, 5], [0], [10**12, 1]])
def test_what_no_broker_has_counted_is_left_out(odd):
    assert list(add_spans([odd, [1, 1], [2, 1]])) == [1, 1, 1]
    long = add_spans([[RANGES - 2, 1, 1, 1, 1], [0, 1]])
    assert (len(long), sum(long[1:])) == (RANGES + 1, 3)
