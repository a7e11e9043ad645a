"""Sessions whose partition changes, by records that the tests write as a coordinator does."""

import asyncio
import base64
from contextlib import suppress
from itertools import count

import pytest

from partq.broker.peers.peer_client import UnansweredError
from partq.core.hashing import slot_of
from partq.core.model import PartitionId
from partq.errors import PartqError
from partq.testing import eventually
from partq.wire import batch, frames
from tests.broker.conftest import ADMIN, CONSUME, open_producer
from tests.broker.rescale.change import ChangeByHand, keys_for_five
from tests.broker.sessions.locks import RefusedError, Sessions

OLD, NEW = PartitionId(1, 0), PartitionId(2, 4)
GROUP = "/v1/queues/orders/groups/workers"
STATE = f"{GROUP}/session-state"
REQUESTS = count(500)


class Moves:
    """A group of type Session; of its sessions one moves from 1.0 to 2.4, and one stays."""

    def __init__(self, scene):
        self.scene = scene
        self.running = scene.running
        self.moving, self.staying = keys_for_five(self.running.broker.config.layout)
        self.change = ChangeByHand(self.running)
        self.owner = self.running
        """The broker of 2.4."""

    async def to_another(self, start_broker):
        """Move the moving session, to a partition of another broker."""
        self.owner = await start_broker("orders-1")
        await self.change.prepare(5)
        await self.running.admin("/yield", {"partitions": [str(NEW)]})
        await self.owner.broker.refresh()
        (claimed,) = await self.owner.admin("/claim", {"partitions": [str(NEW)]})
        assert "error" not in claimed
        await self.change.commit()
        await asyncio.gather(*(each.broker.refresh() for each in (self.running, self.owner)))
        await eventually(self._is_open, "the new partition takes messages")
        here, there = self.running.broker.claims, self.owner.broker.claims
        await eventually(lambda: here.owner_url(NEW) and there.owner_url(OLD), "each knows both")

    async def at_home(self):
        """Move it to a partition of the same broker."""
        await self.change.change(5)

    def _is_open(self):
        return self.owner.broker.owned[NEW].layout.is_open

    @property
    def consumed(self):
        return self.owner.broker.owned[NEW].groups["workers"]

    async def publish_new(self, *texts):
        """Publish messages of the moving session into 2.4."""
        producer = await open_producer(self.owner)
        messages = [
            batch.encode_message(batch.Message(self.moving, each.encode())) for each in texts
        ]
        data = batch.encode(messages, [slot_of(self.moving)] * len(texts))
        await producer.send(frames.Publish(next(REQUESTS), *NEW, 0), data)
        await producer.expect(frames.Published)

    async def join(self, running, member="m"):
        return await Sessions(running).join(member)

    async def post(self, call, running, who="m", *, token=CONSUME, **body):
        body = {"member": who, "incarnation": "h", "session": self.moving, **body}
        return await running.call("POST", f"{GROUP}/sessions/{call}", token=token, json=body)

    async def accept_by_http(self, running, who="m", **more):
        return await self.post("accept", running, who, **more)

    async def leave_state(self, running, found, text):
        """Leave a state over HTTP; return the status, and the code of an error."""
        body = {"member": "m", "incarnation": "h", "session": found["session"]}
        state = base64.b64encode(text).decode()
        status, answer = await running.call(
            "PUT", STATE, token=CONSUME, json={**body, "lock": found["lock"], "state": state}
        )
        return status, answer.get("error", {}).get("code", "")

    async def state(self, running, session):
        path = f"{STATE}?session={session}"
        _, answer = await running.call("GET", path, token=CONSUME)
        return answer["state"] and base64.b64decode(answer["state"])

    async def drained(self):
        await eventually(lambda: not self.consumed.is_gated, "all of 1.0 is done")


@pytest.fixture
async def moves(running):
    return Moves(await Sessions.open(running))


def place_of(accepted):
    return PartitionId(accepted.generation, accepted.partition)


