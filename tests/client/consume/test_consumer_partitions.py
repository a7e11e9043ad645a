"""The consumer against a scripted peer: partitions that come and go, by tokens and flows."""

import asyncio
import os
import signal

import pytest

from partq import Cause, FencedError
from partq.errors import NotListedError
from partq.wire import frames
from tests.client.member import LEASE_MS, P0, P1, WAIT_S, Member, assigned, bound, deliver

# ---- tokens ----


async def test_frames_of_an_older_token_are_dropped(peer, member, stored_batch):
    flow = await peer.flow()
    await flow.send(assigned((5, 9)), assigned((6, 2)), assigned((5, 10)))
    await flow.send(deliver(0, 1, (5, 10)), payload=stored_batch(b"old"))
    await flow.send(deliver(0, 1, (6, 2)), payload=stored_batch(b"new"))
    message = await member.next()
    assert (message.value, message.token[1:3]) == (b"new", (6, 2))
    assert member.told == [("assigned", P0), ("BROKER_CHANGE", P0), ("assigned", P0)]


@pytest.mark.req("HND-26")
async def test_a_revoked_partition_hands_nothing_out(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a", b"b")
    message = await member.next()
    await flow.send(frames.Revoked(1, 0, 5, 9, Cause.FORCED_COMMIT))
    await flow.send(assigned((5, 11), partition=1))
    await member.has_been_told(3)
    await flow.send(deliver(0, 1, (5, 11), partition=1), payload=stored_batch(b"other"))
    assert (await member.next()).value == b"other"
    assert member.told == [("assigned", P0), ("FORCED_COMMIT", P0), ("assigned", P1)]
    with pytest.raises(FencedError, match="stop working"):
        await member.consumer.ack(message)


async def test_a_partition_that_another_flow_gets_is_revoked_first(peer, other_peer, stored_batch):
    peer.brokers["broker-1"] = other_peer.url
    member = Member(peer)
    async with member.consumer:
        flow = await bound(peer, stored_batch, b"old")
        other = await other_peer.flow()
        await member.has_been_told(1)
        await other.send(assigned((7, 1)))
        await other.send(deliver(0, 1, (7, 1)), payload=stored_batch(b"new"))
        told = await member.has_been_told(3)
        assert told == [("assigned", P0), ("BROKER_CHANGE", P0), ("assigned", P0)]
        await flow.send(deliver(1, 2), payload=stored_batch(b"late"))
        assert (await member.next()).value == b"new"


async def test_a_delivery_without_a_token_ends_the_connection(peer, member, stored_batch):
    flow = await peer.flow()
    await flow.send(deliver(0, 1), payload=stored_batch(b"a"))
    await flow.closed()
    await peer.flow()


async def test_moved_ends_the_token(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a")
    await member.has_been_told(1)
    await flow.send(frames.Moved(1, 0, "broker-1", "http://127.0.0.1:9"))
    assert (await member.has_been_told(2))[1] == ("BROKER_CHANGE", P0)


# ---- losing and finding ----


@pytest.mark.req("SOL-36", "HND-28")
async def test_a_lost_flow_is_opened_again_with_what_was_held(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a", b"b")
    message = await member.next()
    acking = asyncio.create_task(member.consumer.ack(message, confirmed=True))
    await flow.next(frames.Ack)
    await flow.drop()
    with pytest.raises(FencedError, match="before the ack was confirmed"):
        await acking
    again = await peer.flow()
    assert again.first.held == [(1, 0)]
    assert again.first.incarnation == flow.first.incarnation
    assert member.told[:2] == [("assigned", P0), ("FLOW_LOST", P0)]
    await again.send(assigned((5, 10)))
    frame = deliver(0, 2, (5, 10), cause=Cause.FLOW_LOST)
    await again.send(frame, payload=stored_batch(b"a", b"b"))
    assert (await member.next()).is_redelivered


async def test_a_flow_without_answers_to_its_pings_is_lost_after_the_lease(
    peer, member, stored_batch
):
    flow = await peer.flow(lease_ms=100)
    flow.answers_pings = False
    await flow.send(assigned())
    assert await member.has_been_told(2) == [("assigned", P0), ("FLOW_LOST", P0)]
    await flow.closed()
    await peer.flow()


async def test_a_broker_that_binds_a_member_late_is_not_left(peer, clock, stored_batch):
    """It waits until a coordinator has listed the member, maybe for longer than its lease."""
    member = Member(peer, clock=clock)
    async with member.consumer:
        flow = await peer.raw_flow()
        clock.now += 2 * LEASE_MS / 1000
        await flow.send(frames.Bound("broker-0", 1, LEASE_MS), assigned())
        await flow.send(deliver(0, 1), payload=stored_batch(b"a"))
        assert (await member.next()).value == b"a"
        assert member.told == [("assigned", P0)]


async def test_nothing_is_handed_out_before_the_broker_is_proven_alive(peer, clock, stored_batch):
    member = Member(peer, clock=clock)
    async with member.consumer:
        flow = await peer.flow()
        flow.answers_pings = False
        ping = frames.Ping(1)
        await flow.send(assigned())
        await flow.send(deliver(0, 1), payload=stored_batch(b"a"))
        waiting = asyncio.create_task(member.next())
        await member.has_been_told(1)
        assert not waiting.done()
        await flow.send(frames.Pong(ping.nonce))
        assert (await waiting).value == b"a"


async def test_a_process_that_slept_hands_out_nothing_of_an_old_lease(peer, clock, stored_batch):
    member = Member(peer, clock=clock)
    async with member.consumer:
        flow = await bound(peer, stored_batch, b"a", b"b")
        assert (await member.next()).value == b"a"
        flow.answers_pings = False
        clock.now += LEASE_MS / 1000 + 0.1
        waiting = asyncio.create_task(member.next())
        flow.pinged.clear()
        await flow.pinged.wait()
        assert not waiting.done()
        await flow.drop()
        again = await peer.flow()
        assert ("FLOW_LOST", P0) in member.told
        assert not waiting.done()
        await again.send(assigned((5, 10)))
        await again.send(deliver(1, 2, (5, 10)), payload=stored_batch(b"b"))
        assert (await waiting).token[2] == 10


async def test_a_member_that_is_not_listed_yet_tries_again(peer, member):
    flow = await peer.raw_flow()
    await flow.send(frames.Failed(NotListedError.code, "not yet", 1))
    assert (await peer.flow()).first.member == "m"


# ---- handoff ----


async def test_a_pause_gives_back_what_has_not_begun(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a", b"b", b"c")
    begun = await member.next()
    await flow.send(frames.Paused(1, 0, 5, 9))
    release = await flow.next(frames.Release)
    assert (release.start, release.delivery) == (1, 0)
    acking = asyncio.create_task(member.consumer.ack(begun, confirmed=True))
    ack = await flow.next(frames.Ack)
    await flow.send(frames.AckConfirmed(ack.request))
    await acking
    await flow.send(frames.Resumed(1, 0, 5, 9))
    await flow.send(deliver(1, 3, delivery=1), payload=stored_batch(b"b", b"c"))
    again = await member.next()
    assert (again.offset, again.value) == (1, b"b")


async def test_a_pause_with_everything_begun_gives_back_nothing(peer, member, stored_batch):
    flow = await bound(peer, stored_batch, b"a")
    message = await member.next()
    await flow.send(frames.Paused(1, 0, 5, 9))
    member.consumer.ack_nowait(message)
    await flow.next(frames.Ack)


async def test_leaving_goes_on_until_everything_is_revoked(peer, stored_batch):
    member = Member(peer, leave_timeout_s=WAIT_S)
    async with member.consumer as consumer:
        flow = await bound(peer, stored_batch, b"a", b"b")
        begun = await member.next()
        consumer.leave()
        await flow.next(frames.Leave)
        assert (await member.next()).value == b"b", "it continues meanwhile"
        ending = asyncio.create_task(member.next())
        acking = asyncio.create_task(consumer.ack(begun, confirmed=True))
        ack = await flow.next(frames.Ack)
        await flow.send(frames.AckConfirmed(ack.request))
        await acking
        assert not ending.done()
        await flow.send(frames.Revoked(1, 0, 5, 9, 0))
        with pytest.raises(StopAsyncIteration):
            await ending
    assert member.told[-1] == ("NONE", P0)


async def test_leaving_ends_when_nobody_takes_over_in_time(peer, member, stored_batch):
    await bound(peer, stored_batch, b"a")
    await member.next()
    member.consumer.leave()
    with pytest.raises(StopAsyncIteration):
        await member.next()


async def test_a_standby_leaves_at_once(peer):
    member = Member(peer, leave_timeout_s=WAIT_S)
    async with member.consumer:
        await peer.flow()
    assert member.told == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_sigterm_and_ctrl_c_mean_leave(peer, stored_batch, number):
    before = signal.getsignal(number)
    member = Member(peer, handle_signals=True, leave_timeout_s=WAIT_S)
    handled = asyncio.Queue()
    async with member.consumer as consumer:
        flow = await bound(peer, stored_batch, b"a")
        running = asyncio.create_task(consumer.run(lambda message: handled.put(message.value)))
        async with asyncio.timeout(WAIT_S):
            assert await handled.get() == b"a"
        os.kill(os.getpid(), number)
        await flow.next(frames.Leave)
        await flow.send(frames.Revoked(1, 0, 5, 9, 0))
        async with asyncio.timeout(WAIT_S):
            await running
    assert signal.getsignal(number) == before


async def test_an_application_that_handles_the_signals_is_left_alone(peer):
    member = Member(peer)
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: None) for number in numbers]
    try:
        async with member.consumer as consumer:
            assert not consumer.leave_on_signals()
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
