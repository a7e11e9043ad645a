"""Numbers of messages: series per producer and key, runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.producer_series import check_producer_id, runs, series_name, series_of_layout
from partq.errors import BadRequestError


def may_be_named(name):
    try:
        check_producer_id(name, "producer")
    except BadRequestError:
        return False
    return True


NAMES = st.text(max_size=10).filter(may_be_named)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@given(NAMES, KEYS, NAMES, KEYS)
def test_a_series_is_of_one_producer_and_one_key(producer, key, other, another):
    same = (producer, key) == (other, another)
    assert (series_name(producer, key) == series_name(other, another)) == same


@given(NAMES, KEYS)
def test_a_series_is_never_named_like_a_producer(producer, key):
    assert not may_be_named(series_name(producer, key))


@given(NAMES, st.integers(2, 10**15))
def test_a_series_after_a_change_of_the_count_is_never_named_like_a_producer(producer, layout):
    assert not may_be_named(series_of_layout(producer, layout))
    assert may_be_named("team@home")


def test_the_names_of_series_never_change():
    """They are in the store: another name would take a repeat for something new."""
    assert series_name("p", "customer-7") == "p\x1f36afa9b6e693c6dcd39e25e1e25301ee"


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        pytest.param([4], [[4]], id="one"),
        pytest.param([4, 5, 6], [[4, 5, 6]], id="each follows the one before"),
        pytest.param([4, 6, 7], [[4], [6, 7]], id="a gap"),
        pytest.param([4, 5, 5, 6, 4], [[4, 5], [5, 6], [4]], id="repeats"),
    ],
)
def test_runs_are_cut_where_a_number_does_not_follow(numbers, expected):
    assert [[numbers[at] for at in run] for run in runs(numbers)] == expected