async def test_an_accept_by_name_gets_first_what_is_in_the_former_partition(moves):
    """Whoever accepts by names alone gets on, though nobody accepts sessions in turn."""
    await moves.scene.publish(moves.moving, moves.moving)
    await moves.at_home()
    await moves.publish_new("later")
    m = await moves.join(moves.running)
    first = await m.accept(moves.moving)
    assert place_of(first) == OLD
    await m.messages(first, 2)
    assert await m.ack_offsets(first, 0, 1) == ""
    await moves.drained()
    second = await m.accept(moves.moving, wait_ms=60_000)
    assert place_of(second) == NEW
    assert await m.messages(second, 1) == {0: "later"}


@pytest.mark.parametrize("is_at_home", [True, False])
async def test_an_accept_by_name_waits_until_the_former_partition_was_read(
    moves, start_broker, monkeypatch, is_at_home
):
    """As just after a claim: what the session has there is not known before."""
    monkeypatch.setattr("partq.broker.sessions.session_acceptor.READ_WAIT_S", 60.0)
    batches = read_later(moves)
    await moves.scene.publish(moves.moving)
    await (moves.at_home() if is_at_home else moves.to_another(start_broker))
    m = await moves.join(moves.running)
    await m.begin_accept(moves.moving)
    await eventually(lambda: moves.scene.acceptor.waiting("workers") == 1, "it waits")
    batches.set()
    first = await m.accepted()
    assert place_of(first) == OLD
    await m.messages(first, 1)


def read_later(moves):
    """Have nothing read before the event that is returned."""
    ports, batches = moves.scene.acceptor._ports, asyncio.Event()
    read = ports.read

    async def read_late(*given):
        await batches.wait()
        return await read(*given)

    object.__setattr__(ports, "read", read_late)
    return batches


async def test_a_session_is_not_given_out_while_its_lock_in_a_former_partition_lasts(
    moves, monkeypatch
):
    """The broker that has both partitions knows of it, until it ends the lock at its next look."""
    await moves.scene.publish(moves.moving)
    m, n = await moves.join(moves.running), await moves.join(moves.running, "n")
    held = await m.accept(moves.moving)
    await m.messages(held, 1)
    await moves.at_home()
    await moves.publish_new("later")
    with monkeypatch.context() as patch:
        patch.setattr(moves.scene.shares, "_end_left", lambda: None)
        assert await m.ack_offsets(held, 0) == ""
        await moves.drained()
        for session in (None, moves.moving):
            with pytest.raises(RefusedError):
                await n.accept(session)
        await n.begin_accept(wait_ms=60_000)
    assert place_of(await n.accepted()) == NEW
    assert (await m.find(frames.SessionLost))[0].session == moves.moving


async def test_an_accept_by_name_waits_until_others_have_done_with_the_former_partition(moves):
    await moves.scene.publish(moves.staying)
    await moves.at_home()
    m = await moves.join(moves.running)
    with pytest.raises(RefusedError, match="no_session"):
        await m.accept(moves.moving)
    await m.begin_accept(moves.moving, wait_ms=60_000)
    n = await moves.join(moves.running, "n")
    other = await n.accept(moves.staying)
    await n.messages(other, 1)
    assert await n.ack_offsets(other, 0) == ""
    assert place_of(await m.accepted()) == NEW


async def test_the_session_is_with_one_of_two_brokers_alone(moves, start_broker):
    await moves.scene.publish(moves.moving)
    await moves.to_another(start_broker)
    m, there = await moves.join(moves.running), await moves.join(moves.owner)
    with pytest.raises(RefusedError, match="no_session"):
        await there.accept(moves.moving)
    held = await m.accept(moves.moving)
    assert place_of(held) == OLD
    await m.messages(held, 1)
    with pytest.raises(RefusedError, match="unavailable"):
        await there.accept(moves.moving, lock=held.lock)  # it may last at the other one
    assert await m.ack_offsets(held, 0) == ""
    await moves.drained()
    await m.find(frames.SessionLost)
    with pytest.raises(RefusedError, match="not_owner"):
        await m.accept(moves.moving)
    assert place_of(await there.accept(moves.moving)) == NEW


