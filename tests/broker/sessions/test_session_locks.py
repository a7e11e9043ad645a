"""Sessions that members lock over frames: who gets which, in which order, and how that ends."""

from types import SimpleNamespace

import pytest

from partq.broker.sessions.session_calls import SessionCalls
from partq.core.hashing import slot_of
from partq.core.model import Cause
from partq.testing import eventually
from partq.testing.frame_peers import UnexpectedFrameError
from partq.wire import frames
from tests.broker.delivery.keyed import open_keyed
from tests.broker.sessions.locks import LOCK_S, A, B, C, RefusedError, Sessions


@pytest.fixture
async def scene(running):
    return await Sessions.open(running)


async def test_a_member_gets_the_messages_of_its_session_alone_in_order(scene):
    await scene.publish(A, B, A)
    await scene.publish(B, A)
    m, n = await scene.join("m"), await scene.join("n", "j")
    first, second = await m.accept(), await n.accept()
    assert (first.session, second.session) == (A, B), "the oldest message comes first"
    assert first.epoch != second.epoch
    assert await m.messages(first, 3) == {0: f"{A}/0", 2: f"{A}/2", 4: f"{A}/1"}
    assert await n.messages(second, 2) == {1: f"{B}/1", 3: f"{B}/0"}
    await scene.publish(A)
    assert await m.messages(first, 1) == {5: f"{A}/0"}
    assert await m.ack_offsets(first, 0, 2, 4, 5) == ""
    assert await n.ack_offsets(second, 1, 3) == ""
    assert scene.book.cursor == 6


async def test_one_member_may_have_several_sessions_each_under_its_token(scene):
    await scene.publish(A, B)
    m = await scene.join()
    first, second = await m.accept(), await m.accept()
    assert await m.messages(second, 1) == {1: f"{B}/1"}
    assert await m.ack_offsets(first, 1) == "not_delivered"
    assert await m.ack_offsets(second, 1) == ""


async def test_a_session_is_one_members_until_it_is_closed(scene):
    await scene.publish(A)
    m, n = await scene.join("m"), await scene.join("n", "j")
    held = await m.accept(A)
    await m.messages(held, 1)
    with pytest.raises(RefusedError, match="session_locked"):
        await n.accept(A)
    with pytest.raises(RefusedError, match="no_session"):
        await n.accept()
    await n.begin_accept(A, wait_ms=60_000)
    await m.close_session(held)
    again = await n.accepted()
    assert again.lock > held.lock
    assert again.locked_ms >= LOCK_S * 1000, "it counts from the answer, not from the request"
    assert await n.messages(again, 1) == {0: f"{A}/0"}
    assert await m.ack_offsets(held, 0) == "fenced"
    assert (await scene.record()).redeliveries == {}, "what was not begun does not count"


async def test_what_has_begun_is_finished_before_the_session_is_unlocked(scene):
    await scene.publish(A, A)
    m, n = await scene.join("m"), await scene.join("n", "j")
    held = await m.accept()
    await m.messages(held, 2)
    await n.begin_accept(wait_ms=60_000)
    await m.begin_close(held, (0, 1))
    assert await m.ack_offsets(held, 0) == ""
    await m.closed()
    again = await n.accepted()
    assert await n.messages(again, 1) == {1: f"{A}/1"}


async def test_all_of_a_closed_session_comes_again_at_once(scene):
    await scene.publish(A, A, A)
    m = await scene.join()
    held = await m.accept()
    await m.messages(held, 3)
    await m.close_session(held)
    again = await m.accept()
    assert len(await m.messages(again, 3)) == 3


async def test_accepts_get_sessions_in_the_order_of_asking(scene):
    m, n = await scene.join("m"), await scene.join("n", "j")
    await m.begin_accept(wait_ms=60_000)
    await eventually(lambda: scene.acceptor.waiting("workers") == 1, "m waits")
    await n.begin_accept(wait_ms=60_000)
    await eventually(lambda: scene.acceptor.waiting("workers") == 2, "n waits")
    await scene.publish(A)
    assert (await m.accepted()).session == A
    await scene.publish(B)
    assert (await n.accepted()).session == B
    assert scene.acceptor.waiting("workers") == 0


async def test_a_cancelled_accept_gets_nothing(scene):
    m, n = await scene.join("m"), await scene.join("n", "j")
    request = await m.begin_accept(wait_ms=60_000)
    await eventually(lambda: scene.acceptor.waiting("workers") == 1, "m waits")
    await m.send(frames.CancelAccept(request))
    with pytest.raises(RefusedError, match="no_session"):
        await m.accepted()
    await scene.publish(A)
    assert (await n.accept()).session == A


