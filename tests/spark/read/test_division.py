"""How limits and ranges are divided, for any backlog."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.model import PartitionId
from partq.core.readers.partition_order import PartitionOrder
from partq.errors import BadRequestError
from partq.spark.read.division import divide, share_out
from partq.spark.read.offsets import Range

partitions = st.builds(PartitionId, st.integers(1, 3), st.integers(0, 12))
backlogs = st.dictionaries(partitions, st.integers(0, 10**12) | st.integers(0, 5), max_size=12)


def ranges_of(backlog):
    return [
        Range(partition, start=7, stop=7 + size, start_epoch=3, stop_epoch=9, most_epoch=9)
        for partition, size in sorted(backlog.items())
    ]


ranges = backlogs.map(ranges_of)


@given(st.integers(0, 10**13) | st.integers(0, 20), backlogs)
def test_a_limit_is_used_up_and_never_passed(limit, backlog):
    shares = share_out(limit, backlog)
    assert shares.keys() == backlog.keys()
    assert sum(shares.values()) == min(limit, sum(backlog.values()))
    assert all(0 <= shares[each] <= backlog[each] for each in backlog)


@given(st.integers(0, 10**12) | st.integers(0, 20), backlogs)
def test_each_partition_that_may_be_read_gets_its_part_of_a_limit(limit, backlog):
    shares = share_out(limit, backlog)
    taken, total = sum(shares.values()), sum(backlog.values())
    for each in backlog:
        # In integers: backlog * taken / total, give or take less than one.
        assert abs(shares[each] * total - backlog[each] * taken) < max(total, 1)


@given(st.integers(1, 20), backlogs)
def test_a_partition_that_was_sealed_long_ago_holds_nobody_up(limit, backlog):
    """Its successors move on beside it, however much comes to it."""
    order = PartitionOrder(
        {
            each: {older: 0 for older in backlog if older.generation < 3}
            for each in backlog
            if each.generation == 3
        }
    )
    shares = share_out(limit, backlog, order, dict.fromkeys(backlog, 0))
    assert shares == share_out(limit, backlog)


@given(st.integers(0, 20), backlogs)
def test_nothing_is_read_of_a_partition_before_its_predecessors(limit, backlog):
    order = PartitionOrder(
        {
            each: {older: backlog[older] for older in backlog if older.generation < each.generation}
            for each in backlog
        }
    )
    shares = share_out(limit, backlog, order, dict.fromkeys(backlog, 0))
    waiting = [each.generation for each in backlog if shares[each] < backlog[each]]
    read = [each.generation for each in backlog if shares[each]]
    assert sum(shares.values()) == min(limit, sum(backlog.values()))
    assert not read or not waiting or max(read) <= min(waiting)


@given(backlogs)
def test_by_and_by_everything_is_read_however_small_the_limit(backlog):
    left = {each: size % 7 for each, size in backlog.items()}
    for _ in range(sum(left.values())):
        shares = share_out(1, left)
        left = {each: left[each] - shares[each] for each in left}
    assert not any(left.values())


@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(10**10, 10**12))
def test_ranges_are_divided_without_a_gap_and_without_an_overlap(given, at_least, most):
    pieces = divide(given, at_least=at_least, most_records=most)
    for whole in given:
        ours = [each for each in pieces if each.partition == whole.partition]
        assert all(each.size > 0 for each in ours)
        assert [each.start for each in ours] == [whole.start, *(each.stop for each in ours)][
            : len(ours)
        ]
        assert not ours if not whole.size else ours[-1].stop == whole.stop
        # What is known of a boundary holds where it is, and nowhere else.
        assert [each.start_epoch for each in ours] == ([3] + [0] * len(ours))[: len(ours)]
        assert [each.stop_epoch for each in ours] == [*[0] * (len(ours) - 1), 9][: len(ours)]
        assert {each.most_epoch for each in ours} <= {9}
    total = sum(each.size for each in given)
    assert len(pieces) >= min(at_least or 0, total)
    if most is not None:
        assert all(each.size <= most for each in pieces)
    if at_least is None and most is None:
        assert len(pieces) == sum(1 for each in given if each.size)


@pytest.mark.parametrize("how", [{"at_least": 10**9}, {"most_records": 1}])
def test_more_tasks_than_a_driver_can_hold_are_refused(how):
    with pytest.raises(BadRequestError, match=r"cut into .* tasks; expected at most 100000"):
        divide(ranges_of({PartitionId(1, 0): 10**12}), **how)
