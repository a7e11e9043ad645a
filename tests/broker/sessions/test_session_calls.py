"""Sessions over plain HTTP: accepted, pulled, renewed, closed, released, shown, their states."""

import asyncio
import base64

import pytest

from partq.core.model import Cause, PartitionId
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import ADMIN, CONSUME
from tests.broker.sessions.locks import LOCK_S, A, B, Sessions

GROUP = "/v1/queues/orders/groups/workers"
M = {"member": "m", "incarnation": "i"}
N = {"member": "n", "incarnation": "j"}


def text(state):
    return base64.b64encode(state).decode()


class Caller:
    """A member that speaks HTTP alone."""

    def __init__(self, scene, who):
        self.running, self.who = scene.running, who

    async def post(self, path, token=CONSUME, **body):
        return await self.running.call("POST", GROUP + path, token=token, json=body)

    async def accept(self, **body):
        status, answer = await self.post("/sessions/accept", **self.who, **body)
        assert status == 200, answer
        return answer

    async def lock_call(self, call, found, **more):
        body = {**self.who, "session": found["session"], "lock": found["lock"], **more}
        return await self.post(f"/sessions/{call}", **body)

    async def pull(self):
        status, answer = await self.post("/pull", **self.who, wait_ms=2000)
        assert status == 200, answer
        return answer["messages"]

    async def put_state(self, found, state, **more):
        body = {**self.who, "session": found["session"], "lock": found["lock"], "state": state}
        path = f"{GROUP}/session-state"
        return await self.running.call("PUT", path, token=CONSUME, json={**body, **more})

    async def state(self, session):
        path = f"{GROUP}/session-state?session={session}"
        return (await self.running.call("GET", path, token=CONSUME))[1]["state"]


@pytest.fixture
async def scene(running):
    return await Sessions.open(running)


@pytest.fixture
def m(scene):
    return Caller(scene, M)


@pytest.fixture
def n(scene):
    return Caller(scene, N)


async def test_a_member_pulls_what_it_has_accepted(scene, m, n):
    await scene.publish(A, B, A)
    found = await m.accept()
    assert (found["session"], found["partition"]) == (A, "1.0")
    assert found["locked_ms"] >= LOCK_S * 1000, "and as long as the call has waited"
    other = await n.accept()
    assert other["session"] == B
    assert await n.accept() == {"session": None}, "there is no third one"
    pulled = await m.pull()
    assert [each["offset"] for each in pulled] == [0, 2]
    receipts = [each["receipt"] for each in pulled]
    status, _ = await m.post("/acks", receipts=receipts[:1])
    assert status == 200
    assert (await m.lock_call("close", found))[1] == {"was_locked": True}
    status, late = await m.post("/acks", receipts=receipts[1:])
    assert (status, late["results"][0]["error"]["code"]) == (207, "fenced")
    again = await m.accept(session=A)
    assert again["lock"] > found["lock"]
    assert [each["offset"] for each in await m.pull()] == [2]
    assert (await m.lock_call("close", found))[1] == {"was_locked": False}


async def test_a_pull_has_the_messages_of_all_sessions_of_a_partition(scene, m):
    await scene.publish(A, B, A, B)
    assert {(await m.accept())["session"], (await m.accept())["session"]} == {A, B}
    pulled = await m.pull()
    assert sorted(each["offset"] for each in pulled) == [0, 1, 2, 3]
    receipts = [each["receipt"] for each in pulled]
    assert (await m.post("/acks", receipts=receipts))[0] == 200


async def test_the_session_of_the_empty_key_is_one_as_any_other(scene, m):
    found = await m.accept(session="")
    assert found["session"] == ""
    assert (await m.lock_call("renew", found))[0] == 200
    assert (await m.put_state(found, text(b"s")))[0] == 200
    assert await m.state("") == text(b"s")
    assert (await m.lock_call("close", found))[1] == {"was_locked": True}
    assert (await m.post("/sessions/release", token=ADMIN, session=""))[0] == 200


