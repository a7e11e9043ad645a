"""The lag of a group in a partition."""

import pytest

from partq.core.cursor.lag import lag_of


@pytest.mark.parametrize(
    ("end", "cursor", "acked", "lag"),
    [
        pytest.param(0, 0, [], 0, id="nothing was stored"),
        pytest.param(10, 4, [], 6, id="all above the cursor"),
        pytest.param(10, 4, [(5, 7), (9, 10)], 3, id="less what is acknowledged above it"),
        pytest.param(10, 12, [], 0, id="the cursor was read after the end: never below 0"),
        pytest.param(10, 4, [(5, 7), (9, 12)], 3, id="an ack beyond the end that was read"),
    ],
)
def test_lag(end, cursor, acked, lag):
    assert lag_of(end, cursor, acked) == lag
