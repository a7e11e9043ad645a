"""Locks of sessions when something else comes while they begin or end."""

import asyncio

import pytest

from partq.broker.partition.books import remade
from partq.core.cursor.redelivery_rules import NackOrder, RedeliveryRules
from partq.core.model import Cause
from partq.testing import eventually
from partq.wire import frames
from tests.broker.delivery.test_groups import make_again
from tests.broker.sessions.locks import LOCK_S, A, B, RefusedError, Sessions


@pytest.fixture
async def scene(running):
    return await Sessions.open(running)


async def cut(scene, peer):
    peer.cut()
    await eventually(lambda: not scene.consumed.holders(), "the flow is lost")


class HeldWrites:
    """Writes of locks that go on when the test says so."""

    def __init__(self, scene, monkeypatch):
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        self._write = scene.acceptor._records.lock
        monkeypatch.setattr(scene.acceptor._records, "lock", self._hold)

    async def _hold(self, *args, **names):
        self.asked.set()
        await self.go_on.wait()
        return await self._write(*args, **names)


async def test_a_connection_cut_after_a_close_keeps_the_lock_for_what_has_begun(scene):
    await scene.publish(A, A)
    m, n = await scene.join("m"), await scene.join("n", "j")
    held = await m.accept()
    await m.messages(held, 2)
    await m.begin_close(held, (0, 1))
    await eventually(lambda: scene.consumed.holders()[0].is_closing, "the close has come")
    await cut(scene, m)
    with pytest.raises(RefusedError, match="session_locked"):
        await n.accept(A)
    m = await scene.join("m")
    assert (await m.accept(A, lock=held.lock)).lock == held.lock


async def test_a_second_cut_while_the_holder_comes_back_ends_no_lock(scene, monkeypatch):
    await scene.publish(A)
    m, n = await scene.join("m"), await scene.join("n", "j")
    held = await m.accept()
    await cut(scene, m)
    writes = HeldWrites(scene, monkeypatch)
    m = await scene.join("m")
    flow = next(f for f in scene.running.broker.flow_registry.flows if f.member == "m")
    await m.begin_accept(A, lock=held.lock)
    await writes.asked.wait()
    m.cut()
    await eventually(lambda: flow.is_closed, "the second flow is lost")
    writes.go_on.set()
    await eventually(lambda: not scene.shares._beginning, "the lock was written")
    with pytest.raises(RefusedError, match="session_locked"):
        await n.accept(A)
    m = await scene.join("m")
    assert (await m.accept(A, lock=held.lock)).lock == held.lock


async def test_a_lock_released_while_its_holder_comes_back_stays_released(scene, monkeypatch):
    await scene.publish(A)
    m, n = await scene.join("m"), await scene.join("n", "j")
    held = await m.accept()
    await cut(scene, m)
    writes = HeldWrites(scene, monkeypatch)
    m = await scene.join("m")
    await m.begin_accept(A, lock=held.lock)
    await writes.asked.wait()
    assert scene.shares.release(A)
    writes.go_on.set()
    with pytest.raises(RefusedError, match="session_lost"):
        await m.accepted()
    assert (await n.accept(A, wait_ms=60_000)).lock > held.lock


async def test_a_renewal_that_a_release_overtakes_locks_nothing_again(scene, monkeypatch):
    await scene.publish(A)
    m = await scene.join("m")
    held = await m.accept()
    writes = HeldWrites(scene, monkeypatch)
    await m.send(frames.RenewSession(99, *m.token(held)))
    await writes.asked.wait()
    assert scene.shares.release(A)

    async def is_ended():
        return (await scene.record()).locks == {}

    await eventually(is_ended, "the record has no lock")
    writes.go_on.set()
    assert (await m.pick((frames.SessionRefused,))).code == "session_lost"
    assert await is_ended()


async def test_locks_outlive_a_book_of_another_order(scene):
    await scene.publish(A)
    m, n = await scene.join("m"), await scene.join("n", "j")
    held = await m.accept()
    consumed = scene.consumed
    consumed.unbind(Cause.FLOW_LOST)
    for lock_s in (0.0, LOCK_S):
        rules = RedeliveryRules(order=NackOrder.KEY, lock_s=lock_s, parts=1)
        consumed.change_book(remade(consumed.book, rules))
    with pytest.raises(RefusedError, match="session_locked"):
        await n.accept(A)
    lost, _ = await m.find(frames.SessionLost)
    assert lost.epoch == held.epoch
    assert (await m.accept(A, lock=held.lock)).lock == held.lock


