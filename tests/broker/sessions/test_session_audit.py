"""The audit record of sessions: who has which, what is sent under it; and what its judge finds."""

import asyncio

import pytest

from partq.core.model import PartitionId
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import Gate
from tests.broker.ownership.test_failover import kill, owns
from tests.broker.partition.test_audit import of_kind, resources
from tests.broker.parts.test_part_audit import judged
from tests.broker.sessions.locks import A, B, RefusedError, Sessions
from tests.broker.sessions.test_session_calls import Caller

__all__ = ["resources"]


@pytest.fixture
def lease_ttl_s():
    return 2.0  # brokers wait for the lease of one that was killed


@pytest.fixture
async def scene(running):
    return await Sessions.open(running)


async def recorded(scene):
    await scene.consumed.settle_audit()
    return await judged(scene.running)


def locks(records):
    return [
        (each.kind, each.member, each.target, each.number, each.cause)
        for each in records
        if each.kind in ("lock", "unlock")
    ]


async def test_a_session_is_on_record_from_its_lock_to_its_end(scene):
    await scene.publish(A, B, A, A)
    m = await scene.join()
    held = await m.accept(A)
    await m.messages(held, 3)
    assert await m.ack_offsets(held, 0) == ""
    await m.close_session(held, (0, 1))
    n = await scene.join("n", "j")
    again = await n.accept(A)
    await n.messages(again, 2)
    assert await n.ack_offsets(again, 2, 3) == ""
    records = await recorded(scene)
    assert locks(records) == [
        ("lock", "m", A, held.lock, ""),
        ("unlock", "m", A, held.lock, ""),
        ("lock", "n", A, again.lock, ""),
    ]
    (first, second) = of_kind(records, "lock")
    assert (first.epoch, second.epoch) == (held.epoch, again.epoch)
    assert {each.flags for each in records if each.kind in ("lock", "unlock", "deliver")} == {
        "sessions"
    }
    back = [(each.first, each.stop, each.flags) for each in of_kind(records, "release")]
    assert back == [(2, 4, "keyed")] or back == [(2, 3, "keyed"), (3, 4, "keyed")]
    sent = [(each.member, each.epoch, each.cause) for each in of_kind(records, "deliver")]
    assert set(sent) == {("m", held.epoch, ""), ("n", again.epoch, "")}


async def test_why_a_lock_has_ended_is_on_record(scene):
    await scene.publish(A, B)
    m, n = await scene.join("m"), await scene.join("n", "j")
    held = await m.accept(A)
    await m.messages(held, 1)
    scene.end_time_of(A)
    again = await n.accept(A, wait_ms=60_000)
    frame, _ = await n.find(frames.Deliver)
    assert await n.ack_offsets(again, 0, delivery=frame.delivery) == ""
    other = await m.accept(B)
    assert scene.shares.release(B)
    await m.find(frames.SessionLost)
    records = await recorded(scene)
    assert locks(records) == [
        ("lock", "m", A, held.lock, ""),
        ("unlock", "m", A, held.lock, "expired"),
        ("lock", "n", A, again.lock, ""),
        ("lock", "m", B, other.lock, ""),
        ("unlock", "m", B, other.lock, "forced"),
    ]
    assert {(each.target, each.cause) for each in of_kind(records, "unbind")} == {
        (A, "forced_commit"),
        (B, "forced_commit"),
    }


async def test_a_lock_goes_on_for_a_flow_that_comes_back(scene):
    await scene.publish(A)
    m = await scene.join("m")
    held = await m.accept(A)
    await m.messages(held, 1)
    m.cut()
    await eventually(lambda: not scene.consumed.holders(), "the flow is lost")
    m = await scene.join("m")
    back = await m.accept(A, lock=held.lock)
    frame, _ = await m.find(frames.Deliver)
    assert await m.ack_offsets(back, 0, delivery=frame.delivery) == ""
    records = await recorded(scene)
    assert locks(records) == [("lock", "m", A, held.lock, "")] * 2
    assert [(each.target, each.cause) for each in of_kind(records, "unbind")] == [(A, "flow_lost")]


