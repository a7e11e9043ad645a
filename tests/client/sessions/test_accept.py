"""Accepting a session: every broker is asked, one session is taken, others are given back."""

import asyncio
from types import SimpleNamespace

import pytest

from partq import NoSessionError, SessionLockedError, UnavailableError
from partq.aio import Pulse
from partq.client.sessions import acceptance
from partq.errors import BadRequestError, SettingsError
from partq.testing import eventually
from partq.wire import frames
from tests.client.member import WAIT_S
from tests.client.sessions.conftest import EPOCH, Clerk, given, refused


async def done(task):
    async with asyncio.timeout(WAIT_S):
        return await task


@pytest.fixture
async def two(peer, other_peer):
    """A consumer with a flow at each of two brokers."""
    peer.brokers = {"broker-0": peer.url, "broker-1": other_peer.url}
    clerk = Clerk(peer)
    async with clerk.consumer:
        yield clerk, await clerk.flow(), await clerk.flow(peer=other_peer)


async def test_the_first_session_of_any_broker_is_taken_and_the_other_is_withdrawn(two):
    clerk, first, second = two
    accepting = asyncio.create_task(clerk.consumer.accept(timeout_s=30))
    await first.next(frames.AcceptSession)
    asked = await second.next(frames.AcceptSession)
    assert asked.session is None
    assert 0 < asked.wait_ms <= 30_000
    await second.send(given(asked.request, "s"))
    assert (await done(accepting)).session_id == "s"
    await first.next(frames.CancelAccept)


async def test_a_session_that_comes_too_late_is_given_back_with_nothing_begun(two):
    clerk, first, second = two
    accepting = asyncio.create_task(clerk.consumer.accept(timeout_s=30))
    late = await first.next(frames.AcceptSession)
    asked = await second.next(frames.AcceptSession)
    await second.send(given(asked.request, "s"))
    await done(accepting)
    await first.next(frames.CancelAccept)
    await first.send(given(late.request, "late", epoch=3))
    closed = await first.next(frames.CloseSession)
    assert (closed.epoch, closed.begun) == (3, [])
    assert [each.session_id for each in clerk.consumer.sessions] == ["s"]


async def test_a_session_is_taken_though_another_broker_refuses_at_the_same_time():
    class Flow:
        connection = SimpleNamespace(is_up=True, is_failing=False)

        def __init__(self, url, outcome) -> None:
            self.url, self.outcome = url, outcome

        def accept(self, session, wait_ms, lock):
            answer = asyncio.get_running_loop().create_future()
            if isinstance(self.outcome, Exception):
                answer.set_exception(self.outcome)
            else:
                answer.set_result(self.outcome)
            return answer

    refusal = BadRequestError("no")
    for outcomes in (("s", refusal), (refusal, "s")):
        flows = [Flow(f"http://{at}", outcome) for at, outcome in enumerate(outcomes)]
        call = acceptance.Acceptance(lambda flows=flows: flows, Pulse(), session=None, timeout_s=30)
        assert await done(asyncio.ensure_future(call.run())) == "s"


async def test_a_cancelled_call_is_withdrawn(two):
    clerk, first, second = two
    accepting = asyncio.create_task(clerk.consumer.accept(timeout_s=30))
    for flow in (first, second):
        await flow.next(frames.AcceptSession)
    accepting.cancel()
    for flow in (first, second):
        await flow.next(frames.CancelAccept)


@pytest.mark.req("AZR-57")
async def test_a_queue_without_sessions_is_a_time_out_and_the_consumer_goes_on(two):
    clerk, first, second = two
    accepting = asyncio.create_task(clerk.consumer.accept(timeout_s=0))
    for flow in (first, second):
        asked = await flow.next(frames.AcceptSession)
        assert asked.wait_ms == 0
        await flow.send(refused(asked.request, "no_session"))
    with pytest.raises(NoSessionError, match="that is no failure"):
        await done(accepting)
    accepting = asyncio.create_task(clerk.consumer.accept(timeout_s=30))
    await first.send(given((await first.next(frames.AcceptSession)).request))
    await done(accepting)


async def test_a_broker_that_cannot_judge_yet_is_asked_again_also_without_time_to_wait(clerk):
    flow = await clerk.flow()
    accepting = asyncio.create_task(clerk.consumer.accept("k", timeout_s=0))
    for code in ("not_owner", "unavailable", "fenced"):
        asked = await flow.next(frames.AcceptSession)
        await flow.send(refused(asked.request, code))
    await flow.send(given((await flow.next(frames.AcceptSession)).request))
    assert (await done(accepting)).session_id == "k"


