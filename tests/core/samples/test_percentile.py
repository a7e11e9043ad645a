"""Percentiles are values that were measured."""

import pytest

from partq.core.samples.percentile import percentile


@pytest.mark.parametrize(("values", "percent", "expected"), [
    pytest.param([], 99, None, id="none"),
    pytest.param([3.0], 99, 3.0, id="one"),
    pytest.param([4.0, 1.0, 3.0, 2.0], 50, 2.0, id="the lower middle of an even count"),
    pytest.param(list(map(float, range(1, 101))), 99, 99.0, id="of a hundred"),
])  # fmt: skip
def test_percentile(values, percent, expected):
    assert percentile(values, percent) == expected