async def test_a_lock_goes_on_at_the_next_broker_which_records_the_end_of_those_that_are_over(
    scene, start_broker
):
    """The one before it has no time to."""
    await scene.publish(A, A, B)
    m = await scene.join("m")
    held, other = await m.accept(A), await m.accept(B)
    await m.messages(held, 2)
    await scene.acceptor._records.lock(
        scene.consumed.partition,
        "workers",
        write=scene.consumed.next_write(),
        session=B,
        member="m",
        incarnation="i",
        lock_ms=-1_000_000,
        number=other.lock,
    )
    await kill(scene.running)
    scene.running = await start_broker("orders-1")
    await eventually(lambda: owns(scene.running, 0), "the other broker has the partition")
    await eventually(lambda: scene.has_sessions, "it knows the type")
    m, n = await scene.join("m"), await scene.join("n", "j")
    with pytest.raises(RefusedError, match="session_locked"):
        await n.accept(A)
    back = await m.accept(A, lock=held.lock)
    frame, _ = await m.find(frames.Deliver)
    assert await m.ack_offsets(back, 0, 1, delivery=frame.delivery) == ""
    taken = await n.accept(B, wait_ms=60_000)
    await n.find(frames.Deliver)
    assert locks(await recorded(scene)) == [
        ("lock", "m", A, held.lock, ""),
        ("lock", "m", B, other.lock, ""),
        ("unlock", "m", B, other.lock, "expired"),
        ("lock", "m", A, held.lock, ""),
        ("lock", "n", B, taken.lock, ""),
    ]


async def test_an_end_is_on_record_before_the_store_or_the_next_lock_has_it(scene):
    await scene.publish(A)
    m, n = await scene.join("m"), await scene.join("n", "j")
    held = await m.accept(A)
    await m.messages(held, 1)
    await scene.consumed.settle_audit()
    gate = Gate(scene.running.broker.audits, "write")
    await m.begin_close(held)
    await gate.is_reached()
    await n.begin_accept(A, wait_ms=60_000)
    await eventually(lambda: A in scene.shares._beginning, "the next one has begun")
    for _ in range(20):
        await asyncio.sleep(0)
    assert (await scene.record()).locks[A].number == held.lock, "the store has the lock before"
    gate.opened.set()
    await m.closed()
    again = await n.accepted()
    assert again.lock > held.lock
    await n.messages(again, 1)
    await recorded(scene)


async def test_what_waits_for_its_record_in_one_session_is_sent_when_another_one_ends(scene):
    await scene.publish(A, B, A, B)
    m = await scene.join()
    one = await m.accept(A)
    await m.messages(one, 2)
    assert await m.ack_offsets(one, 0, 2) == ""
    await scene.consumed.settle_audit()
    gate = Gate(scene.running.broker.audits, "write")
    other = asyncio.create_task(m.accept(B))
    await gate.is_reached()
    other = await other
    flow = next(f for f in scene.running.broker.flow_registry.flows if f.member == "m")
    await eventually(lambda: flow.unrecorded.has(PartitionId(1, 0)), "a delivery waits")
    await m.begin_close(one)
    await eventually(lambda: scene.shares.of_session(A) is None, "the session is given back")
    gate.opened.set()
    await m.closed()
    assert set(await m.messages(other, 2)) == {1, 3}
    assert await m.ack_offsets(other, 1, 3) == ""
    await recorded(scene)


async def test_a_pull_that_waits_for_its_record_has_the_other_sessions_when_one_ends(scene):
    await scene.publish(A, B, A, B)
    m = Caller(scene, {"member": "m", "incarnation": "i"})
    for session in (A, B):
        await m.accept(session=session)
    await scene.consumed.settle_audit()
    gate = Gate(scene.running.broker.audits, "write")
    pulling = asyncio.create_task(m.pull())
    await gate.is_reached()
    assert scene.shares.release(A)
    gate.opened.set()
    pulled = await pulling
    assert sorted(each["offset"] for each in pulled) == [1, 3]
    receipts = [each["receipt"] for each in pulled]
    assert (await m.post("/acks", receipts=receipts))[0] == 200
    await recorded(scene)


async def test_a_record_that_is_turned_on_later_has_what_comes_then(scene):
    assert scene.consumed.audit.is_on
    await scene.running.broker.owned[PartitionId(1, 0)].audit.switch(is_on=False)
    await scene.publish(A, A, B)
    m = await scene.join()
    held = await m.accept(A)
    await m.messages(held, 2)
    await scene.running.broker.owned[PartitionId(1, 0)].audit.switch(is_on=True)
    other = await m.accept(B)
    await m.messages(other, 1)
    assert await m.ack_offsets(held, 0) == ""
    assert await m.ack_offsets(other, 2) == ""
    records = await recorded(scene)
    assert locks(records)[-1] == ("lock", "m", B, other.lock, "")
