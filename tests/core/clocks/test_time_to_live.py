"""The time to live of a batch: what producers may say, and when it is over."""

import pytest

from partq.core.clocks.time_to_live import MAX_TTL_MS, MAX_TTL_S, check_ttl_ms, is_over, to_ttl_ms
from partq.errors import BadRequestError


@pytest.mark.parametrize(
    ("ttl_s", "ttl_ms"),
    [
        pytest.param(None, 0, id="none"),
        pytest.param(0.001, 1, id="the shortest"),
        pytest.param(1.2345, 1234, id="rounded"),
        pytest.param(60, 60_000, id="a whole number"),
        pytest.param(MAX_TTL_S, MAX_TTL_MS, id="the longest"),
    ],
)
def test_seconds_become_milliseconds(ttl_s, ttl_ms):
    assert to_ttl_ms(ttl_s) == ttl_ms


@pytest.mark.parametrize(
    "ttl_s", [0, 0.0009, -1, MAX_TTL_S + 0.001, float("nan"), float("inf"), True, "60"]
)
def test_other_times_are_refused_by_their_value(ttl_s):
    with pytest.raises(BadRequestError, match="ttl_s") as caught:
        to_ttl_ms(ttl_s)
    assert repr(ttl_s) in caught.value.message


@pytest.mark.parametrize("ttl_ms", [-1, MAX_TTL_MS + 1])
def test_what_a_client_says_has_bounds(ttl_ms):
    check_ttl_ms(0)
    check_ttl_ms(MAX_TTL_MS)
    with pytest.raises(BadRequestError, match=str(ttl_ms)):
        check_ttl_ms(ttl_ms)


@pytest.mark.parametrize(
    ("ttl_ms", "now_ms", "over"),
    [
        pytest.param(100, 1100.0, False, id="to the last moment"),
        pytest.param(100, 1100.5, True, id="over"),
        pytest.param(100, 5.0, False, id="a clock that was set back"),
        pytest.param(0, 10.0**15, False, id="no time to live"),
    ],
)
def test_when_it_is_over(ttl_ms, now_ms, over):
    assert is_over(1000, ttl_ms, now_ms) is over