async def test_a_lock_counts_from_when_it_was_given_also_if_the_call_has_waited(
    scene, m, n, monkeypatch
):
    await scene.publish(A)
    held = await n.accept()
    broker, start, later = scene.running.broker, scene.running.broker.clock, [0.0]
    monkeypatch.setattr(broker, "clock", lambda: start() + later[0])
    waiting = asyncio.ensure_future(m.accept(session=A, wait_ms=60_000))
    await eventually(lambda: scene.acceptor.waiting("workers") == 1, "m waits")
    later[0] = 5.0
    await n.lock_call("close", held)
    assert (await waiting)["locked_ms"] >= (LOCK_S + 5) * 1000


async def test_a_process_ends_its_lock_though_its_connection_was_lost(scene, n):
    await scene.publish(A)
    peer = await scene.join("m")
    held = await peer.accept()
    await peer.messages(held, 1)
    peer.cut()
    await eventually(lambda: not scene.consumed.holders(), "the flow is lost")
    m, found = Caller(scene, M), {"session": A, "lock": held.lock}
    for changes in ({"incarnation": "other"}, {"lock": held.lock + 1}, {"member": "n"}):
        assert (await m.lock_call("close", found, **changes))[1] == {"was_locked": False}
    assert (await m.lock_call("close", found))[1] == {"was_locked": True}
    assert (await scene.record()).locks == {}
    assert (await n.accept(session=A))["lock"] > held.lock


async def test_what_a_lost_connection_had_comes_again_with_a_cause_though_nobody_has_noticed(scene):
    await scene.publish(A)
    peer, other = await scene.join("m"), await scene.join("n")
    held = await peer.accept()
    await peer.messages(held, 1)
    found = {"session": A, "lock": held.lock}
    assert (await Caller(scene, M).lock_call("close", found))[1] == {"was_locked": True}
    again = await other.accept(A)
    frame, _ = await other.find(frames.Deliver)
    assert (frame.epoch, frame.start) == (again.epoch, 0)
    assert Cause(frame.cause) == Cause.FLOW_LOST


async def test_a_lock_is_renewed_by_its_process_alone(scene, m, n):
    await scene.publish(A)
    found = await m.accept()
    status, answer = await m.lock_call("renew", found)
    assert (status, answer) == (200, {"locked_ms": LOCK_S * 1000})
    for changes in ({"incarnation": "other"}, {"lock": found["lock"] + 1}, {"member": "n"}):
        status, answer = await m.lock_call("renew", found, **changes)
        assert (status, answer["error"]["code"]) == (409, "session_lost")
    status, answer = await n.post("/sessions/accept", **N, session=A)
    assert (status, answer["error"]["code"]) == (409, "session_locked")


async def test_an_administrator_takes_a_session_from_its_member(scene, m, n):
    await scene.publish(A)
    found = await m.accept()
    await m.pull()
    status, answer = await m.post("/sessions/release", token=CONSUME, session=A)
    assert (status, answer["error"]["code"]) == (403, "forbidden")
    assert (await m.post("/sessions/release", token=ADMIN, session=A))[1] == {"was_locked": True}
    assert (await m.post("/sessions/release", token=ADMIN, session=A))[1] == {"was_locked": False}
    assert (await m.lock_call("renew", found))[0] == 409
    assert (await n.accept(session=A, wait_ms=2000))["session"] == A
    assert [each["redeliveries"] for each in await n.pull()] == [1]


