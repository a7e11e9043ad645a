"""Values of ranges of offsets, compared with a value per offset."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from partq.pipeline.audit.judge.intervals import IntervalMap

CHANGES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 12), st.sampled_from([None, "a", "b"])),
    max_size=30,
)


@given(CHANGES)
def test_it_has_what_one_value_per_offset_would_have(changes):
    ranges, plain = IntervalMap(), {}
    for first, length, value in changes:
        ranges.set(first, first + length, value)
        plain |= dict.fromkeys(range(first, first + length), value)

    entries = list(ranges)
    assert {at: value for first, stop, value in entries for at in range(first, stop)} == {
        at: value for at, value in plain.items() if value is not None
    }
    assert all(ranges.get(at) == plain.get(at) for at in range(45))
    # Neighbours of one value are one entry.
    assert all(one[1] < two[0] or one[2] != two[2] for one, two in pairwise(entries))
    assert all(first < stop for first, stop, _ in entries)


@given(CHANGES, st.integers(0, 30), st.integers(1, 12))
def test_parts_cover_all_that_was_asked_for(changes, first, length):
    ranges = IntervalMap()
    for start, size, value in changes:
        ranges.set(start, start + size, value)
    parts = ranges.parts(first, first + length)

    assert [parts[0][0], parts[-1][1]] == [first, first + length]
    assert all(one[1] == two[0] for one, two in pairwise(parts))
    assert [ranges.get(at) for at in range(first, first + length)] == [
        value for start, stop, value in parts for at in range(start, stop)
    ]