async def test_a_named_session_of_another_member_is_locked(two):
    clerk, first, second = two
    accepting = asyncio.create_task(clerk.consumer.accept("k", timeout_s=0))
    for flow, code in ((first, "not_owner"), (second, "session_locked")):
        asked = await flow.next(frames.AcceptSession)
        assert asked.session == "k"
        await flow.send(refused(asked.request, code))
    with pytest.raises(SessionLockedError, match=r"within 0 s: so it is$"):
        await done(accepting)


async def test_a_named_session_that_the_consumer_has_is_asked_for_once_it_is_closed(clerk):
    """Not meanwhile: to one whose connection was lost a broker gives it again, under its lock."""
    flow = await clerk.flow()
    session = await clerk.accepted(flow)
    with pytest.raises(SessionLockedError, match="this consumer has it already"):
        await done(asyncio.ensure_future(clerk.consumer.accept("k", timeout_s=0)))
    accepting = asyncio.create_task(clerk.consumer.accept("k", timeout_s=30))
    await flow.drop()
    flow = await clerk.flow()
    asked = await flow.next(frames.AcceptSession)
    assert asked.lock == session.lock  # the session itself comes back
    await flow.send(given(asked.request, lock=7, epoch=EPOCH + 1))
    await eventually(lambda: not session.assigned.is_ended, "it is back")
    await session.close()
    await flow.next(frames.CloseSession)
    asked = await flow.next(frames.AcceptSession)
    assert asked.lock == 0
    await flow.send(given(asked.request, lock=8, epoch=EPOCH + 2))
    assert (await done(accepting)).lock == 8


async def test_a_session_whose_lock_is_over_as_it_comes_is_given_back(peer):
    """A process that stood still reads the answer too late: others may have the session."""
    now = 100.0
    clerk = Clerk(peer, clock=lambda: now)
    async with clerk.consumer:
        flow = await clerk.flow()
        accepting = asyncio.create_task(clerk.consumer.accept(timeout_s=30))
        late = await flow.next(frames.AcceptSession)
        now = 200.0
        await flow.send(given(late.request, "late", locked_ms=60_000, epoch=3))
        assert (await flow.next(frames.CloseSession)).epoch == 3
        asked = await flow.next(frames.AcceptSession)
        await flow.send(given(asked.request, "s"))
        assert (await done(accepting)).session_id == "s"
        assert clerk.lost == []


async def test_without_a_judgement_the_call_says_what_the_brokers_said(clerk, monkeypatch):
    monkeypatch.setattr(acceptance, "ANSWER_S", 0.0)
    flow = await clerk.flow()
    accepting = asyncio.create_task(clerk.consumer.accept(timeout_s=0.5))
    await flow.send(refused((await flow.next(frames.AcceptSession)).request, "overloaded"))

    async def refuse():
        while True:
            await flow.send(refused((await flow.next(frames.AcceptSession)).request, "overloaded"))

    refusing = asyncio.create_task(refuse())
    with pytest.raises(UnavailableError, match="so it is"):
        await done(accepting)
    refusing.cancel()


async def test_a_refusal_for_good_is_raised_at_once(clerk):
    flow = await clerk.flow()
    accepting = asyncio.create_task(clerk.consumer.accept(timeout_s=60))
    await flow.send(refused((await flow.next(frames.AcceptSession)).request, "bad_request"))
    with pytest.raises(BadRequestError, match="so it is"):
        await done(accepting)


async def test_a_lost_connection_is_asked_again(clerk):
    flow = await clerk.flow()
    accepting = asyncio.create_task(clerk.consumer.accept(timeout_s=60))
    await flow.next(frames.AcceptSession)
    await flow.drop()
    flow = await clerk.flow()
    await flow.send(given((await flow.next(frames.AcceptSession)).request))
    await done(accepting)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"timeout_s": -1}, "timeout_s: got -1, expected 0 to 86400"),
        ({"idle_s": "5"}, "idle_s: got str, expected a number"),
        ({"session": 5}, "session: got int, expected text"),
    ],
)
async def test_wrong_arguments_are_named(clerk, arguments, sentence):
    with pytest.raises(SettingsError, match=sentence):
        await clerk.consumer.accept(**arguments)
