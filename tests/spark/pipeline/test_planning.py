"""What an archive takes next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq import PartitionId
from partq.errors import DataLossError, RolledBackError
from partq.spark.pipeline.manifest import Position
from partq.spark.pipeline.planning import Extent, Span, plan

A, B, NEXT = PartitionId(1, 0), PartitionId(1, 1), PartitionId(2, 0)


def test_all_that_is_new_is_taken():
    extents = {A: Extent(0, 10), B: Extent(5, 5), NEXT: Extent(3, 4)}
    spans = plan({"1.0": Position(4, 7)}, extents, most=100, skips_lost=False)
    assert spans == {A: Span(Position(4, 7), 10), NEXT: Span(Position(3), 4)}


def test_a_later_generation_waits_for_the_earlier_one():
    extents = {A: Extent(0, 10), B: Extent(0, 20), NEXT: Extent(0, 5)}
    spans = plan({}, extents, most=15, skips_lost=False)
    assert spans == {A: Span(Position(0), 5), B: Span(Position(0), 10)}


def test_what_is_lost_is_refused_or_skipped():
    extents = {A: Extent(5, 10), B: Extent(7, 7)}
    positions = {"1.0": Position(2, 1), "1.1": Position(3, 1)}
    with pytest.raises(DataLossError, match="stored from 5 on only"):
        plan(positions, extents, most=100, skips_lost=False)
    assert plan(positions, extents, most=100, skips_lost=True) == {
        A: Span(Position(5), 10, lost_from=2),
        B: Span(Position(7), 7, lost_from=3),
    }


def test_an_archive_that_has_more_than_the_queue_is_refused():
    with pytest.raises(RolledBackError, match="the store has lost what the archive holds"):
        plan({"1.0": Position(11)}, {A: Extent(0, 10)}, most=100, skips_lost=True)


extents = st.dictionaries(
    st.builds(PartitionId, st.integers(1, 3), st.integers(0, 4)),
    st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda t: Extent(t[0], t[0] + t[1])),
    max_size=8,
)


@given(extents=extents, most=st.integers(1, 40))
def test_steps_take_everything_once_and_in_the_order_of_generations(extents, most):
    positions, taken = {}, []
    while spans := plan(positions, extents, most=most, skips_lost=False):
        assert 0 < sum(span.size for span in spans.values()) <= most
        for partition, span in sorted(spans.items()):
            taken += [(partition, offset) for offset in range(span.start.offset, span.stop)]
            positions[str(partition)] = Position(span.stop)
    assert sorted(taken) == [
        (partition, offset)
        for partition, extent in sorted(extents.items())
        for offset in range(extent.first, extent.end)
    ]
    generations = [partition.generation for partition, _ in taken]
    assert generations == sorted(generations)
