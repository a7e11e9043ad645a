"""A pull of all brokers: one URL drains the queue, and nothing is lost on its way."""

import asyncio
import time

import pytest
from aiohttp import ClientSession, TCPConnector

from partq.broker.api import owner_pulls
from partq.broker.api.app_keys import PULLS
from partq.core.model import Cause, MemberId
from partq.store.records.members import Members

GROUP = "/v1/queues/orders/groups/workers"


def values(answer):
    return [message["value"] for message in answer["messages"]]


def flow_at(broker):
    return broker.broker.flow_registry.find("workers", "m")


def waits_at(broker):
    """Say whether a pull of the member waits there for a message."""
    flow = flow_at(broker)
    return flow is not None and bool(flow.wake._waiters)


@pytest.mark.req("AZR-12", "AZR-56")
async def test_one_url_drains_the_queue(caller, running, other):
    """Each in the order of its partition; acks by receipts at either broker reach the owner."""
    await caller.publish("a1", "a2", "a3", partition=0)
    await caller.publish("b1", "b2", "b3", partition=1)
    got = []
    for at in (running, other, running, other, running, other):
        answer = await caller.pull_all(at=at, max_messages=2)
        got += values(answer)
        assert answer["held"] == ["1.0", "1.1"]
        assert answer["failed"] == {}
        if answer["messages"]:
            assert set(await caller.settle("acks", answer["messages"], at=at)) == {""}
    assert [each for each in got if each[0] == "a"] == ["a1", "a2", "a3"]
    assert [each for each in got if each[0] == "b"] == ["b1", "b2", "b3"]
    assert (await running.state())["cursor"] == 3
    assert (await other.state(1))["cursor"] == 3


async def test_a_pull_waits_at_all_brokers(caller, other):
    """It is answered by the first message, whichever broker has it."""
    await caller.pull_all()
    for partition in (1, 0):
        pulling = asyncio.create_task(caller.pull_all(wait_ms=20_000))
        await caller.publish(f"for {partition}", partition=partition)
        answer = await pulling
        assert values(answer) == [f"for {partition}"]
        assert await caller.settle("acks", answer["messages"]) == [""]


async def test_an_answer_that_is_lost_comes_from_any_broker_again(caller, running, other):
    """The broker that was asked may be gone with it: the owners keep what no pull has named."""
    await caller.publish("a", partition=0)
    await caller.publish("b", partition=1)
    lost = await caller.pull_all(at=other)
    again = await caller.pull_all(at=running, last_answers={})
    assert sorted(values(lost)) == sorted(values(again)) == ["a", "b"]
    assert {m["receipt"] for m in lost["messages"]} == {m["receipt"] for m in again["messages"]}


async def test_a_pull_that_names_the_answers_goes_on(caller, running, other):
    """What is in flight is not given again, through whichever broker the next pull goes."""
    await caller.publish("a1", "a2", partition=0)
    await caller.publish("b1", "b2", partition=1)
    first = await caller.pull_all(at=running, max_messages=2)
    second = await caller.pull_all(at=other, max_messages=2, last_answers=first["answers"])
    assert sorted(values(first)) == ["a1", "b1"]
    assert sorted(values(second)) == ["a2", "b2"]
    assert sorted(second["answers"]) == ["orders-0", "orders-1"]


@pytest.mark.req("AZR-54", "AZR-55")
async def test_what_finds_no_room_comes_with_a_later_pull(caller, other):
    """Each broker has given one, and one alone was asked for: its turn comes."""
    await caller.publish("a", partition=0)
    await caller.publish("b", partition=1)
    first = await caller.pull_all(max_messages=1)
    second = await caller.pull_all(max_messages=1, last_answers=first["answers"])
    assert sorted(values(first) + values(second)) == ["a", "b"]


@pytest.mark.req("AZR-57")
async def test_nothing_comes_while_everything_is_in_flight(caller, other):
    await caller.publish("a", partition=0)
    await caller.publish("b", partition=1)
    answer = await caller.pull_all()
    assert values(await caller.pull_all(last_answers=answer["answers"])) == []