async def test_a_session_that_is_chosen_in_turn_is_not_locked_by_its_name_meanwhile(scene):
    await scene.publish(A)
    m, n = await scene.join("m"), await scene.join("n", "j")
    held = await m.accept()
    await m.begin_accept(wait_ms=60_000)
    await eventually(lambda: scene.acceptor.waiting("workers") == 1, "m waits")
    await n.begin_accept(A, wait_ms=60_000)
    await eventually(lambda: scene.acceptor.waiting("workers") == 2, "n waits")
    await m.close_session(held)
    chosen = await m.accepted()
    assert chosen.session == A
    assert (await scene.record()).locks[A].member == "m"
    await m.close_session(chosen)
    assert (await n.accepted()).lock > chosen.lock


async def test_no_partition_waits_behind_the_sessions_of_another_one(scene):
    of_last = next(f"s{i}" for i in range(200) if slot_of(f"s{i}") >= 49_152)
    owned = next(o for name, o in scene.running.broker.owned.items() if name.index == 3)
    await scene.publish(A, B, C)
    await scene.publish(of_last, index=3)
    for consumed, first in ((scene.consumed, A), (owned.groups["workers"], of_last)):
        shares = scene.acceptor.shares_of(consumed)
        await eventually(lambda s=shares, f=first: s.next_free() == f, f"{first} was read")
    m = await scene.join()
    assert [(await m.accept()).session for _ in range(4)] == [A, of_last, B, C]


async def test_an_accept_that_is_cancelled_before_its_first_step_is_answered():
    answers, ended = [], []
    flow = SimpleNamespace(send=answers.append)
    calls = SessionCalls(None, flow, lambda: ended.append(calls.open_count))
    calls.handle(frames.AcceptSession(1))
    calls.handle(frames.CancelAccept(1))
    await eventually(lambda: ended == [0], "the call is over")
    assert [(answer.request, answer.code) for answer in answers] == [(1, "no_session")]


async def test_a_session_without_messages_may_be_locked_by_its_name(scene):
    m = await scene.join()
    held = await m.accept(A)
    await scene.publish(B, A)
    assert await m.messages(held, 1) == {1: f"{A}/1"}


async def test_a_message_without_a_key_is_a_session_by_itself(scene):
    await scene.publish(None, None)
    m = await scene.join()
    first, second = await m.accept(), await m.accept()
    assert (first.session, second.session) == ("@1.0:0", "@1.0:1")
    assert await m.messages(first, 1) == {0: "/0"}
    assert await m.state(first) == "bad_request"
    assert await m.ack_offsets(first, 0, state_key="@1.0:0", state=b"x") == "bad_request"
    await m.close_session(second)
    assert (await m.accept("@1.0:1")).session == "@1.0:1"


async def test_the_state_of_a_session_comes_with_acks(scene):
    await scene.publish(A, A, B)
    m = await scene.join()
    held = await m.accept()
    await m.messages(held, 2)
    assert await m.state(held) is None
    assert await m.ack_offsets(held, 0, state_key=A, state=b"one") == ""
    assert await m.state(held) == b"one"
    assert await m.state(held, B) == "bad_request"
    assert await m.ack_offsets(held, 1, state_key=B, state=b"two") == "bad_request"
    await m.close_session(held)
    again = await m.accept(A)
    assert await m.state(again) == b"one"


async def test_a_state_is_bounded_by_the_group(running):
    scene = await Sessions.open(running, max_state_bytes=10)
    await scene.publish(A)
    m = await scene.join()
    held = await m.accept()
    await m.messages(held, 1)
    assert await m.ack_offsets(held, 0, state_key=A, state=b"x" * 11) == "bad_request"
    assert await m.ack_offsets(held, 0, state_key=A, state=b"x" * 10) == ""


async def test_a_nacked_message_comes_first_of_its_session(scene):
    await scene.publish(A, A)
    m = await scene.join()
    held = await m.accept()
    await m.messages(held, 2)
    assert await m.nack_offsets(held, 0) == ""
    frame, payload = await m.find(frames.Deliver)
    assert (frame.start, frame.redeliveries) == (0, [(0, 1)])
    assert len(payload) > 0


