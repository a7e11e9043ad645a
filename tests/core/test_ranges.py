"""Ranges behave as a set of offsets, whatever is done to them."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from partq.core.ranges import Ranges

LIMIT = 40
OFFSETS = st.integers(0, LIMIT)
SPANS = st.tuples(OFFSETS, OFFSETS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["add", "remove"]), SPANS),
        st.tuples(st.just("drop_below"), OFFSETS),
    )
)


def build(steps):
    """Do the same to ranges and to a set."""
    ranges, model = Ranges(), set()
    for step, argument in steps:
        if step == "add":
            ranges.add(*argument)
            model |= set(range(*argument))
        elif step == "remove":
            ranges.remove(*argument)
            model -= set(range(*argument))
        else:
            ranges.drop_below(argument)
            model -= set(range(argument))
    return ranges, model


@given(STEPS)
def test_pairs_are_the_set_sorted_and_apart(steps):
    ranges, model = build(steps)
    pairs = ranges.pairs()
    assert {offset for pair in pairs for offset in range(*pair)} == model
    assert all(start < stop for start, stop in pairs)
    assert all(before[1] < after[0] for before, after in pairwise(pairs)), "they touch"
    assert bool(ranges) == bool(model)


SCATTERED = st.sets(OFFSETS, min_size=1).map(
    lambda offsets: Ranges((each, each + 1) for each in offsets).pairs()
)


@pytest.mark.parametrize("many", [1, 100])
@given(STEPS, SCATTERED)
@example([("add", (3, 5)), ("add", (7, 9))], [(5, 7)])
def test_many_at_once_are_the_same_as_one_by_one(many, steps, scattered):
    offsets = {offset for pair in scattered for offset in range(*pair)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("partq.core.ranges._MANY", many)
        ranges, model = build(steps)
        ranges.add_all(scattered)
        assert ranges.pairs() == Ranges((each, each + 1) for each in model | offsets).pairs()
        ranges, model = build(steps)
        assert ranges.remove_all(scattered) == len(model & offsets)
        assert ranges.pairs() == Ranges((each, each + 1) for each in model - offsets).pairs()


@given(STEPS, OFFSETS, OFFSETS)
@example([("add", (0, 2))], 1, 1)
@example([("add", (0, 9))], 5, 3)
def test_questions_have_the_answers_of_the_set(steps, start, stop):
    ranges, model = build(steps)
    inside = model & set(range(start, stop))
    assert ranges.count(start, stop) == len(inside)
    assert {o for pair in ranges.within(start, stop) for o in range(*pair)} == inside
    assert all(start <= a < b <= stop for a, b in ranges.within(start, stop))
    assert ranges.end_of_run(start) == min(set(range(start, LIMIT + 1)) - model)


@given(STEPS, SPANS.map(sorted), st.integers(0, LIMIT))
def test_a_window_ends_as_late_as_its_count_allows(steps, span, count):
    start, stop = span
    ranges, model = build(steps)
    end = ranges.end_of_window(start, stop, count)
    assert start <= end <= stop
    assert len(set(range(start, end)) - model) <= count
    if end < stop:
        assert len(set(range(start, end + 1)) - model) > count


@given(st.lists(SPANS))
def test_ranges_are_made_of_pairs_in_any_order(spans):
    ranges = Ranges(spans)
    assert ranges.pairs() == Ranges(reversed(spans)).pairs() == Ranges(ranges.pairs()).pairs()


@pytest.mark.parametrize(("first", "second", "pairs"), [
    pytest.param((1, 3), (3, 5), [(1, 5)], id="touching ones melt"),
    pytest.param((1, 3), (4, 5), [(1, 3), (4, 5)], id="a gap of one keeps them apart"),
    pytest.param((1, 9), (3, 5), [(1, 9)], id="a part changes nothing"),
    pytest.param((3, 5), (5, 5), [(3, 5)], id="an empty one changes nothing"),
])  # fmt: skip
def test_add(first, second, pairs):
    assert Ranges([first, second]).pairs() == pairs