async def test_a_broker_that_is_not_reached_costs_its_partitions_alone(caller, running, other):
    """It is told, and its number is kept: what it has in flight is not given again later."""
    await caller.publish("a1", partition=0)
    await caller.publish("b1", partition=1)
    first = await caller.pull_all()
    await other.runner.cleanup()  # it is not reached any more, and its lease goes on
    await caller.publish("a2", partition=0)
    second = await caller.pull_all(wait_ms=20_000, last_answers=first["answers"])
    assert values(second) == ["a2"]
    assert second["failed"]["orders-1"]["code"] == "unavailable"
    assert "no usable answer" in second["failed"]["orders-1"]["message"]
    assert second["answers"]["orders-1"] == first["answers"]["orders-1"]


async def test_a_broker_that_is_silent_is_not_asked_by_each_pull(
    caller, running, other, peers, monkeypatch
):
    """It costs a pull once; later ones go without it for a while, and then it is asked again."""
    pulls, now = running.app[owner_pulls.OWNER_PULLS], time.monotonic()
    patience_s = owner_pulls.OWNER_ANSWER_S
    monkeypatch.setattr(owner_pulls, "OWNER_ANSWER_S", 0.2)
    monkeypatch.setattr(pulls, "_clock", lambda: now)
    await caller.publish("a", partition=0)
    await caller.publish("b", partition=1)
    gate = peers.Gate(other.app[PULLS], "pull")
    first = await caller.pull_all()
    assert values(first) == ["a"]
    assert "orders-1" in first["failed"]
    gate.reached.clear()
    second = await caller.pull_all(last_answers=first["answers"])
    assert "it has not answered just now" in second["failed"]["orders-1"]["message"]
    assert not gate.reached.is_set()
    monkeypatch.setattr(pulls, "_clock", time.monotonic)
    monkeypatch.setattr(owner_pulls, "OWNER_ANSWER_S", patience_s)
    gate.opened.set()
    answer = second

    async def comes_again():
        nonlocal answer
        answer = await caller.pull_all(last_answers=answer["answers"])
        return values(answer) == ["b"]

    await peers.eventually(comes_again, "the other one is asked again")
    assert answer["failed"] == {}


async def test_a_forwarded_pull_goes_no_further(caller, other):
    """Also if it asks for it: two brokers do not send it to and fro."""
    await caller.publish("a", partition=0)
    body = {"member": "m", "incarnation": "i", "wait_ms": 0, "all_brokers": True}
    headers = {"Partq-Forwarded": "orders-0"}
    status, answer = await caller.call("pull", body, at=other, headers=headers)
    assert (status, answer["messages"], answer["held"]) == (200, [], ["1.1"])
    assert "answers" not in answer


async def test_a_newer_pull_does_not_wait_for_one_that_was_given_up(caller, other, peers):
    """Its caller is gone, or has a second thread: the newest one gets the messages."""
    older = asyncio.create_task(caller.pull_all(wait_ms=20_000))
    await peers.eventually(
        lambda: waits_at(caller.running) and waits_at(other), "it has found nothing, and waits"
    )
    newer = asyncio.create_task(caller.pull_all(wait_ms=20_000))
    assert values(await older) == []
    assert not newer.done()
    await caller.publish("b", partition=1)
    assert values(await newer) == ["b"]


async def test_the_pulls_that_wait_are_bounded(caller, other, monkeypatch):
    monkeypatch.setattr(owner_pulls, "MAX_FORWARDED", 0)
    body = {"member": "m", "incarnation": "i", "all_brokers": True}
    status, answer = await caller.call("pull", body)
    assert (status, answer["error"]["code"]) == (503, "overloaded")


@pytest.mark.parametrize("wrong", [{"max_messages": 0}, {"wait_ms": 20_001}])
async def test_the_bounds_of_a_pull_hold(caller, other, wrong):
    body = {"member": "m", "incarnation": "i", "all_brokers": True, **wrong}
    status, answer = await caller.call("pull", body)
    assert (status, answer["error"]["code"]) == (400, "bad_request")