async def test_sessions_are_shown_with_lock_and_state(scene, m):
    await scene.publish(A, B, A)
    found = await m.accept()
    assert (await m.put_state(found, text(b"four")))[0] == 200
    path = f"{GROUP}/sessions?partition=1.0"

    async def listed():
        status, page = await scene.running.call("GET", path, token=ADMIN)
        assert status == 200, page
        return page["sessions"]

    rows = {row["session"]: row for row in await listed()}
    assert rows[B] == {"session": B, "open_messages": 1, "offset": 1}
    locked_ms = rows[A].pop("locked_ms")
    assert 0 < locked_ms <= LOCK_S * 1000
    assert rows[A] == {
        "session": A,
        "open_messages": 2,
        "offset": 0,
        "holder": "m",
        "lock": found["lock"],
        "is_connected": True,
        "state_bytes": 4,
    }
    state = await scene.running.state()
    assert state["sessions"] == {"with_messages": 2, "locked": 1}
    assert [row["session"] for row in await listed()] == sorted([A, B])
    _, rest = await scene.running.call("GET", f"{path}&after={min(A, B)}", token=ADMIN)
    assert [row["session"] for row in rest["sessions"]] == [max(A, B)]
    _, locked = await scene.running.call("GET", f"{path}&is_locked=true", token=ADMIN)
    assert [(row["session"], row["open_messages"]) for row in locked["sessions"]] == [(A, 2)]


async def test_the_session_of_the_empty_key_is_shown(scene, m):
    await scene.publish("", A)
    _, page = await scene.running.call("GET", f"{GROUP}/sessions?partition=1.0", token=ADMIN)
    assert [row["session"] for row in page["sessions"]] == ["", A]


async def test_a_state_is_left_under_the_lock_alone(scene, m):
    await scene.publish(A)
    found = await m.accept()
    assert (await m.put_state(found, text(b"one")))[0] == 200
    assert await m.state(A) == text(b"one")
    for changes in ({"lock": found["lock"] + 1}, {"incarnation": "other"}):
        status, answer = await m.put_state(found, text(b"two"), **changes)
        assert (status, answer["error"]["code"]) == (409, "session_lost")
    assert (await m.put_state(found, "no base64"))[0] == 400
    assert (await m.put_state(found, None))[0] == 200
    assert await m.state(A) is None


async def test_the_state_comes_with_the_ack_of_a_pulled_message(scene, m):
    await scene.publish(A)
    await m.accept()
    (pulled,) = await m.pull()
    ack = {"receipts": [pulled["receipt"]], "key": A, "state": text(b"done")}
    assert (await m.post("/acks", **ack))[0] == 200
    assert await m.state(A) == text(b"done")


async def test_other_groups_have_no_sessions(running):
    caller = Caller(Sessions(running), M)
    await eventually(lambda: bool(running.broker.owned), "the broker owns partitions")
    status, answer = await caller.post("/sessions/accept", **M)
    assert (status, answer["error"]["code"]) == (409, "conflict")
    for path in ("sessions?partition=1.0", "session-state?session=a"):
        status, answer = await running.call("GET", f"{GROUP}/{path}", token=ADMIN)
        assert (status, answer["error"]["code"]) == (409, "conflict")
        assert "got the type Partitioned, expected Session" in answer["error"]["message"]
    assert (await caller.post("/sessions/release", token=ADMIN, session="a"))[0] == 409


async def test_calls_find_the_lock_of_a_session_that_goes_to_another_partition(
    scene, m, monkeypatch
):
    """As during a change of the partition count: the messages that are there come first."""
    await scene.publish(A)
    found = await m.accept()
    monkeypatch.setattr(scene.acceptor.places, "all_of", lambda _: [PartitionId(1, 1)])
    assert (await m.lock_call("renew", found))[0] == 200
    assert (await m.put_state(found, text(b"one")))[0] == 200
    assert await m.lock_call("close", found) == (200, {"was_locked": True})
    assert scene.shares.locks.find(A) is None


async def test_a_lock_is_not_for_a_caller_at_another_address(scene, m, monkeypatch):
    await scene.publish(A)
    found = await m.accept()
    monkeypatch.setattr(
        "partq.broker.api.routes.sessions.accepts.caller_address", lambda _: "192.0.2.1"
    )
    for call in ("renew", "close"):
        assert (await m.lock_call(call, found))[0] in (403, 409)
    assert scene.shares.locks.find(A) is not None
