"""A session at a scripted peer: its messages, acks, lock and end."""

import asyncio

import pytest

from partq import Cause, FencedError, SessionLostError
from partq.client.sessions import locked_session
from partq.errors import BadRequestError
from partq.testing import eventually
from partq.wire import frames
from tests.client.member import WAIT_S, deliver
from tests.client.sessions.conftest import EPOCH, Clerk, given, refused

TOKEN = (5, EPOCH)


async def message_of(session):
    async with asyncio.timeout(WAIT_S):
        return await anext(session)


async def test_messages_come_in_order_and_are_acknowledged_under_the_token(clerk, stored_batch):
    flow = await clerk.flow()
    session = await clerk.accepted(flow)
    assert (session.session_id, session.lock, str(session.partition)) == ("k", 7, "1.0")
    await flow.send(deliver(0, 2, TOKEN), payload=stored_batch(b"a", b"b"))
    first, second = await message_of(session), await message_of(session)
    assert (first.value, second.value) == (b"a", b"b")
    await session.ack(first)
    ack = await flow.next(frames.Ack)
    assert (ack.epoch, ack.upto, ack.ranges) == (EPOCH, -1, [(0, 1)])


async def test_the_state_is_read_and_left_under_the_token(clerk, stored_batch):
    flow = await clerk.flow()
    session = await clerk.accepted(flow)
    reading = asyncio.create_task(session.state())
    asked = await flow.next(frames.ReadState)
    assert (asked.epoch, asked.key) == (EPOCH, "k")
    await flow.send(frames.State(asked.request, b"old"))
    assert await reading == b"old"
    await flow.send(deliver(0, 1, TOKEN), payload=stored_batch(b"a"))
    await session.ack(await message_of(session), state=b"new")
    ack = await flow.next(frames.Ack)
    assert (ack.state_key, ack.state) == ("k", b"new")


async def test_iterating_ends_when_no_message_has_come_for_a_while(clerk):
    flow = await clerk.flow()
    session = await clerk.accepted(flow)
    assert await session.receive(timeout_s=0) is None
    assert not session.is_closed


async def test_what_is_in_hand_is_given_back_before_the_session_is_closed(
    clerk, stored_batch, monkeypatch
):
    monkeypatch.setattr(locked_session, "CLOSE_S", WAIT_S)
    flow = await clerk.flow()
    session = await clerk.accepted(flow)
    await flow.send(deliver(0, 3, TOKEN), payload=stored_batch(b"a", b"b", b"c"))
    await session.ack(await message_of(session))
    await message_of(session)
    closing = asyncio.create_task(session.close())
    await flow.send(frames.AckConfirmed((await flow.next(frames.Ack)).request))
    nack = await flow.next(frames.Nack)
    assert (nack.ranges, nack.delay_ms) == ([(1, 2)], 0)
    closed = await flow.next(frames.CloseSession)
    assert (closed.epoch, closed.begun) == (EPOCH, [])
    await flow.send(frames.SessionClosed(closed.request))
    await closing
    assert (session.is_closed, session.is_lost, clerk.consumer.sessions) == (True, False, [])
    assert [each async for each in session] == []
    with pytest.raises(FencedError):
        await session.ack(await _again(clerk, flow, stored_batch, session))


async def _again(clerk, flow, stored_batch, session):
    """Return a message of the next lock, which the closed session knows nothing of."""
    other = await clerk.accepted(flow, epoch=EPOCH + 1)
    await flow.send(deliver(0, 1, (5, EPOCH + 1)), payload=stored_batch(b"a"))
    message = await message_of(other)
    ended = asyncio.create_task(other.close())
    closed = await flow.next(frames.Nack), await flow.next(frames.CloseSession)
    await flow.send(frames.SessionClosed(closed[1].request))
    await ended
    return message


