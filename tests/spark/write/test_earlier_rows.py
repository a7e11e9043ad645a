"""Rows that were stored before the partition count was changed, in the attempts behind it."""

import numpy as np

from partq.core.model import PartitionId
from partq.core.numbering.fixed_series import FixedSeries, StoredSeries
from partq.spark.write.earlier_rows import EarlierRows


def series(name, layout, *slots):
    return FixedSeries(PartitionId.parse(name), layout, tuple(range(s, s + 1) for s in slots))


def find(rows, *slots):
    found = rows.find(np.array(slots, np.uint16))
    return None if found is None else found.tolist()


def test_the_first_rows_of_its_slots_are_those_of_a_series():
    rows = EarlierRows([StoredSeries(series("1.0", 1, 3, 4), 3)])
    assert find(rows, 3, 9, 4) == [True, False, True]
    assert rows.missing() == (series("1.0", 1, 3, 4), 3, 2)
    assert find(rows, 9, 3, 4) == [False, True, False]
    assert find(rows, 3, 4) is None
    assert (rows.missing(), rows.count) == (None, 3)


def test_a_later_series_has_the_rows_that_the_earlier_one_has_not():
    earlier, later = series("1.0", 1, 3, 4), series("1.0", 2, 3)
    rows = EarlierRows([StoredSeries(earlier, 2), StoredSeries(later, 1)])
    # Two of both slots were stored first; then one of slot 3, behind these.
    assert find(rows, 3, 4, 4, 3, 3) == [True, True, False, True, False]


def test_without_such_series_nothing_is_looked_at():
    assert find(EarlierRows([]), 3, 4) is None
