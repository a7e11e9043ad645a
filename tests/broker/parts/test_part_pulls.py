"""Members of a KeyShared group that pull over plain HTTP."""

import pytest

from tests.broker.api.routes.test_pull import GROUP, token_of
from tests.broker.conftest import CONSUME
from tests.broker.parts.test_part_moves import Shared


class Puller:
    """A member that pulls."""

    def __init__(self, running, name):
        self.running, self.name, self.last_answer = running, name, None

    async def pull(self, wait_ms=10_000):
        """Return the next messages."""
        body = {"member": self.name, "incarnation": f"of-{self.name}", "wait_ms": wait_ms,
                "last_answer": self.last_answer}  # fmt: skip
        status, answer = await self.running.call("POST", f"{GROUP}/pull", token=CONSUME, json=body)
        assert status == 200, answer
        self.last_answer, self.flow = answer["answer"], answer["flow"]
        return answer["messages"]

    async def ack(self, message):
        """Acknowledge a message by its token; return the code of the refusal, or nothing."""
        item = {**token_of(message), "offsets": [message["offset"]]}
        body = {"member": self.name, "flow": self.flow, "acks": [item]}
        _, answer = await self.running.call("POST", f"{GROUP}/acks", token=CONSUME, json=body)
        (result,) = answer["results"]
        return result["error"]["code"] if "error" in result else ""

    async def nack(self, message, **more):
        """Give a message back; return the code of the refusal, or nothing."""
        item = {**token_of(message), "offsets": [message["offset"]], **more}
        body = {"member": self.name, "flow": self.flow, "nacks": [item]}
        _, answer = await self.running.call("POST", f"{GROUP}/nacks", token=CONSUME, json=body)
        (result,) = answer["results"]
        return result["error"]["code"] if "error" in result else ""

    async def ack_receipt(self, message):
        """Acknowledge a message by its receipt; return the code of the refusal, or nothing."""
        _, answer = await self.running.call(
            "POST", f"{GROUP}/acks", token=CONSUME, json={"receipts": [message["receipt"]]}
        )
        (result,) = answer["results"]
        return result["error"]["code"] if "error" in result else ""


def values(messages):
    return [message["value"] for message in messages]


@pytest.fixture
async def scene(running):
    scene = await Shared.open(running)
    await scene.give(m=[0, 1], n=[2, 3])
    return scene


async def test_what_was_pulled_is_acknowledged_before_its_key_moves(scene):
    m, n = Puller(scene.running, "m"), Puller(scene.running, "n")
    await n.pull(wait_ms=0)
    await scene.publish("b0", "a0", "c0", "b1")
    held = await m.pull()
    assert (values(held), values(await n.pull())) == (["b0", "a0", "b1"], ["c0"])
    assert await scene.move((1, "m", "n")) == [""]
    await scene.publish("b2")
    assert await n.pull(wait_ms=0) == [], "b1 was pulled, so it has begun"
    assert await m.ack(held[0]) == ""
    assert await n.pull(wait_ms=0) == []
    assert await m.ack_receipt(held[2]) == ""
    assert values(await n.pull()) == ["b2"]
    assert await m.ack_receipt(held[1]) == ""


async def test_a_member_cannot_acknowledge_what_another_one_has(scene):
    m, n = Puller(scene.running, "m"), Puller(scene.running, "n")
    await n.pull(wait_ms=0)
    await scene.publish("a0", "c0")
    held, theirs = await m.pull(), await n.pull()
    wrong = {**theirs[0], "offset": held[0]["offset"]}
    assert await n.ack(wrong) == "not_delivered"
    assert await m.ack(held[0]) == ""


async def test_what_was_taken_by_force_is_acknowledged_by_its_latest_receipt_only(scene):
    m, n = Puller(scene.running, "m"), Puller(scene.running, "n")
    await n.pull(wait_ms=0)
    await scene.publish("b0")
    (first,) = await m.pull()
    assert await scene.move((1, "m", "n"), drain_ms=0) == [""]
    (again,) = await n.pull()
    assert (again["value"], again["cause"], again["redeliveries"]) == ("b0", "forced_commit", 1)
    assert await m.ack_receipt(first) == "not_delivered"
    assert await n.ack_receipt(again) == ""


async def test_a_key_that_waits_goes_on_in_time_though_the_member_that_failed_pulls_no_more(scene):
    m = Puller(scene.running, "m")
    n = await scene.join("n")
    await scene.publish("b0", "b1")
    held = await m.pull()
    assert await scene.move((1, "m", "n")) == [""]
    await n.lanes()
    assert await m.nack(held[0], delay_ms=1) == ""
    assert await m.ack(held[1]) == ""
    assert await n.values(1) == ["b0"]
    assert len(scene.consumed.holders()) == 2, "not because m was lost"


async def test_a_key_that_waits_is_timed_by_the_member_that_gets_it(scene):
    m = Puller(scene.running, "m")
    n = await scene.join("n")
    await scene.publish("b0")
    (held,) = await m.pull()
    assert await m.nack(held, delay_ms=1) == ""
    assert await scene.move((1, "m", "n")) == [""]
    await n.lanes()
    assert await n.values(1) == ["b0"]
    assert len(scene.consumed.holders()) == 2, "not because m was lost"


async def test_all_below_an_offset_is_no_ack_where_members_share_a_partition(scene):
    m = Puller(scene.running, "m")
    await scene.publish("a0", "c0", "b0")
    held = await m.pull()
    item = {**token_of(held[1]), "upto": 3}
    body = {"member": "m", "flow": m.flow, "acks": [item]}
    _, answer = await scene.running.call("POST", f"{GROUP}/acks", token=CONSUME, json=body)
    assert answer["results"][0]["error"]["code"] == "bad_request"
    assert [await m.ack(each) for each in held] == ["", ""]


async def test_what_a_silent_member_had_pulled_goes_to_the_next_one(scene):
    m, n = Puller(scene.running, "m"), Puller(scene.running, "n")
    await n.pull(wait_ms=0)
    await scene.publish("b0")
    (held,) = await m.pull()
    assert await scene.move((1, "m", "n")) == [""]
    flows = scene.running.broker.flow_registry
    flows.lose(flows.find("workers", "m"))  # as after 30 s
    (again,) = await n.pull()
    assert (again["value"], again["cause"], again["redeliveries"]) == ("b0", "flow_lost", 1)
    assert await m.ack_receipt(held) == "fenced"
    assert await n.ack_receipt(again) == ""


async def test_a_member_that_has_left_is_told_once_that_it_holds_nothing_then_refused(scene):
    m, n = Puller(scene.running, "m"), Puller(scene.running, "n")
    await n.pull(wait_ms=0)
    await scene.publish("a0")
    (held,) = await m.pull()
    status, _ = await scene.running.call(
        "DELETE", f"{GROUP}/members/m?flow={m.flow}", token=CONSUME
    )
    assert status == 200
    assert await scene.move((0, "m", "n"), (1, "m", "n")) == ["", ""]
    assert await m.pull(wait_ms=0) == []
    assert await m.ack(held) == "", "what it has in hand still counts"
    assert await m.pull(wait_ms=0) == []
    body = {"member": "m", "incarnation": "of-m", "wait_ms": 0}
    for _ in range(2):
        status, answer = await scene.running.call("POST", f"{GROUP}/pull", token=CONSUME, json=body)
        assert (status, answer["error"]["code"]) == (409, "conflict")
        assert "join again, pull after 30 s" in answer["error"]["message"]
    flows = scene.running.broker.flow_registry
    flows.lose(flows.find("workers", "m"))
    assert await m.pull(wait_ms=0) == [], "it has joined again"
