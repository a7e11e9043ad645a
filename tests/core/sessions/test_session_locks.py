"""Locks as a broker reads them from the record, whatever clocks say."""

import pytest

from partq.core.model import MemberId
from partq.core.sessions.session_locks import MAX_LOCK_S, StoredLock, restored_locks


@pytest.mark.parametrize(
    ("until_ms", "store_ms", "left_s"),
    [
        pytest.param(70_000, 10_000, 60.0, id="as it was"),
        pytest.param(4_000_000, 10_000, MAX_LOCK_S, id="the clock was set back"),
        pytest.param(70_000, 69_999, 0.001, id="almost over"),
        pytest.param(70_000, 70_000, None, id="over"),
        pytest.param(70_000, 80_000, None, id="long over"),
        pytest.param(70_000, None, MAX_LOCK_S, id="no clock is known"),
    ],
)
def test_a_lock_lasts_for_what_is_left_of_it(until_ms, store_ms, left_s):
    stored = {"s": StoredLock(MemberId("m"), "i", 7, until_ms)}
    found = [
        (lock.session, lock.member, lock.incarnation, lock.number, round(lock.until - 100.0, 3))
        for lock in restored_locks(stored, store_ms=store_ms, now=100.0)
    ]
    assert found == ([("s", "m", "i", 7, left_s)] if left_s is not None else [])