async def test_any_broker_finds_the_session_by_http(moves, start_broker):
    await moves.scene.publish(moves.moving, moves.staying)
    await moves.to_another(start_broker)
    status, found = await moves.accept_by_http(moves.owner)
    assert (status, found["partition"]) == (200, str(OLD))
    for running in (moves.running, moves.owner):
        status, answer = await moves.accept_by_http(running, "n")
        assert (status, answer["error"]["code"]) == (409, "session_locked")
    shares = moves.scene.shares
    assert shares.release(moves.moving)
    moves.scene.consumed.discard([(0, 1)])
    for running in (moves.running, moves.owner):
        assert await moves.accept_by_http(running) == (200, {"session": None}), "it waits"
    moves.scene.consumed.discard([(1, 2)])
    moves.running.broker.cursor_writer.notice(moves.scene.consumed)
    await moves.drained()
    status, found = await moves.accept_by_http(moves.running)
    assert (status, found["partition"]) == (200, str(NEW))


async def test_an_accept_whose_answer_from_the_former_partition_is_lost_is_in_doubt(
    moves, start_broker, monkeypatch
):
    """It may have locked the session: nobody may say that there is none."""
    await moves.scene.publish(moves.moving)
    await moves.to_another(start_broker)
    call = moves.owner.peers.call

    async def lose_answer(*given, **more):
        with suppress(PartqError):
            await call(*given, **more)
        raise UnansweredError("the answer is lost", is_sent=True)

    monkeypatch.setattr(moves.owner.peers, "call", lose_answer)
    status, answer = await moves.accept_by_http(moves.owner)
    assert (status, answer.get("error", {}).get("code")) == (503, "unavailable")
    assert moves.scene.shares.release(moves.moving), "it was locked"
    moves.scene.consumed.discard([(0, 1)])
    moves.running.broker.cursor_writer.notice(moves.scene.consumed)
    await moves.drained()
    status, found = await moves.accept_by_http(moves.owner)
    assert (status, found["partition"]) == (200, str(NEW)), "it is given, so there is no doubt"


async def test_whoever_comes_back_for_a_session_that_has_ended_hears_so_at_once(moves):
    await moves.scene.publish(moves.moving, moves.staying)
    await moves.at_home()
    m = await moves.join(moves.running)
    held = await m.accept(moves.moving)
    assert moves.scene.shares.release(moves.moving)
    with pytest.raises(RefusedError, match="session_lost"):
        await m.accept(moves.moving, lock=held.lock)
    moves.scene.consumed.discard([(0, 1)])
    with pytest.raises(RefusedError, match="session_lost"):
        await m.accept(moves.moving, lock=held.lock)


async def test_any_broker_finds_the_lock_in_the_former_partition(moves, start_broker):
    await moves.scene.publish(moves.moving)
    await moves.to_another(start_broker)
    for running in (moves.running, moves.owner):
        _, found = await moves.accept_by_http(running)
        lock = {"lock": found["lock"]}
        assert (await moves.post("renew", running, **lock))[0] == 200
        assert await moves.leave_state(running, found, running.broker.id.encode()) == (200, "")
        assert await moves.state(moves.owner, moves.moving) == running.broker.id.encode()
        assert (await moves.post("renew", running, "n", **lock))[0] == 409
        assert await moves.post("close", running, **lock) == (200, {"was_locked": True})
        assert await moves.post("close", running, **lock) == (200, {"was_locked": False})
        await moves.accept_by_http(running)
        body = {"session": moves.moving}
        path = f"{GROUP}/sessions/release"
        for was_locked in (True, False):
            answer = await running.call("POST", path, token=ADMIN, json=body)
            assert answer == (200, {"was_locked": was_locked})