async def test_a_lock_that_is_not_renewed_ends_and_the_lowest_message_counts(scene):
    await scene.publish(A, A)
    m, n = await scene.join("m"), await scene.join("n", "j")
    held = await m.accept()
    await m.messages(held, 2)
    stored = (await scene.record()).locks[A]
    assert await m.renew(held) == LOCK_S * 1000
    renewed = (await scene.record()).locks[A]
    assert (renewed.number, renewed.until_ms >= stored.until_ms) == (held.lock, True)
    await n.begin_accept(A, wait_ms=60_000)
    scene.end_time_of(A)
    lost, _ = await m.find(frames.SessionLost)
    assert (lost.session, lost.epoch, lost.cause) == (A, held.epoch, Cause.FORCED_COMMIT)
    with pytest.raises(RefusedError, match="session_lost"):
        await m.renew(held)
    again = await n.accepted()
    frame, _ = await n.find(frames.Deliver)
    assert (frame.epoch, frame.start, frame.redeliveries) == (again.epoch, 0, [(0, 1)])
    assert await m.ack_offsets(held, 0) == "fenced"


async def test_a_cut_connection_keeps_the_lock_for_its_process(scene):
    await scene.publish(A, A)
    m, n = await scene.join("m"), await scene.join("n", "j")
    held = await m.accept()
    await m.messages(held, 2)
    m.cut()
    await eventually(lambda: not scene.consumed.holders(), "the flow is lost")
    with pytest.raises(RefusedError, match="session_locked"):
        await n.accept(A)
    again = await scene.join("m")
    with pytest.raises(RefusedError, match="session_locked"):
        await again.accept(A, lock=held.lock - 1)
    back = await again.accept(A, lock=held.lock)
    assert (back.lock, back.epoch > held.epoch) == (held.lock, True)
    frame, _ = await again.find(frames.Deliver)
    assert (frame.start, frame.cause) == (0, Cause.FLOW_LOST)


async def test_a_member_that_leaves_unlocks_its_sessions_at_once(scene):
    await scene.publish(A)
    m, n = await scene.join("m"), await scene.join("n", "j")
    await m.accept()
    await m.send(frames.Leave())
    await m.close()
    assert (await n.accept(wait_ms=60_000)).session == A


async def test_locks_are_in_the_record_until_they_end(scene):
    await scene.publish(A)
    m = await scene.join()
    held = await m.accept()
    lock = (await scene.record()).locks[A]
    assert (lock.member, lock.incarnation, lock.number) == ("m", "i", held.lock)
    await m.close_session(held)
    assert (await scene.record()).locks == {}


async def test_a_seek_is_refused_and_names_the_type(scene):
    m = await scene.join()
    held = await m.accept(A)
    await m.send(frames.Seek(next(m.requests), *m.token(held), to="latest"))
    answer = await m.pick(frames.SeekRefused)
    assert answer.code == "conflict"
    assert "a group of type Session" in answer.message


async def test_a_reset_names_a_member_with_several_sessions_once(scene):
    m, n = await scene.join(), await scene.join("n")
    for peer, session in ((m, A), (m, B), (n, C)):
        await peer.accept(session)
    body = {"to": "latest", "is_forced": True, "is_dry_run": True}
    _, answer = await scene.running.call(
        "POST", "/v1/queues/orders/groups/workers/reset", json=body
    )
    assert answer["partitions"]["1.0"]["members"] == ["m", "n"]


async def test_a_client_that_knows_no_sessions_is_refused(scene):
    with pytest.raises(UnexpectedFrameError, match=r"upgrade_required.*SessionConsumer"):
        await open_keyed(scene.running, "m")


async def test_a_third_session_waits_behind_a_parked_one(scene):
    await scene.publish(A, C)
    m = await scene.join()
    held = await m.accept()
    await m.messages(held, 1)
    assert await m.nack_offsets(held, 0, delay_ms=86_400_000) == ""
    await m.close_session(held)
    assert (await m.accept()).session == C
    with pytest.raises(RefusedError, match="no_session"):
        await m.accept()


@pytest.mark.parametrize("number", [-1, 2**52 + 1, 2**63 - 1])
async def test_no_lock_has_a_number_that_cannot_be_counted_on_from(scene, number):
    m = await scene.join()
    with pytest.raises(RefusedError, match="bad_request"):
        await m.accept(A, lock=number)


async def test_a_long_session_leaves_room_for_the_others_of_its_member(scene):
    await scene.publish(*[A] * 12, B, B)
    m = await scene.join(credit=8)
    long = await m.accept(A)
    assert len(await m.messages(long, 4)) == 4
    other = await m.accept(B)
    assert await m.messages(other, 2) == {12: f"{B}/12", 13: f"{B}/13"}
    await m.send(frames.Credit(3, 0))
    assert list(await m.messages(long, 1)) == [4]
