"""Sessions whose messages have outlived their own time: nobody is given one for these alone."""

import asyncio

import pytest

from partq.testing import eventually
from tests.broker.delivery.keyed import follow
from tests.broker.moved_clocks import AheadWatch, put_watch
from tests.broker.sessions.locks import A, B, C, RefusedError, Sessions

SHORT_MS, LATER_MS = 60_000, 3_600_000


@pytest.fixture
def lease_ttl_s():
    """Nothing here is about leases: none shall be over on a busy machine."""
    return 30.0


@pytest.fixture
async def scene(running):
    return await Sessions.open(running)


@pytest.fixture
def watch(running, scene):
    return put_watch(running.broker, AheadWatch())


async def test_a_session_whose_messages_are_over_is_not_given_out(scene, watch):
    await scene.publish(A, B, A, ttl_ms=SHORT_MS)
    await scene.publish(B, C)
    m = await scene.join()
    watch.ahead_ms = LATER_MS
    first = await m.accept(wait_ms=60_000)
    assert first.session == B
    assert await m.messages(first, 1) == {3: f"{B}/0"}
    assert (await m.accept(wait_ms=60_000)).session == C
    with pytest.raises(RefusedError, match="no_session"):
        await m.accept()
    assert await m.ack_offsets(first, 3) == ""
    assert scene.book.cursor == 4, "nothing waits for what is over"


async def test_a_session_that_has_time_left_is_given_out(scene, watch):
    await scene.publish(A, ttl_ms=SHORT_MS)
    await scene.publish(B)
    m = await scene.join()
    assert [(await m.accept(wait_ms=60_000)).session for _ in range(2)] == [A, B]


async def test_what_is_over_becomes_a_dead_letter_before_its_session_is_given_out(
    scene, watch, running
):
    await follow(running, deadLetter={"queue": "dead", "expired": True})
    await scene.publish(A, ttl_ms=SHORT_MS)
    await scene.publish(A, B)
    m = await scene.join()
    watch.ahead_ms = LATER_MS
    found = {}
    for _ in range(2):
        session = await m.accept(wait_ms=60_000)
        found[session.session] = await m.messages(session, 1)
    assert [each.offset for each in scene.consumed.outbox.letters] == [0]
    assert found == {A: {1: f"{A}/0"}, B: {2: f"{B}/1"}}


async def test_a_session_that_was_locked_by_its_name_meanwhile_is_not_given_out(
    scene, watch, monkeypatch
):
    """As its first message is read for its time."""
    await scene.publish(A, B, ttl_ms=SHORT_MS)
    m, n = await scene.join(), await scene.join("n")
    await eventually(lambda: scene.shares.next_free() == A, "all was read")
    asked, read = asyncio.Event(), scene.acceptor._ports.read

    async def read_late(consumed, offset):
        if not asked.is_set():
            asked.set()
            assert (await n.accept(A)).session == A
        return await read(consumed, offset)

    object.__setattr__(scene.acceptor._ports, "read", read_late)
    assert (await m.accept(wait_ms=60_000)).session == B
    assert asked.is_set()


async def test_an_accept_has_its_answer_though_the_store_has_none(scene, watch, monkeypatch):
    await scene.publish(A, ttl_ms=SHORT_MS)
    m = await scene.join()
    await eventually(lambda: scene.shares.next_free() == A, "it was read")

    async def stand_still(*_):
        await asyncio.Event().wait()

    monkeypatch.setattr("partq.broker.sessions.session_acceptor.READ_WAIT_S", 0.05)
    object.__setattr__(scene.acceptor._ports, "read", stand_still)
    with pytest.raises(RefusedError, match="no_session"):
        await m.accept()