async def test_what_comes_after_the_close_is_dropped_and_its_room_given_back(
    clerk, stored_batch, monkeypatch
):
    monkeypatch.setattr(locked_session, "CLOSE_S", WAIT_S)
    flow = await clerk.flow()
    session = await clerk.accepted(flow)
    closing = asyncio.create_task(session.close())
    closed = await flow.next(frames.CloseSession)
    await flow.send(deliver(0, 2, TOKEN), payload=stored_batch(b"a", b"b"))
    await flow.send(frames.SessionClosed(closed.request))
    await closing
    monkeypatch.setattr(locked_session, "CLOSE_S", 0.05)
    other = await clerk.accepted(flow, "l", epoch=EPOCH + 1)
    await flow.send(deliver(2, 3, (5, EPOCH + 1)), payload=stored_batch(b"c"))
    assert (await message_of(other)).value == b"c"


async def test_until_a_nack_is_answered_nothing_is_handed_out(clerk, stored_batch):
    flow = await clerk.flow()
    session = await clerk.accepted(flow)
    await flow.send(deliver(0, 2, TOKEN), payload=stored_batch(b"a", b"b"))
    giving = asyncio.create_task(session.nack(await message_of(session), delay_s=0))
    nack = await flow.next(frames.Nack)
    assert await session.receive(timeout_s=0) is None
    await flow.send(frames.AskBack(1, 0, *TOKEN, 1, [(0, 65_536)]))
    assert (await flow.next(frames.Returned)).ranges == [(1, 2)]
    await flow.send(frames.AckConfirmed(nack.request))
    await giving
    await flow.send(deliver(0, 1, TOKEN, delivery=1), payload=stored_batch(b"a"))
    await flow.send(deliver(1, 2, TOKEN, delivery=1), payload=stored_batch(b"b"))
    assert [(await message_of(session)).value for _ in "ab"] == [b"a", b"b"]


async def test_a_lock_is_renewed_when_a_third_of_it_is_over(peer):
    clerk = Clerk(peer)
    async with clerk.consumer:
        flow = await clerk.flow()
        session = await clerk.accepted(flow, locked_ms=300)
        asked = await flow.next(frames.RenewSession)
        assert asked.epoch == EPOCH
        await flow.send(frames.SessionRenewed(asked.request, 60_000))
        await eventually(lambda: session.locked_s > 50, "the lock lasts longer")
        renewing = asyncio.create_task(session.renew())
        asked = await flow.next(frames.RenewSession)
        await flow.send(frames.SessionRenewed(asked.request, 120_000))
        await renewing
        assert session.locked_s > 100


@pytest.mark.parametrize("cause", [Cause.ACK_TIMEOUT, Cause.NONE])
async def test_a_lost_session_says_so_and_hands_out_nothing_more(clerk, stored_batch, cause):
    flow = await clerk.flow()
    session = await clerk.accepted(flow)
    await flow.send(deliver(0, 2, TOKEN), payload=stored_batch(b"a", b"b"))
    message = await message_of(session)
    await flow.send(frames.SessionLost(1, 0, *TOKEN, "k", cause.value))
    await eventually(lambda: clerk.lost, "the application is told")
    assert clerk.lost == [session]
    with pytest.raises(SessionLostError, match="stop working"):
        await anext(session)
    with pytest.raises(SessionLostError, match="accept it again"):
        await session.ack(message)
    await session.close()


async def test_a_lock_that_is_not_renewed_in_time_is_lost(peer):
    clerk = Clerk(peer)
    async with clerk.consumer:
        flow = await clerk.flow()
        session = await clerk.accepted(flow, locked_ms=100)
        await eventually(lambda: session.is_lost, "the lock has ended")
        assert clerk.lost == [session]


async def test_after_a_standstill_beyond_the_lock_nothing_more_is_handed_out(peer, stored_batch):
    now = 100.0
    clerk = Clerk(peer, clock=lambda: now)
    async with clerk.consumer:
        flow = await clerk.flow()
        session = await clerk.accepted(flow, locked_ms=60_000)
        await flow.send(deliver(0, 2, TOKEN), payload=stored_batch(b"a", b"b"))
        await message_of(session)
        now = 161.0
        # Nothing is awaited before: the task that watches the lock has not run since.
        with pytest.raises(SessionLostError, match="not renewed in time"):
            await anext(session)
        assert clerk.consumer.sessions == []