async def test_a_state_that_is_late_is_refused_once_its_session_has_moved(moves, peers):
    """It would be written beside the states that were carried over, and nobody would read it."""
    found = {}
    for session in (moves.moving, moves.staying):
        _, found[session] = await moves.accept_by_http(moves.running, session=session)
        assert await moves.leave_state(moves.running, found[session], b"one") == (200, "")
    gate = peers.Gate(moves.running.broker.partitions, "flush")
    left = [
        asyncio.create_task(moves.leave_state(moves.running, found[session], b"two"))
        for session in (moves.moving, moves.staying)
    ]
    await gate.is_reached()
    await moves.at_home()
    await moves.drained()
    gate.opened.set()
    assert await asyncio.gather(*left) == [(409, "session_lost"), (200, "")]
    assert await moves.state(moves.running, moves.moving) == b"one"
    assert await moves.state(moves.running, moves.staying) == b"two"


async def test_a_state_under_the_lock_of_the_former_partition_is_left_while_it_has_messages(
    moves, monkeypatch
):
    await moves.scene.publish(moves.moving)
    _, found = await moves.accept_by_http(moves.running)
    await moves.at_home()
    monkeypatch.setattr(moves.scene.shares, "_end_left", lambda: None)
    assert await moves.leave_state(moves.running, found, b"one") == (200, "")
    assert await moves.state(moves.running, moves.moving) == b"one", "it is not carried over yet"
    moves.scene.consumed.discard([(0, 1)])
    moves.running.broker.cursor_writer.notice(moves.scene.consumed)
    await moves.drained()
    assert await moves.leave_state(moves.running, found, b"two") == (409, "session_lost")
    assert await moves.state(moves.running, moves.moving) == b"one"


async def test_a_lock_does_not_end_before_all_of_its_former_partition_was_read(moves):
    """As after the restart of a broker, which begins with nothing read."""
    batches = read_later(moves)
    await moves.scene.publish(moves.moving)
    m = await moves.join(moves.running)
    held = await m.accept(moves.moving)
    await moves.at_home()
    shares = moves.scene.shares
    shares.force_due(moves.running.broker.clock())
    assert shares.locks.find(moves.moving) is not None
    batches.set()
    assert await m.messages(held, 1) == {0: f"{moves.moving}/0"}
    assert await m.ack_offsets(held, 0) == ""
    lost, _ = await m.find(frames.SessionLost)
    assert lost.session == moves.moving


async def test_a_state_is_left_while_all_of_the_former_partition_was_not_read(moves):
    """The session may have messages there: nothing was read yet, or the span was used up."""
    ports, batches = moves.scene.acceptor._ports, asyncio.Event()
    read = ports.read

    async def read_late(*given):
        await batches.wait()
        return await read(*given)

    object.__setattr__(ports, "read", read_late)
    _, found = await moves.accept_by_http(moves.running)
    await moves.scene.publish(moves.moving)
    await moves.at_home()
    assert await moves.leave_state(moves.running, found, b"one") == (200, "")
    assert await moves.state(moves.running, moves.moving) == b"one"
    batches.set()
    await eventually(lambda: moves.scene.book.has_open(moves.moving), "the message was read")
    moves.scene.consumed.discard([(0, 1)])
    moves.running.broker.cursor_writer.notice(moves.scene.consumed)
    await moves.drained()
    assert await moves.state(moves.running, moves.moving) == b"one"


async def test_a_state_that_came_with_an_ack_outlives_the_refusal_of_a_later_one(moves):
    await moves.scene.publish(moves.moving)
    _, found = await moves.accept_by_http(moves.running)
    await moves.at_home()
    moves.scene.consumed.discard([(0, 1)])
    moves.scene.consumed.states.put(moves.moving, b"acked")
    assert await moves.leave_state(moves.running, found, b"left") == (409, "session_lost")
    await moves.drained()
    assert await moves.state(moves.running, moves.moving) == b"acked"