async def test_a_pause_at_another_broker_is_answered_at_once(caller, other, peers):
    """So the member acks what it holds, and the partition moves on."""
    await caller.publish("b", partition=1)
    answer = await caller.pull_all()
    pulling = asyncio.create_task(caller.pull_all(wait_ms=20_000, last_answers=answer["answers"]))
    handoff = await peers.Handoff.begin(other, partition=1)
    await handoff.pause()
    assert (await pulling)["paused"] == ["1.1"]
    assert await caller.settle("acks", answer["messages"]) == [""]
    assert (await handoff.commit())["code"] == ""
    assert (await caller.pull_all())["held"] == ["1.0"]


async def test_an_owner_that_ends_between_pull_and_ack_is_fenced(caller, running, other, peers):
    """Its messages are redelivered by the next owner, under other receipts."""
    await caller.publish("b", partition=1)
    (old,) = (await caller.pull_all(at=running))["messages"]
    await other.admin("/yield", {"partitions": ["1.1"]})
    await running.admin("/claim", {"partitions": ["1.1"]})
    assert await caller.settle("acks", [old], at=running) == ["fenced"]
    (new,) = (await caller.pull_all(at=running, wait_ms=20_000))["messages"]
    assert (new["value"], new["receipt"] == old["receipt"]) == ("b", False)
    assert await caller.settle("acks", [old, new], at=running) == ["fenced", ""]


async def test_dead_letters_are_made_through_any_broker(caller, other):
    await caller.publish("b", partition=1)
    answer = await caller.pull_all()
    told = await caller.settle("nacks", answer["messages"], makes_dead_letters=True)
    assert told == [""]
    assert (await other.state(1))["in_flight"] == 0


async def test_a_member_is_bound_where_its_pulls_come_from(
    caller, running, other, store, monkeypatch
):
    """The owner sees them come from another broker, and is told the address by that one."""
    records = Members(store, running.broker.keys)
    await records.list_member("workers", MemberId("m"), "127.0.0.2")
    await caller.publish("b", partition=1)
    async with ClientSession(connector=TCPConnector(local_addr=("127.0.0.2", 0))) as far:
        with monkeypatch.context() as patch:
            patch.setattr(running, "session", far)
            assert values(await caller.pull_all()) == ["b"]
        assert flow_at(other).address == "127.0.0.2"


async def test_a_member_leaves_all_brokers_by_one_call(caller, running, other):
    """It holds its partitions until they are handed over; a repeat changes nothing."""
    await caller.pull_all()
    for _ in range(2):
        status, left = await running.call("DELETE", f"{GROUP}/members/m", token=caller.token)
        assert (status, left) == (200, {"held": ["1.0", "1.1"], "failed": {}})
    assert flow_at(running).is_leaving
    assert flow_at(other).is_leaving
    await other.runner.cleanup()
    _, left = await running.call("DELETE", f"{GROUP}/members/m", token=caller.token)
    assert (left["held"], list(left["failed"])) == (["1.0"], ["orders-1"])


async def test_a_member_that_has_left_all_brokers_is_refused_once_it_was_told(
    caller, running, other
):
    await caller.publish("a", partition=1)
    await caller.pull_all()
    await running.call("DELETE", f"{GROUP}/members/m", token=caller.token)
    lose_partition(running)
    assert (await caller.pull_all())["held"] == ["1.1"], "it gives the other one back first"
    assert (await caller.pull_all())["held"] == ["1.1"]
    lose_partition(other)
    assert (await caller.pull_all())["held"] == []
    body = {"member": "m", "incarnation": "i", "wait_ms": 0, "all_brokers": True}
    status, answer = await caller.call("pull", body)
    assert (status, answer["error"]["code"]) == (409, "conflict")
    assert "member m has left group workers" in answer["error"]["message"]


def lose_partition(broker):
    """Have the member hold nothing there any more, as after a handoff."""
    for consumed in list(flow_at(broker).partitions):
        consumed.unbind(Cause.NONE)


async def test_one_broker_alone_answers_as_all(caller, running):
    await caller.publish("a", "b")
    answer = await caller.pull_all(max_messages=1)
    assert (values(answer), list(answer["answers"]), answer["failed"]) == (["a"], ["orders-0"], {})
    assert values(await caller.pull_all(last_answers=answer["answers"])) == ["b"]