async def test_the_session_goes_on_under_its_lock_when_the_connection_is_lost(clerk, stored_batch):
    flow = await clerk.flow()
    session = await clerk.accepted(flow)
    await flow.send(deliver(0, 2, TOKEN), payload=stored_batch(b"a", b"b"))
    in_hand = await message_of(session)
    await flow.drop()
    flow = await clerk.flow()
    asked = await flow.next(frames.AcceptSession)
    assert (asked.session, asked.lock) == ("k", 7)
    await flow.send(given(asked.request, lock=7, epoch=EPOCH + 4))
    with pytest.raises(FencedError):
        await session.ack(in_hand)
    await flow.send(
        deliver(0, 1, (5, EPOCH + 4), delivery=1, cause=Cause.FLOW_LOST.value),
        payload=stored_batch(b"a"),
    )
    again = await message_of(session)
    assert (again.value, again.is_redelivered) == (b"a", True)
    await session.ack(again)
    assert (await flow.next(frames.Ack)).epoch == EPOCH + 4
    assert clerk.lost == []


async def test_the_session_goes_on_under_its_lock_after_a_reset(clerk, stored_batch):
    flow = await clerk.flow()
    session = await clerk.accepted(flow)
    await flow.send(deliver(4, 5, TOKEN), payload=stored_batch(b"e"))
    in_hand = await message_of(session)
    await flow.send(frames.SessionLost(1, 0, *TOKEN, "k", Cause.RESET.value))
    asked = await flow.next(frames.AcceptSession)
    assert (asked.session, asked.lock) == ("k", 7)
    await flow.send(given(asked.request, lock=7, epoch=EPOCH + 1))
    again = deliver(0, 1, (5, EPOCH + 1), cause=Cause.RESET.value)
    await flow.send(again, payload=stored_batch(b"a"))
    assert (await message_of(session)).value == b"a"
    with pytest.raises(FencedError):
        await session.ack(in_hand)
    assert clerk.lost == []


async def test_a_session_whose_lock_is_anothers_now_is_lost(clerk):
    flow = await clerk.flow()
    session = await clerk.accepted(flow)
    await flow.drop()
    flow = await clerk.flow()
    asked = await flow.next(frames.AcceptSession)
    await flow.send(refused(asked.request, "session_lost"))
    await eventually(lambda: clerk.lost == [session], "the application is told")


async def test_a_group_of_another_type_is_refused(peer):
    clerk = Clerk(peer)
    async with clerk.consumer:
        await clerk.flow(takes_sessions=False)
        with pytest.raises(BadRequestError, match=r"group workers: it has no .* use a Consumer"):
            await clerk.consumer.accept(timeout_s=30)


async def test_a_message_of_another_session_is_refused_and_stays_as_it_is(clerk, stored_batch):
    flow = await clerk.flow()
    session, other = await clerk.accepted(flow), await clerk.accepted(flow, "l", epoch=EPOCH + 1)
    await flow.send(deliver(0, 1, (5, EPOCH + 1)), payload=stored_batch(b"a"))
    message = await message_of(other)
    for call in (session.ack, session.nack, session.dead_letter, session.in_progress):
        with pytest.raises(BadRequestError, match=r"session 'k': got a message of session 'l', ex"):
            await call(message)
    await other.ack(message)
    ack = await flow.next(frames.Ack)
    assert (ack.epoch, ack.ranges) == (EPOCH + 1, [(0, 1)])


async def test_calls_at_a_closed_session_say_that_it_was_closed(clerk, stored_batch):
    flow = await clerk.flow()
    session = await clerk.accepted(flow)
    await flow.send(deliver(0, 1, TOKEN), payload=stored_batch(b"a"))
    message = await message_of(session)
    await session.close()
    for calling in (session.ack(message), session.state(), session.renew()):
        with pytest.raises(FencedError, match=r"session 'k': it was closed here, .* accept it"):
            await calling


async def test_leaving_ends_the_loops_over_messages_and_sessions(clerk):
    flow = await clerk.flow()
    session = await clerk.accepted(flow)
    waiting = asyncio.create_task(session.receive(timeout_s=60))
    await asyncio.sleep(0)
    clerk.consumer.leave()
    assert await waiting is None
    assert [each async for each in clerk.consumer] == []
    with pytest.raises(RuntimeError, match="leaving"):
        await clerk.consumer.accept(timeout_s=0)
