"""What brokers may store between two sums of a queue with a quota."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.quota_share import QuotaShare, StorageGrant


def store(share, size):
    """Store one batch if there is room; return its bytes, or 0."""
    grant = share.take(size_bytes=size, first_bytes=size)
    stored = size if grant.room_bytes >= size else 0
    share.account(grant, stored)
    return stored


def observed(max_bytes, used_bytes, brokers=1):
    share = QuotaShare()
    share.observe(max_bytes=max_bytes, used_bytes=used_bytes, brokers=brokers)
    return share


def test_before_the_first_sum_nothing_is_stored():
    assert QuotaShare().take(size_bytes=1, first_bytes=1).room_bytes == 0


@pytest.mark.parametrize(("used", "brokers", "sizes", "stored"), [
    pytest.param(0, 1, [40, 60, 1], [40, 60, 0], id="to the byte"),
    pytest.param(0, 4, [20, 5, 1], [20, 5, 0], id="an even share of what is left"),
    pytest.param(0, 4, [30, 1], [30, 0], id="one batch above the share, if it fits the rest"),
    pytest.param(0, 4, [1, 30], [1, 0], id="not once something was stored"),
    pytest.param(80, 2, [21, 10, 1], [0, 10, 0], id="a batch that does not fit is no end of it"),
    pytest.param(130, 2, [1], [0], id="more is there than may be: the quota was lowered"),
])  # fmt: skip
def test_room(used, brokers, sizes, stored):
    share = observed(100, used, brokers)
    assert [store(share, size) for size in sizes] == stored


@pytest.mark.parametrize(("refused", "used_then", "is_used_up"), [
    pytest.param([], 99, False, id="a byte is left, and nobody wanted more"),
    pytest.param([], 100, True, id="nothing is left"),
    pytest.param([], 130, True, id="the quota was lowered"),
    pytest.param([30], 80, True, id="what was refused does not fit yet"),
    pytest.param([30], 70, False, id="it fits"),
    pytest.param([60, 30, 40], 70, False, id="the smallest of them fits"),
])  # fmt: skip
def test_a_quota_is_used_up_while_it_has_no_room_for_what_was_refused(
    refused, used_then, is_used_up
):
    share = observed(100, 95)
    assert [store(share, size) for size in refused] == [0] * len(refused)
    for _ in range(2):  # it stays so while nothing changes
        share.observe(max_bytes=100, used_bytes=used_then, brokers=2)
        assert share.is_used_up is is_used_up
    share.observe(max_bytes=100, used_bytes=0, brokers=2)
    assert not share.is_used_up


def test_what_is_stored_and_not_in_the_sum_yet_is_not_taken_for_a_quota_that_is_used_up():
    share = observed(100, 0)
    store(share, 60)
    share.observe(max_bytes=100, used_bytes=60, brokers=1)
    assert store(share, 10) == 0, "the 60 are taken off once more"
    share.observe(max_bytes=100, used_bytes=60, brokers=1)
    assert not share.is_used_up
    assert store(share, 10) == 10


def test_what_is_under_way_is_not_given_twice():
    share = observed(100, 0)
    first = share.take(size_bytes=70, first_bytes=70)
    second = share.take(size_bytes=70, first_bytes=70)
    assert (first, second.room_bytes) == (StorageGrant(70 + 30, 70), 30)
    share.observe(max_bytes=100, used_bytes=0, brokers=1)  # a sum that knows nothing of it
    assert share.take(size_bytes=1, first_bytes=1).room_bytes == 0
    share.account(first, 0)
    share.account(second, 0)
    assert share.take(size_bytes=100, first_bytes=100).room_bytes == 100


def test_what_the_next_sum_may_not_know_is_taken_off_once():
    share = observed(100, 0)
    store(share, 60)
    share.observe(max_bytes=100, used_bytes=0, brokers=1)
    assert store(share, 41) == 0
    share.observe(max_bytes=100, used_bytes=60, brokers=1)
    assert store(share, 40) == 40


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["sum", "store", "free"]), st.integers(1, 60)),
    max_size=60,
)


@given(steps=STEPS, brokers=st.integers(1, 3))
def test_the_quota_is_exceeded_by_less_than_was_left_at_the_oldest_sum_in_use(steps, brokers):
    """Whoever stores, frees and reads when it likes; one broker alone never exceeds it."""
    limit, used, clock = 100, 0, count()
    sums = [(next(clock), 0)] * brokers
    shares = [observed(limit, 0, brokers) for _ in range(brokers)]
    for who, action, size in steps:
        broker = who % brokers
        if action == "sum":
            sums[broker] = (next(clock), used)
            shares[broker].observe(max_bytes=limit, used_bytes=used, brokers=brokers)
        elif action == "store":
            used += store(shares[broker], size)
            left = max(limit - known for _, known in sums)
            assert used <= limit + (left if brokers > 1 else 0)
        else:
            used = max(0, used - size)


def test_room_is_scarce_before_it_is_used_up():
    share = QuotaShare()
    for used_bytes, is_scarce, is_used_up in [
        (79, False, False),
        (80, True, False),
        (100, True, True),
    ]:
        share.observe(max_bytes=100, used_bytes=used_bytes, brokers=2)
        assert (share.is_scarce, share.is_used_up) == (is_scarce, is_used_up)
