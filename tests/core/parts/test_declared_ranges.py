"""Ranges that members declare, by themselves and beside those of others."""

import pytest

from partq.core.layout import Layout
from partq.core.parts.declared_ranges import bounds_of, inside_part, overlap, problem_of


def bounds(partitions, parts):
    layout = Layout.first(partitions)
    return bounds_of({each: layout.first_slots(each) for each in layout.partitions()}, parts)


@pytest.mark.parametrize(
    ("ranges", "named"),
    [
        ([(0, 10), (10, 20)], ""),
        ([(5, 5)], "got the range 5 to 5"),
        ([(-1, 5)], "got the range -1 to 5"),
        ([(0, 65_537)], "0 to 65536"),
        ([(0, 10), (9, 20)], "from 9 on twice"),
        ([(0, 1)] * 1_025, "got 1025 ranges, expected at most 1024"),
    ],
)
def test_ranges_that_cannot_be_meant_are_named(ranges, named):
    assert named in problem_of(ranges)
    assert bool(problem_of(ranges)) == bool(named)


def test_ranges_are_of_whole_parts():
    assert bounds(2, 4) == list(range(0, 65_537, 8_192))
    assert inside_part([(8_192, 65_536)], bounds(2, 4)) == ""
    told = inside_part([(0, 10_000)], bounds(2, 4))
    assert "got 10000" in told
    assert "8192 and 16384" in told


def test_twice_as_many_partitions_keep_all_bounds():
    assert set(bounds(2, 4)) <= set(bounds(4, 4))


def test_an_overlap_names_the_other_member_and_the_slots():
    others = [("b", [(0, 10)]), ("c", [(20, 30)])]
    assert overlap([(10, 20)], others) is None
    assert overlap([(5, 25)], others) == ("b", 5, 10)