async def test_a_session_locked_during_a_reset_has_the_book_that_comes(scene):
    await scene.publish(A)
    m = await scene.join("m")
    async with scene.consumed.lock:
        await m.begin_accept(A)
        await eventually(lambda: scene.shares.locks.find(A), "the lock is written")
        scene.consumed.begin_at(0, [])
    held = await m.accepted()
    await m.messages(held, 1)
    assert await m.ack_offsets(held, 0) == ""
    assert scene.book.cursor == 1


async def test_a_close_ends_once_what_has_begun_is_done_otherwise(scene):
    await scene.publish(A)
    m, n = await scene.join("m"), await scene.join("n", "j")
    held = await m.accept()
    await m.messages(held, 1)
    await m.begin_close(held, (0, 1))
    await eventually(lambda: scene.consumed.holders()[0].is_closing, "the close has come")
    scene.consumed.discard([(0, 1)])
    await m.closed()
    assert (await n.accept(A)).lock > held.lock


async def test_a_release_while_a_reset_is_under_way_ends_the_accept(scene):
    await scene.publish(A)
    m = await scene.join("m")
    async with scene.consumed.lock:
        await m.begin_accept(A)
        await eventually(lambda: scene.shares.locks.find(A), "the lock is written")
        assert scene.shares.release(A)
    with pytest.raises(RefusedError, match="session_lost"):
        await m.accepted()
    assert (await m.accept(A)).session == A


async def test_a_first_lock_whose_flow_has_ended_meanwhile_ends_at_once(scene, monkeypatch):
    """Its client was never told of it."""
    await scene.publish(A)
    m, n = await scene.join("m"), await scene.join("n", "j")
    writes = HeldWrites(scene, monkeypatch)
    flow = next(f for f in scene.running.broker.flow_registry.flows if f.member == "m")
    await m.begin_accept(A)
    await writes.asked.wait()
    m.cut()
    await eventually(lambda: flow.is_closed, "the flow is lost")
    writes.go_on.set()
    assert (await n.accept(A, wait_ms=60_000)).session == A


async def test_who_has_a_session_of_a_group_that_is_created_again_hears_that_it_has_none(scene):
    """Else it would work on, while another member has the session of the new group."""
    await scene.publish(A)
    m, n = await scene.join(), await scene.join("n")
    held = await m.accept(A)
    await m.messages(held, 1)
    before = scene.consumed
    await make_again(scene.running)
    lost, _ = await m.find(frames.SessionLost)
    assert (lost.session, lost.epoch, lost.cause) == (A, held.epoch, Cause.NONE)
    groups = scene.running.broker.owned[before.partition].groups
    await eventually(lambda: groups.get("workers") not in (None, before), "the new group is served")
    await eventually(lambda: scene.has_sessions, "its type is known")
    with pytest.raises(RefusedError, match="session_lost"):
        await m.accept(A, lock=held.lock)
    assert await n.messages(await n.accept(wait_ms=60_000), 1) == {0: f"{A}/0"}


async def test_nobody_has_a_session_twice(scene):
    await scene.publish(A)
    m = await scene.join()
    held = await m.accept()
    for lock in (0, held.lock):
        with pytest.raises(RefusedError, match="session_locked"):
            await m.accept(A, lock=lock)


@pytest.mark.parametrize(
    ("why", "code"), [({"gate": "closed"}, "no_session"), ({"is_resetting": True}, "unavailable")]
)
async def test_no_session_is_given_out_behind_a_gate_or_during_a_reset(scene, why, code):
    await scene.publish(A)
    m = await scene.join()
    before = {name: getattr(scene.consumed, name) for name in why}
    for name, value in why.items():
        setattr(scene.consumed, name, value)
    with pytest.raises(RefusedError, match=code):
        await m.accept(A)
    with pytest.raises(RefusedError, match="no_session"):
        await m.accept()
    for name, value in before.items():
        setattr(scene.consumed, name, value)
    assert (await m.accept()).session == A


async def test_the_accepts_that_wait_of_a_flow_are_bounded(scene, monkeypatch):
    monkeypatch.setattr("partq.broker.sessions.session_acceptor.MAX_WAITING_OF_FLOW", 1)
    m, n = await scene.join("m"), await scene.join("n", "j")
    await m.begin_accept(wait_ms=60_000)
    await eventually(lambda: scene.acceptor.waiting("workers") == 1, "m waits")
    with pytest.raises(RefusedError, match="overloaded"):
        await m.accept(A)
    assert (await n.accept(A)).session == A, "another flow may"


async def test_locks_that_the_store_has_lost_are_bounded_as_all_are(scene, monkeypatch, clock):
    monkeypatch.setattr("partq.broker.sessions.session_shares.MAX_LOCKS", 1)
    scene.shares._held_until = clock() + LOCK_S
    m = await scene.join()
    assert (await m.accept(A, lock=5)).lock == 5
    with pytest.raises(RefusedError, match="session_lost"):
        await m.accept(B, lock=6)
