"""Locks of sessions outlive what gave them: brokers, resets, writes that the store has lost."""

import re

import pytest
from redis import Redis

from partq.core.model import Cause
from partq.testing import eventually
from partq.wire import frames
from tests.broker.ownership.test_failover import kill, owns
from tests.broker.sessions.locks import A, B, C, RefusedError, Sessions


@pytest.fixture
def lease_ttl_s():
    """Short, so that another broker soon takes the partitions of one that has died."""
    return 2.0


@pytest.fixture
async def scene(running):
    return await Sessions.open(running)


async def moved(scene, start_broker):
    """Another broker takes the partitions of one that has died."""
    other = await start_broker("orders-1")
    await kill(scene.running)
    await eventually(lambda: owns(other, 0), "the other broker has the partition")
    scene.running = other
    await eventually(lambda: scene.has_sessions, "it knows the type")


async def test_the_holder_comes_back_to_another_broker_and_nobody_else_gets_it(scene, start_broker):
    await scene.publish(A, A, B)
    m = await scene.join("m")
    held = await m.accept()
    await m.messages(held, 2)
    assert await m.ack_offsets(held, 0, state_key=A, state=b"one") == ""
    await moved(scene, start_broker)
    n, m = await scene.join("n", "j"), await scene.join("m")
    with pytest.raises(RefusedError, match="session_locked"):
        await n.accept(A)
    assert (await n.accept(wait_ms=60_000)).session == B, "others are given out at once"
    back = await m.accept(A, lock=held.lock)
    assert (back.lock, back.broker_epoch > held.broker_epoch) == (held.lock, True)
    frame, _ = await m.find(frames.Deliver)
    assert (frame.start, frame.cause) == (1, Cause.BROKER_CHANGE)
    assert await m.state(back) == b"one"
    assert await m.ack_offsets(back, 1, delivery=frame.delivery) == ""


async def test_a_lock_whose_time_is_over_lasts_at_no_other_broker(
    scene, start_broker, redis_server, key_prefix
):
    """Also where the broker had no reason yet to know the time of Redis. The record forgets it."""
    await scene.publish(A)
    m = await scene.join("m")
    await m.accept()
    with Redis.from_url(redis_server.url) as redis:
        for name in redis.scan_iter(f"{key_prefix}*cursor:workers"):
            for field, value in redis.hscan_iter(name, match="lock:*"):
                redis.hset(name, field, re.sub(rb" [0-9]{13} ", b" 1000000000000 ", value))
    await moved(scene, start_broker)

    async def is_forgotten():
        return (await scene.record()).locks == {}

    await eventually(is_forgotten, "the record has no lock")
    n = await scene.join("n", "j")
    assert (await n.accept(wait_ms=60_000)).session == A


async def test_another_process_of_the_member_does_not_have_its_lock(scene, start_broker):
    await scene.publish(A)
    m = await scene.join("m")
    held = await m.accept()
    await moved(scene, start_broker)
    m = await scene.join("m", "another")
    with pytest.raises(RefusedError, match="session_locked"):
        await m.accept(A, lock=held.lock)
    scene.end_time_of(A)
    assert (await m.accept(A, wait_ms=60_000)).lock > held.lock


async def test_no_session_is_given_out_where_the_store_may_have_lost_locks(
    scene, start_broker, clock
):
    await scene.publish(A, B)
    m = await scene.join("m")
    held = await m.accept(A)
    cursor = scene.running.broker.keys.cursor(scene.consumed.partition, "workers")
    other = await start_broker("orders-1")
    await kill(scene.running)
    # As a backup has it: the lock is missing, and an earlier run of Redis wrote the last one.
    await other.store.read("HDEL", cursor, f"lock:{A}")
    await other.store.read("HSET", cursor, "locks_run", "an earlier run")
    await eventually(lambda: owns(other, 0), "the other broker has the partition")
    scene.running = other
    await eventually(lambda: scene.has_sessions, "it knows the type")
    n, m = await scene.join("n", "j"), await scene.join("m")
    with pytest.raises(RefusedError, match="no_session"):
        await n.accept()
    with pytest.raises(RefusedError, match="unavailable"):
        await n.accept(A)
    assert (await m.accept(A, lock=held.lock)).lock == held.lock, "its holder goes on"
    assert (await scene.record()).locks_run == "an earlier run", "the next broker waits, too"
    scene.shares._held_until = clock()
    assert (await n.accept(wait_ms=60_000)).session == B


async def test_a_reset_takes_sessions_back_and_their_holders_go_on(scene):
    await scene.publish(A, A)
    m = await scene.join("m")
    held = await m.accept()
    await m.messages(held, 2)
    assert await m.ack_offsets(held, 0) == ""
    path = "/v1/queues/orders/groups/workers/reset"
    status, answer = await scene.running.call(
        "POST", path, json={"to": "earliest", "partitions": ["1.0"], "is_forced": True}
    )
    assert status == 200, answer
    lost, _ = await m.find(frames.SessionLost)
    assert lost.session == A
    back = await m.accept(A, lock=held.lock, wait_ms=60_000)
    assert await m.messages(back, 2) == {0: f"{A}/0", 1: f"{A}/1"}


async def test_what_a_reset_goes_back_to_is_read_though_nobody_has_a_session(scene):
    await scene.publish(A, A)
    m = await scene.join("m")
    held = await m.accept()
    await m.messages(held, 2)
    assert await m.ack_offsets(held, 0) == ""
    await m.close_session(held)
    await eventually(lambda: not scene.shares.holders(), "nobody has a session")
    path = "/v1/queues/orders/groups/workers/reset"
    body = {"to": "earliest", "partitions": ["1.0"], "is_forced": True}
    status, answer = await scene.running.call("POST", path, json=body)
    assert status == 200, answer
    again = await m.accept(wait_ms=10_000)
    assert await m.messages(again, 2) == {0: f"{A}/0", 1: f"{A}/1"}


async def test_more_sessions_than_locks_wait(scene, monkeypatch):
    monkeypatch.setattr("partq.broker.sessions.session_shares.MAX_LOCKS", 2)
    await scene.publish(A, B, C)
    m = await scene.join("m")
    first = await m.accept()
    await m.accept()
    with pytest.raises(RefusedError, match="overloaded"):
        await m.accept(C)
    with pytest.raises(RefusedError, match="no_session"):
        await m.accept()
    await m.close_session(first)
    assert (await m.accept(C)).session == C


async def test_the_lock_of_a_session_that_has_left_ends_once_nothing_of_it_is_open(scene):
    """As after a change of the partition count: the session goes on in another partition."""
    await scene.publish(A, B)
    m = await scene.join("m")
    first, second = await m.accept(), await m.accept()
    await m.messages(second, 1)
    object.__setattr__(
        scene.acceptor._ports, "left_at", lambda _, session: 2 if session in (A, B) else None
    )
    assert await m.ack_offsets(second, 1, delivery=0) == ""
    lost, _ = await m.find(frames.SessionLost)
    assert (lost.session, lost.cause) == (B, Cause.BROKER_CHANGE)
    assert await m.renew(first) > 0, "it has a message that is open"
