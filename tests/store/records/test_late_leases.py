"""Renewals of a lease that Redis carries out long after their process gave them up."""

import pytest

from partq.errors import FencedError, StoreUnavailableError
from partq.store.records.leases import Leases
from tests.broker.delivery.test_late_writes import Late

OLD = ("b-0", "old", 3.0, "http://b-0")
NEW = ("b-0", "new", 3.0, "http://b-0")


@pytest.fixture
async def given_up(store, keys):
    """A process whose first renewal had no answer, with the packets that are still on their way."""
    late = Late(store, "renew_lease")
    old = Leases(store, keys)
    with pytest.raises(StoreUnavailableError):
        await old.renew(*OLD)
    return old, late


async def test_the_first_renewal_of_a_dead_process_ends_no_newer_one(store, keys, given_up):
    _, late = given_up
    new = Leases(store, keys)
    await new.renew(*NEW)
    await late.arrive()
    await new.renew(*NEW)
    assert (await new.read()).leases["b-0"].incarnation == "new"


async def test_nor_the_process_itself(store, keys, given_up):
    old, late = given_up
    await old.renew(*OLD)
    await late.arrive()
    await old.renew(*OLD)
    assert (await old.read()).leases["b-0"].incarnation == "old"


async def test_a_first_renewal_that_went_through_unheard_is_gone_on_with(store, keys, given_up):
    old, late = given_up
    await late.arrive()
    counter = await old.renew(*OLD)
    assert await old.renew(*OLD) > counter
    await Leases(store, keys).renew(*NEW)
    with pytest.raises(FencedError):
        await old.renew(*OLD)


async def test_who_was_overtaken_at_its_first_renewal_takes_over_from_that_one(store, keys):
    first, second = Leases(store, keys), Leases(store, keys)
    late = Late(store, "renew_lease")
    with pytest.raises(StoreUnavailableError):
        await first.renew(*OLD)
    await second.renew(*NEW)
    await late.arrive()
    await first.renew(*OLD)
    with pytest.raises(FencedError):
        await second.renew(*NEW)


async def test_a_new_process_ends_a_life_that_the_clock_of_redis_is_behind(store, keys):
    """The clock was set back since the old life began; the old process is fenced all the same."""
    high = 2**53 - 10
    old, new = Leases(store, keys), Leases(store, keys)
    await store.run("write_fields", [keys.brokers()], [1, "life:b-0", high - 1])
    await old.renew(*OLD)
    assert await store.read("HGET", keys.brokers(), "life:b-0") == str(high).encode()
    await new.renew(*NEW)
    with pytest.raises(FencedError):
        await old.renew(*OLD)
