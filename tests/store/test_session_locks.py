"""Locks of sessions in Redis: drawn, renewed, ended, each under the broker epoch."""

import pytest

from partq.errors import FencedError, SupersededError, UnknownGroupError
from partq.store.session_locks import LockRecords
from tests.store.record import GROUP, write

HOLDER = {"member": "m", "incarnation": 'i with "blanks"', "lock_ms": 60_000}


@pytest.fixture
def locks(store, keys):
    return LockRecords(store, keys)


@pytest.fixture
def by(partition, broker_epoch):
    """The arguments of a write for a session."""

    def by(session="s d", **changes):
        names = {**write(), "broker_epoch": broker_epoch, **changes}
        return {"partition": partition, "group": GROUP, "write": names, "session": session}

    return by


async def test_a_lock_is_drawn_and_read_with_the_record(locks, by, partitions, partition):
    number = await locks.lock(**by(), **HOLDER)
    stored = await partitions.read_cursor(partition, GROUP)
    lock = stored.locks["s d"]
    assert (lock.member, lock.incarnation, lock.number) == ("m", HOLDER["incarnation"], number)
    assert stored.locks_run == locks.run_of(partition) != ""
    later = await locks.lock(**by("other"), **HOLDER)
    assert later > number


async def test_a_renewal_keeps_the_number_and_lasts_for_longer(locks, by, partitions, partition):
    number = await locks.lock(**by(), **{**HOLDER, "lock_ms": 1000})
    before = (await partitions.read_cursor(partition, GROUP)).locks["s d"]
    assert await locks.lock(**by(), **HOLDER, number=number) == number
    after = (await partitions.read_cursor(partition, GROUP)).locks["s d"]
    assert after.until_ms > before.until_ms


async def test_a_repeat_draws_nothing(locks, by):
    call = by()
    number = await locks.lock(**call, **HOLDER)
    assert await locks.lock(**call, **HOLDER) == number


async def test_an_end_removes_the_lock_and_no_later_one(locks, by, partitions, partition):
    first = await locks.lock(**by(), **HOLDER)
    second = await locks.lock(**by(), **HOLDER)
    await locks.unlock(**by(), number=first)
    assert (await partitions.read_cursor(partition, GROUP)).locks["s d"].number == second
    await locks.unlock(**by(), number=second)
    assert (await partitions.read_cursor(partition, GROUP)).locks == {}
    assert await locks.lock(**by(), **HOLDER) > second


async def test_a_late_write_changes_nothing(locks, by, partitions, partition):
    late, unlock = by(), by()
    number = await locks.lock(**by(), **HOLDER)
    with pytest.raises(SupersededError):
        await locks.lock(**late, **{**HOLDER, "member": "n"})
    with pytest.raises(SupersededError):
        await locks.unlock(**unlock, number=number)
    assert (await partitions.read_cursor(partition, GROUP)).locks["s d"].member == "m"


async def test_another_broker_epoch_or_group_is_refused(locks, by, broker_epoch):
    with pytest.raises(FencedError):
        await locks.lock(**by(broker_epoch=broker_epoch + 1), **HOLDER)
    with pytest.raises(UnknownGroupError):
        await locks.lock(**by(born=7), **HOLDER)
    with pytest.raises(FencedError):
        await locks.unlock(**by(broker_epoch=broker_epoch + 1), number=1)
