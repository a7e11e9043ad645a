"""Resets of a group while its sessions are locked."""

import pytest

from partq.core.model import Cause
from partq.wire import frames
from tests.broker.conftest import queue_and_group
from tests.broker.sessions.locks import RefusedError, Sessions
from tests.broker.sessions.test_session_moves import NEW, OLD, Moves, place_of

RESET = "/v1/queues/orders/groups/workers/reset"


@pytest.fixture
def resources():
    """Messages stay after their acks, so that a reset has something to go back to."""
    return queue_and_group(retentionSeconds=86_400)


@pytest.fixture
def lease_ttl_s():
    """Nothing here is about leases: none shall be over on a busy machine."""
    return 30.0


@pytest.fixture
async def moves(running):
    return Moves(await Sessions.open(running))


async def reset(moves, **body):
    status, answer = await moves.running.call("POST", RESET, json={"is_forced": True, **body})
    assert status == 200
    assert not [each for each in answer["partitions"].values() if "error" in each]


async def test_a_session_is_the_same_after_a_reset_to_what_was_kept(moves):
    await moves.scene.publish(moves.moving, moves.moving)
    m, n = await moves.join(moves.running), await moves.join(moves.running, "n")
    held = await m.accept(moves.moving)
    await m.messages(held, 2)
    assert await m.ack_offsets(held, 0) == ""
    assert await m.ack_offsets(held, 1, state=b"done", state_key=moves.moving) == ""
    await reset(moves, to="earliest")
    assert (await m.find(frames.SessionLost))[0].cause == Cause.RESET
    with pytest.raises(RefusedError, match="no_session"):
        await n.accept()
    again = await m.accept(moves.moving, lock=held.lock)
    assert again.lock == held.lock
    assert list(await m.messages(again, 2)) == [0, 1]
    assert await m.state(again) == b"done"


async def test_over_a_change_of_the_count_the_earlier_messages_may_be_another_members(moves):
    """The lock is that of the partition where the session goes on, which has to wait."""
    await moves.scene.publish(moves.moving)
    m, n = await moves.join(moves.running), await moves.join(moves.running, "n")
    held = await m.accept(moves.moving)
    await m.messages(held, 1)
    await moves.at_home()
    await moves.publish_new("later")
    assert await m.ack_offsets(held, 0) == ""
    await moves.drained()
    held = await m.accept(moves.moving, wait_ms=60_000)
    assert place_of(held) == NEW
    await reset(moves, to="earliest")
    earlier = await n.accept(wait_ms=60_000)
    assert (place_of(earlier), earlier.session) == (OLD, moves.moving)
    with pytest.raises(RefusedError, match="session_locked"):
        await m.accept(moves.moving, lock=held.lock)
    await n.messages(earlier, 1)
    assert moves.consumed.is_gated
    assert await n.ack_offsets(earlier, 0) == ""
    await moves.drained()
    moves.consumed.shares.locks.find(moves.moving).until = 0.0
    later = await n.accept(wait_ms=60_000)
    assert place_of(later) == NEW
    assert await n.messages(later, 1) == {0: "later"}
