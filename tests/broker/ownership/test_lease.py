"""The lease of a broker, on a clock that the test moves."""

import asyncio
import gc
import weakref
from functools import partial

import pytest

from partq.broker.api.ping_answers import PingAnswers
from partq.broker.ownership.lease import STUCK_LENGTHS, LeaseKeeper
from partq.errors import StoreUnavailableError
from partq.testing import eventually

TTL_S = 30.0
"""So long that nothing is renewed by itself during a test."""


def keeper_of(leases, *, clock, on_lapsed, ttl_s=TTL_S, on_stuck=lambda: None):
    return LeaseKeeper(
        leases, broker="b-0", incarnation="i", ttl_s=ttl_s, url="http://b-0", clock=clock,
        on_lapsed=on_lapsed, on_valid=lambda: None, on_stuck=on_stuck,
    )  # fmt: skip


async def test_who_may_have_been_thought_dead_looks_at_the_records_before_it_goes_on():
    now = 0.0
    takes_s = 0.0
    looked_at = []

    class Leases:
        async def renew(self, *_):
            nonlocal now, takes_s
            await asyncio.sleep(0)
            now, takes_s = now + takes_s, 0.0

    async def look():
        looked_at.append(now)

    keeper = keeper_of(Leases(), clock=lambda: now, on_lapsed=look)
    running = asyncio.create_task(keeper.run())
    await keeper.renewed(TTL_S)
    assert looked_at == [0.0]  # a new life
    now = 20.0
    await keeper.renewed(TTL_S)
    assert looked_at == [0.0]  # in time
    now, takes_s = 45.0, 10.0
    await keeper.renewed(TTL_S)
    assert looked_at == [0.0, 55.0]  # sent in time, and done when the lease was over
    assert keeper.is_valid
    now = 80.0
    await keeper.renewed(TTL_S)
    assert looked_at == [0.0, 55.0, 80.0]  # sent too late
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_who_has_gone_while_the_store_is_away_is_not_kept():
    class Leases:
        async def renew(self, *_):
            raise StoreUnavailableError("store: no answer")

    async def look():
        raise AssertionError("nothing was renewed")

    keeper = keeper_of(Leases(), clock=asyncio.get_running_loop().time, ttl_s=1.0, on_lapsed=look)
    told = []
    pings = PingAnswers(keeper)
    for nonce in range(3):
        pings.answer(lambda nonce=nonce: told.append(nonce))
    running = asyncio.create_task(keeper.run())
    with pytest.raises(StoreUnavailableError, match=r"b-0 was not renewed within 0\.3 s"):
        await keeper.renewed(within_s=0.3)
    gone = weakref.ref(pings)
    pings.close()
    del pings
    gc.collect()
    assert gone() is None
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert told == []


async def test_connections_are_given_up_once_for_each_three_lengths_without_a_renewal():
    now, tries, stuck = 0.0, 0, []

    class Leases:
        async def renew(self, *_):
            nonlocal tries
            tries += 1
            raise StoreUnavailableError("no answer")

    keeper = keeper_of(
        Leases(),
        clock=lambda: now,
        on_lapsed=asyncio.Event().wait,
        on_stuck=lambda: stuck.append(now),
    )
    running = asyncio.create_task(keeper.run())
    for _ in range(2):
        now += STUCK_LENGTHS * TTL_S
        wanted = tries + 4
        await eventually(lambda wanted=wanted: tries >= wanted, "it continues trying")
    assert stuck == [STUCK_LENGTHS * TTL_S, 2 * STUCK_LENGTHS * TTL_S]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("is_under_way", [False, True])
async def test_a_callback_that_is_forgotten_is_not_called(is_under_way):
    """Neither by the next renewal, nor by the one that was begun for it."""
    begun, done = asyncio.Event(), asyncio.Event()

    class Leases:
        async def renew(self, *_):
            begun.set()
            await done.wait()

    async def look():
        return

    keeper = keeper_of(Leases(), clock=lambda: 0.0, on_lapsed=look)
    told = []
    gone, stay = partial(told.append, "gone"), partial(told.append, "stays")
    for callback in (gone, stay, gone):
        keeper.after_renewal(callback)
    if not is_under_way:
        keeper.forget(gone)
    running = asyncio.create_task(keeper.run())
    await begun.wait()
    if is_under_way:
        keeper.forget(gone)
    done.set()
    await keeper.renewed(TTL_S)
    assert told == ["stays"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
