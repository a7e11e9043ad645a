"""Offsets of deliveries, and as ranges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.client.consume.offsets import (
    delivered_offsets,
    join_ranges,
    ranges_of,
    window_size,
)
from partq.wire import frames


def deliver(start, stop, **fields):
    return frames.Deliver(1, 0, 5, 9, 0, 5, 0, start, start, stop, **fields)


@pytest.mark.parametrize(
    ("ranges", "joined"),
    [
        ([], []),
        ([(1, 2)], [(1, 2)]),
        ([(3, 4), (1, 2), (2, 3)], [(1, 4)]),
        ([(1, 5), (2, 3), (7, 8)], [(1, 5), (7, 8)]),
    ],
)
def test_ranges_are_joined(ranges, joined):
    assert join_ranges(ranges) == joined


@given(st.sets(st.integers(0, 40)).map(sorted))
def test_ascending_offsets_are_the_fewest_ranges(offsets):
    ranges = ranges_of(offsets)
    assert [offset for start, stop in ranges for offset in range(start, stop)] == offsets
    assert ranges == join_ranges([(offset, offset + 1) for offset in offsets])


@given(st.integers(0, 50), st.lists(st.booleans(), min_size=1, max_size=40))
def test_a_mask_names_the_messages_of_a_window(start, flags):
    """The first message of each byte has its lowest bit; what is left out of it is not meant."""
    mask = bytearray((len(flags) + 7) // 8)
    for place, is_mine in enumerate(flags):
        mask[place // 8] |= is_mine << place % 8
    frame = deliver(start, start + len(flags), mask=bytes(mask))
    offsets = [start + place for place, is_mine in enumerate(flags) if is_mine]
    assert delivered_offsets(frame) == offsets
    assert window_size(frame) == len(offsets)
    shorter = deliver(start, start + len(flags), mask=bytes(mask).rstrip(b"\x00") or b"\x00")
    assert delivered_offsets(shorter) == offsets


def test_bits_behind_a_window_count_for_nothing():
    assert delivered_offsets(deliver(7, 10, mask=b"\xff\xff")) == [7, 8, 9]


def test_a_window_without_a_mask_has_all_but_what_it_skips():
    assert delivered_offsets(deliver(7, 10)) == range(7, 10)
    frame = deliver(7, 12, skip=[(8, 10)])
    assert delivered_offsets(frame) == [7, 10, 11]
    assert window_size(frame) == 3
