"""What an archive takes next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq import PartitionId
from partq.core.readers.partition_order import PartitionOrder
from partq.errors import ConflictError, DataLossError, RolledBackError
from partq.pipeline.manifest import ArchivePosition, ArchiveState, Predecessor
from partq.pipeline.planning import (
    LogExtent,
    Span,
    check_record_begins,
    lineage_of,
    order_of,
    plan,
    removed_extents,
)

A, B, NEXT = PartitionId(1, 0), PartitionId(1, 1), PartitionId(2, 0)


def test_all_that_is_new_is_taken():
    extents = {A: LogExtent(0, 10), B: LogExtent(5, 5), NEXT: LogExtent(3, 4)}
    spans = plan({"1.0": ArchivePosition(4, 7)}, extents, most=100, skips_lost=False)
    assert spans == {A: Span(ArchivePosition(4, 7), 10), NEXT: Span(ArchivePosition(3), 4)}


def grown(sealed_at):
    """Return extents after a change that moved slots of the first partition to a new one."""
    origin = Predecessor(((0, 100),), sealed_at)
    return {
        A: LogExtent(0, 10),
        B: LogExtent(0, 20),
        NEXT: LogExtent(0, 5, {A: origin}, has_all_predecessors=True),
    }


def test_a_partition_waits_for_the_seal_of_its_predecessor():
    extents = grown(sealed_at=6)
    order = order_of(extents)
    spans = plan({}, extents, most=15, skips_lost=False, order=order)
    assert spans == {A: Span(ArchivePosition(0), 5), B: Span(ArchivePosition(0), 10)}

    spans = plan({"1.0": ArchivePosition(6)}, extents, most=29, skips_lost=False, order=order)
    assert {each: span.stop for each, span in spans.items()} == {A: 10, B: 20, NEXT: 5}
    assert lineage_of(extents) == {"2.0": {"1.0": Predecessor(((0, 100),), 6)}}


def test_of_a_partition_nothing_is_taken_before_the_seal_is_known():
    extents = grown(sealed_at=None)
    spans = plan({}, extents, most=100, skips_lost=False, order=order_of(extents))
    assert spans.keys() == {A, B}
    assert lineage_of(extents) == {}


def test_a_partition_with_little_moves_on_beside_one_with_much():
    extents = {A: LogExtent(0, 1), B: LogExtent(0, 100)}
    spans = plan({}, extents, most=10, skips_lost=False)
    assert spans == {A: Span(ArchivePosition(0), 1), B: Span(ArchivePosition(0), 9)}


def test_what_is_lost_is_refused_or_skipped():
    extents = {A: LogExtent(5, 10), B: LogExtent(7, 7)}
    positions = {"1.0": ArchivePosition(2, 1), "1.1": ArchivePosition(3, 1)}
    with pytest.raises(DataLossError, match="stored from 5 on only"):
        plan(positions, extents, most=100, skips_lost=False)
    assert plan(positions, extents, most=100, skips_lost=True) == {
        A: Span(ArchivePosition(5), 10, lost_from=2),
        B: Span(ArchivePosition(7), 7, lost_from=3),
    }


def test_a_gap_with_nothing_behind_it_is_noted_in_the_last_step():
    extents, positions = {A: LogExtent(0, 10), B: LogExtent(7, 7)}, {"1.1": ArchivePosition(3, 1)}
    first = plan(positions, extents, most=5, skips_lost=True)
    assert first == {A: Span(ArchivePosition(0), 5)}
    positions["1.0"] = ArchivePosition(5)
    assert plan(positions, extents, most=5, skips_lost=True) == {
        A: Span(ArchivePosition(5), 10),
        B: Span(ArchivePosition(7), 7, lost_from=3),
    }


def test_an_archive_that_has_more_than_the_queue_is_refused():
    with pytest.raises(RolledBackError, match="the store has lost what the archive holds"):
        plan({"1.0": ArchivePosition(11)}, {A: LogExtent(0, 10)}, most=100, skips_lost=True)


extents = st.dictionaries(
    st.builds(PartitionId, st.integers(1, 3), st.integers(0, 4)),
    st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda t: LogExtent(t[0], t[0] + t[1])),
    max_size=8,
)


@given(extents=extents, most=st.integers(1, 40))
def test_steps_take_everything_once_and_in_the_order_that_is_asked_for(extents, most):
    stops = {each: extent.end for each, extent in extents.items()}
    order = PartitionOrder(
        {
            each: {older: stops[older] for older in extents if older.generation < each.generation}
            for each in extents
        }
    )
    positions, taken = {}, []
    while spans := plan(positions, extents, most=most, skips_lost=False, order=order):
        assert 0 < sum(span.size for span in spans.values()) <= most
        for partition, span in sorted(spans.items()):
            taken += [(partition, offset) for offset in range(span.start.offset, span.stop)]
            positions[str(partition)] = ArchivePosition(span.stop)
    assert sorted(taken) == [
        (partition, offset)
        for partition, extent in sorted(extents.items())
        for offset in range(extent.first, extent.end)
    ]
    generations = [partition.generation for partition, _ in taken]
    assert generations == sorted(generations)


def test_a_record_whose_first_groups_another_archive_has_is_not_begun():
    begun = {"1.0": ArchivePosition(0), "1.1": ArchivePosition(7)}
    check_record_begins({"1.1": ArchivePosition(7)}, begun)
    with pytest.raises(ConflictError, match=r"^partition 1\.1: another archive has .* group 6"):
        check_record_begins({}, begun)


def test_a_partition_that_was_removed_before_it_was_archived_is_missed():
    lineage = {
        "2.0": {"1.0": Predecessor(((0, 9),), 7), "1.1": Predecessor(((9, 12),), 4)},
        "3.0": {"1.0": Predecessor(((20, 30),), 9)},
    }
    positions = {"1.0": ArchivePosition(5), "1.1": ArchivePosition(6)}
    state = ArchiveState(positions={"messages": positions}, lineage=lineage)
    removed = removed_extents(state, {NEXT: LogExtent(0, 0)})
    assert removed == {A: LogExtent(9, 9), B: LogExtent(4, 6)}
    with pytest.raises(DataLossError, match=r"partition 1\.0: stored from 9 on only"):
        plan(positions, removed, most=10, skips_lost=False)
    skipped = plan(positions, removed, most=10, skips_lost=True)
    assert skipped == {A: Span(ArchivePosition(9), 9, lost_from=5)}
    assert removed_extents(state, {A: LogExtent(0, 9), B: LogExtent(0, 6)}) == {}
